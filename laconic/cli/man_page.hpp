// cli/man_page.hpp — laconic(1), in the language of man(7). Pure text.
#pragma once

#include <string>

#include "laconic/cli/verb_tree.hpp"

namespace laconic {

std::string man_page(const VerbEntry& root, const std::string& version);

}  // namespace laconic
