// cli/train_argument.hpp — the words of `laconic train` and `laconic config ...`, used by
// cli/arguments.cpp only.
#pragma once

#include "laconic/cli/arguments.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, TrainCommand& command);
void add_words(CLI::App& verb, MeasureCommand& command);
void add_words(CLI::App& verb, ConfigCommand& command);  // as command.show says: `show`, or `check`

}  // namespace laconic
