// study/report_markdown.hpp — tables, links, figures and sentences of a page.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/report/table.hpp"
#include "laconic/study/report_case.hpp"

namespace laconic {

// A pipe in a cell is escaped. Requires: one cell per column.
std::string markdown_table(const std::vector<Column>& columns,
                           const std::vector<std::vector<std::string>>& rows);

// Rows are methods, columns rates. A method with memory has a second row for its first epoch, if
// `has_epochs`.
using CellOf = std::function<std::string(const Case&, Which)>;
std::string method_by_rate(const std::vector<Case>& cases, const CellOf& cell, bool has_epochs);

// Which figures there are as drawings, and why the others are not.
struct Drawn {
  std::vector<std::string> names;     // "speed"
  std::vector<std::string> has_data;  // of all figures that could be drawn
  std::string reason;                 // "gnuplot is not installed"
};
// The figure with a link to its PNG and its data, or the sentence that stands in for it. `prefix`
// leads from the page to the dated folder: "" or "2026-11-15/".
std::string figure_text(const Drawn& drawn, const std::string& name, const std::string& caption,
                        const std::string& prefix = "");

// "1 is", "2 are": a number and the word that agrees with it.
std::string with_count(std::int64_t count, const char* one, const char* many);

// What was trained on what: models and batches of runs of these parts (of all, where none is named)
// that went well, as far as they are known, in one sentence. Empty: no run in a lab.
std::string setting_text(const std::vector<Outcome>& outcomes,
                         const std::vector<std::string>& parts = {});

// The sentence for a page whose part has no outcome that went well.
std::string not_measured(const std::vector<Outcome>& outcomes, const std::string& part);

}  // namespace laconic
