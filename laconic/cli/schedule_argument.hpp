// cli/schedule_argument.hpp — the words of `laconic schedule`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/schedule_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, ScheduleCommand& command);

}  // namespace laconic
