// study/markdown.hpp — tables and counts of a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/report/table.hpp"

namespace laconic {

// A pipe in a cell is escaped. Requires: one cell per column.
std::string markdown_table(const std::vector<Column>& columns,
                           const std::vector<std::vector<std::string>>& rows);

// "1 is", "2 are": a number and the word that agrees with it.
std::string with_count(std::int64_t count, const char* one, const char* many);

}  // namespace laconic
