// cli/model_argument.hpp — the words of verbs that use a model that is there: generate, evaluate,
// export. Used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/arguments.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, GenerateCommand& command);
void add_words(CLI::App& verb, EvaluateCommand& command);
void add_words(CLI::App& verb, PredictCommand& command);
void add_words(CLI::App& verb, ExportCommand& command);

}  // namespace laconic
