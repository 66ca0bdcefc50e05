// cli/layout_argument.hpp — the words of `laconic layout`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/layout_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, LayoutCommand& command);

}  // namespace laconic
