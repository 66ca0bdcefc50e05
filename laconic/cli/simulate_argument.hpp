// cli/simulate_argument.hpp — the words of `laconic simulate`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/simulate_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, SimulateCommand& command);

}  // namespace laconic
