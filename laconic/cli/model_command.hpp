// cli/model_command.hpp — the verbs that use a finished model.
#pragma once

#include "laconic/cli/arguments.hpp"

namespace laconic {

int run_generate(const GenerateCommand& command);
int run_evaluate(const EvaluateCommand& command);
int run_predict(const PredictCommand& command);
int run_export(const ExportCommand& command);

}  // namespace laconic
