// cli/lab_argument.hpp — the words of `laconic lab ...` and `laconic study`, used by
// cli/arguments.cpp only.
#pragma once

#include "laconic/cli/lab_command.hpp"
#include "laconic/cli/lab_report_command.hpp"
#include "laconic/cli/study_command.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, LabUpCommand& command);
void add_words(CLI::App& verb, LabDownCommand& command);
void add_words(CLI::App& verb, LabRateCommand& command);
void add_words(CLI::App& verb, LabStatusCommand& command);
void add_words(CLI::App& verb, LabRunCommand& command);
void add_words(CLI::App& verb, LabReportCommand& command);
void add_words(CLI::App& verb, StudyCommand& command);

}  // namespace laconic
