// cli/plan_argument.hpp — the words of `laconic plan`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/plan_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, PlanCommand& command);

}  // namespace laconic
