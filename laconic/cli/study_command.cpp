#include "laconic/cli/study_command.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/study_places.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/study/study_page.hpp"
#include "laconic/study/trial_estimate.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

std::string again_text(const StudyCommand& command, const std::string& out) {
  std::string text = fmt::format("laconic study {} --out {}", command.file, out);
  for (const std::string& word : command.only) text += " --only " + shell_line({word});
  if (command.jobs > 1) text += fmt::format(" --jobs {}", command.jobs);
  return text;
}

// Trials that are timed would slow each other down.
void refuse_jobs_in_labs(const StudyCommand& command, const std::vector<Trial>& trials) {
  if (command.jobs == 1) return;
  for (const Trial& trial : trials)
    if (trial.rate != "none")
      throw ConfigError(fmt::format(
          "--jobs {}: {} is timed in a lab, and trials at once would slow each other down: choose "
          "others with --only, or leave --jobs away",
          command.jobs, id_of(trial)));
}

std::string commands_of(const StudyFile& study, const Places& places,
                        const std::vector<Trial>& trials, const std::string& out) {
  std::string text;
  for (const std::string& line : preparation_of(places, study.models, trials)) text += line + "\n";
  for (const Trial& each : trials) {
    const Trial trial = places.python.empty() ? without_weights(each, study.models) : each;
    const std::string folder = fmt::format("{}/trials/{}", out, file_stem(trial));
    text += fmt::format("# {}\n{}\n{}\n", id_of(trial), shell_line({"mkdir", "-p", folder}),
                        shell_line(command_of(trial, study, places, folder)));
  }
  return text;
}

// Rows of all outcomes that are there, in the order of the study. Where a folder has lines alone,
// these.
std::vector<StudyRow> rows_in(const std::string& out, const StudyFile& study,
                              const std::vector<StudyTrial>& planned, const StudyEnd& end) {
  std::vector<StudyRow> rows;
  for (const StudyTrial& one : planned) {
    Outcome outcome;
    if (has_outcome(out, one.trial, outcome) ||
        has_outcome(out, without_weights(one.trial, study.models), outcome)) {
      rows.push_back(row_of(one, outcome));
      continue;
    }
    for (const Outcome& skipped : end.outcomes)
      if (was_skipped(skipped) && id_of(skipped.trial) == id_of(one.trial))
        rows.push_back(row_of(one, skipped));
  }
  const std::string path = out + "/outcomes.jsonl";
  if (rows.empty() && fs::is_regular_file(path))
    rows = parse_rows(std::string(MappedFile(path).text()), path);
  if (rows.empty())
    throw ConfigError(
        fmt::format("there are no outcomes of this study in {} to write a page of", out));
  return rows;
}

StudyEnd run_here(const StudyCommand& command, const StudyFile& study, const Places& places,
                  const std::string& out, const std::vector<Trial>& trials) {
  require_labs(trials);
  refuse_jobs_in_labs(command, trials);
  const StudyLock lock(out);
  fmt::print("{} trials into {}, about {} if nothing is there yet\n", trials.size(), out,
             human_seconds(estimated_seconds(trials, study.models) / command.jobs));
  std::fflush(stdout);
  prepare_work(places, study.models, trials);
  Study here = study_here(study, places, out, trials, command.deadline_seconds);
  here.retry = command.retry;
  here.jobs = command.jobs;
  here.keeps_runs = true;
  return run_study(here);
}

}  // namespace

int run_study_file(const StudyCommand& command) {
  const StudyFile study = read_study(command.file);
  const std::vector<StudyTrial> all = expand(study);
  const std::vector<StudyTrial> planned = chosen(study, all, command.only);
  const std::vector<Trial> trials = trials_of(planned);
  if (command.list) {
    fmt::print("{}{} settings\n", to_text(trials, study.models), count_settings(planned));
    return 0;
  }
  const std::string out = command.out.empty() ? "runs/" + study.name : command.out;
  const Places places = find_places(out, study, trials);
  StudyEnd end;
  int exit_code = 0;
  if (!command.pages_only) {
    refuse(check_trials(study, trials, places, presets_folder()));
    if (command.commands) {
      fmt::print("{}", commands_of(study, places, trials, out));
      return 0;
    }
    end = run_here(command, study, places, out, trials);
    exit_code = tell_end(end, trials.size(), again_text(command, out));
  }
  if (end.signal != 0 && end.outcomes.empty()) return exit_code;
  const std::vector<StudyRow> rows = rows_in(out, study, all, end);
  write_study(out, study, all, rows, again_text(command, out));
  fmt::print("{}/README.md, from {} outcomes\n", out, rows.size());
  return exit_code;
}

}  // namespace laconic
