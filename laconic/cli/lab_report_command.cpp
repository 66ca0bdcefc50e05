#include "laconic/cli/lab_report_command.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/study_places.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/study/report.hpp"
#include "laconic/study/report_pages.hpp"
#include "laconic/study/study_trials.hpp"
#include "laconic/study/trial_estimate.hpp"

namespace laconic {

namespace {

std::string command_text(const LabReportCommand& command, const std::string& out) {
  std::string text = fmt::format("laconic lab report --size {} --out {}", command.size, out);
  for (const std::string& part : command.parts)
    text += part.find(' ') == std::string::npos ? " --part " + part : " --part '" + part + "'";
  for (const std::string& rate : command.rates) text += " --rate " + rate;
  if (!command.method.empty()) text += fmt::format(" --method '{}'", command.method);
  if (command.deadline_seconds != LabReportCommand{}.deadline_seconds)
    text += fmt::format(" --deadline {}", command.deadline_seconds);
  return text;
}

// The study of a report of that size: studies/lab-report-SIZE.toml, of "full" without the size.
StudyFile study_of(const std::string& size) {
  const std::string file =
      fmt::format("studies/lab-report{}.toml", size == "full" ? "" : "-" + size);
  return read_study(fmt::format("{}/{}", source_folder(file), file));
}

void warn_of_gnuplot(const std::vector<Trial>& trials) {
  const bool has_figures = std::any_of(trials.begin(), trials.end(),
                                       [](const Trial& trial) { return trial.rate != "none"; });
  if (has_figures && find_tool("gnuplot").empty())
    fmt::print(stderr,
               "laconic: gnuplot is not installed, and the report will have no figures; install "
               "gnuplot-nox now, or afterwards and add --pages-only\n");
}

// Each as it is, and as it is where there is no PyTorch.
std::vector<Trial> with_and_without_weights(const std::vector<Trial>& trials,
                                            const std::vector<StudyModel>& models) {
  std::vector<Trial> both;
  for (const Trial& trial : trials) {
    both.push_back(trial);
    if (const Trial other = without_weights(trial, models); !(other == trial))
      both.push_back(other);
  }
  return both;
}

StudyEnd run_trials(const LabReportCommand& command, const StudyFile& study, const std::string& out,
                    const std::vector<Trial>& trials) {
  require_labs(trials);
  warn_of_gnuplot(trials);
  const StudyLock lock(out);
  const Places places = find_places(out, study, trials);
  fmt::print("{} trials into {}, about {} if nothing is there yet\n", trials.size(), out,
             human_seconds(estimated_seconds(trials, study.models)));
  std::fflush(stdout);
  prepare_work(places, study.models, trials);
  Study here = study_here(study, places, out, trials, command.deadline_seconds);
  here.retry = command.retry;
  return run_study(here);
}

// What is in the folder, of this call or an earlier one, and what could not be run.
std::vector<Outcome> outcomes_for_pages(const std::string& out, const StudyFile& study,
                                        const std::vector<Trial>& all, const StudyEnd& end) {
  std::vector<Outcome> outcomes = read_outcomes(out, with_and_without_weights(all, study.models));
  if (outcomes.empty() && end.outcomes.empty())
    throw ConfigError(fmt::format(
        "there are no outcomes of trials of this size in {}/raw to write pages of", out));
  for (const Outcome& outcome : end.outcomes)
    if (was_skipped(outcome)) outcomes.push_back(outcome);
  for (Outcome& outcome : outcomes)  // older outcomes do not say it
    if (const StudyModel* model = find_model(study.models, outcome.trial.model))
      outcome.model_about = description_of(*model);
  return outcomes;
}

// Every value that differs, in the order in which they came: a study that went on after a change
// says so.
std::string all_of(const std::vector<Outcome>& outcomes, std::string Outcome::*member) {
  std::vector<std::string> values;
  for (const Outcome& outcome : outcomes)
    if (const std::string& value = outcome.*member;
        !value.empty() && std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(value);
  return join(values, "; ");
}

ReportFacts facts_of(const LabReportCommand& command, const StudyFile& study,
                     const std::string& out, const std::vector<Trial>& all,
                     const std::vector<Outcome>& outcomes) {
  std::string began;
  for (const Outcome& outcome : outcomes)
    if (!outcome.began.empty() && (began.empty() || outcome.began < began)) began = outcome.began;
  return {.date = began.substr(0, 10),
          .machine = all_of(outcomes, &Outcome::machine),
          .commit = all_of(outcomes, &Outcome::commit),
          .command = command_text(command, out),
          .size = command.size,
          .trials = all.size(),
          .models = study.models};
}

// What would be run, as lines for a shell: the data, then every trial.
std::string commands_without_running(const LabReportCommand& command, const StudyFile& study,
                                     const std::string& out, const std::vector<Trial>& trials) {
  const Places places = find_places(out, study, trials);
  std::vector<Outcome> planned;
  for (const Trial& each : trials) {
    if (!obstacle_to(each, study.models, places).empty()) continue;
    const Trial trial = places.python.empty() ? without_weights(each, study.models) : each;
    Outcome& outcome = planned.emplace_back();
    outcome.trial = trial;
    outcome.command = command_of(trial, study, places, places.work + "/" + file_stem(trial));
  }
  return commands_text(planned, {.command = command_text(command, out), .models = study.models});
}

// Sizes share names of trials, so they do not share a folder.
std::string default_folder(const std::string& size) {
  return "docs/results/" + utc_now().substr(0, 10) + (size == "full" ? "" : "-" + size);
}

}  // namespace

int run_lab(const LabReportCommand& command) {
  const StudyFile study = study_of(command.size);
  const std::vector<Trial> all = trials_of(expand(study));
  const std::vector<Trial> trials = chosen(all, {command.parts, command.rates, command.method});
  if (command.list) {
    fmt::print("{}", to_text(trials, study.models));
    return 0;
  }
  const std::string out = command.out.empty() ? default_folder(command.size) : command.out;
  if (command.commands) {
    fmt::print("{}", commands_without_running(command, study, out, trials));
    return 0;
  }
  StudyEnd end;
  int exit_code = 0;
  if (!command.pages_only) {
    end = run_trials(command, study, out, trials);
    exit_code = tell_end(end, trials.size(), command_text(command, out));
    if (end.signal != 0) return exit_code;
  }
  const std::vector<Outcome> outcomes = outcomes_for_pages(out, study, all, end);
  write_report(out, outcomes, facts_of(command, study, out, all, outcomes));
  fmt::print("{}/README.md, from {} outcomes in {}/raw\n", out, outcomes.size(), out);
  return exit_code;
}

}  // namespace laconic
