#include "laconic/cli/lab_report_command.hpp"

#include <fmt/format.h>

#include "laconic/base/clock.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/study_command.hpp"
#include "laconic/cli/study_places.hpp"

namespace laconic {

// Sizes share names of trials, so they do not share a folder.
int run_lab(const LabReportCommand& command) {
  const std::string size = command.size == "full" ? "" : "-" + command.size;
  const std::string file = fmt::format("studies/lab-report{}.toml", size);
  StudyCommand study{.file = fmt::format("{}/{}", source_folder(file), file),
                     .out = command.out,
                     .deadline_seconds = command.deadline_seconds,
                     .list = command.list,
                     .commands = command.commands,
                     .retry = command.retry,
                     .pages_only = command.pages_only};
  if (study.out.empty()) study.out = "docs/results/" + utc_now().substr(0, 10) + size;
  if (!command.parts.empty()) study.only.push_back("part=" + join(command.parts, ","));
  if (!command.rates.empty()) study.only.push_back("rate=" + join(command.rates, ","));
  if (!command.method.empty()) study.only.push_back(command.method);
  return run_study_file(study);
}

}  // namespace laconic
