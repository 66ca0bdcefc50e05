#include "laconic/cli/lab_report_command.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/lab/lab.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/machine/cpu.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/study/lab_report.hpp"
#include "laconic/study/report.hpp"
#include "laconic/study/report_pages.hpp"
#include "laconic/study/run.hpp"
#include "laconic/study/trial_estimate.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNoTorch =
    "skipped: there is no PyTorch for python3 here (Debian: python3-torch)";

constexpr const char* kNoCorpora =
    "skipped: there is no wikitext-2/train.txt.xz in $LACONIC_DATA or ../shared/data";

// As one would type it here: relative where it is below the current folder.
std::string as_typed(const fs::path& path) {
  const fs::path relative = fs::proximate(path);
  return relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
}

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

std::string machine_text() {
  const Cpu cpu = detect_cpu();
  utsname system{};
  ::uname(&system);
  return fmt::format("{}, {} cores, {} memory, {} {}", cpu.model, cpu.cores,
                     human_bytes(static_cast<double>(detect_memory().total_bytes)), system.sysname,
                     system.release);
}

// The tree that presets_folder() belongs to.
std::string source_folder() {
  const fs::path folder = fs::absolute(presets_folder()).parent_path();
  if (!fs::is_directory(folder / "examples/quickstart/corpus") ||
      !fs::exists(folder / "bench/peers/torch_ddp.py"))
    throw ConfigError(fmt::format(
        "lab report trains on the corpus of the source tree, and {} is none: use the laconic of "
        "a tree that was built with ./dev build",
        folder.string()));
  return as_typed(folder);
}

// One that has PyTorch. Debian's first: that is the one with the libtorch we were built with.
std::string find_python() {
  for (const std::string& python : {std::string("/usr/bin/python3"), find_tool("python3")})
    if (fs::exists(python) && run_tool({python, "-c", "import numpy, torch"}).exit_code == 0)
      return python;
  return "";
}

std::string find_blas() {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("/usr/lib", none))
    if (fs::is_directory(entry.path() / "openblas-openmp")) return entry.path() / "openblas-openmp";
  return "";
}

// The folder of public corpora, or nothing.
std::string find_corpora(const std::string& source) {
  const char* set = std::getenv("LACONIC_DATA");
  const fs::path folder = set != nullptr ? fs::path(set) : fs::path(source) / "../shared/data";
  return fs::exists(folder / "wikitext-2/train.txt.xz") ? as_typed(fs::absolute(folder)) : "";
}

Places find_places(const std::string& out, const std::vector<Trial>& trials) {
  const bool has_replicas = std::any_of(trials.begin(), trials.end(),
                                        [](const Trial& t) { return t.model == "replicas"; });
  const auto advised = worker_environment(detect_cpu(), 1, {}, LACONIC_TORCH_VERSION);
  return {.laconic = as_typed(fs::read_symlink("/proc/self/exe")),
          .python = has_replicas ? find_python() : "",
          .source = source_folder(),
          .work = out + "/scratch",
          .corpora = find_corpora(source_folder()),
          .peer_setting = peer_setting(advised, find_blas()),
          .allocator = allocator_setting(advised)};
}

// Why a trial cannot be run here; empty: it can.
std::string obstacle_to(const Trial& trial, const Places& places) {
  if (trial.program == Program::ddp && places.python.empty()) return kNoTorch;
  if (needs_corpora(trial.model) && places.corpora.empty()) return kNoCorpora;
  return "";
}

void refuse_or_warn(const std::vector<Trial>& trials) {
  if (std::all_of(trials.begin(), trials.end(),
                  [](const Trial& trial) { return trial.rate == "none"; }))
    return;
  refuse(check(detect_lab_rights()));
  if (find_tool("gnuplot").empty())
    fmt::print(stderr,
               "laconic: gnuplot is not installed, and the report will have no figures; install "
               "gnuplot-nox now, or afterwards and add --pages-only\n");
}

void tell_failures(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes)
    if (!outcome.failure.empty()) fmt::print("  {}: {}\n", id_of(outcome.trial), outcome.failure);
}

// Each as it is, and as it is where there is no PyTorch.
std::vector<Trial> with_and_without_weights(const std::vector<Trial>& trials) {
  std::vector<Trial> both;
  for (const Trial& trial : trials) {
    both.push_back(trial);
    if (const Trial other = without_weights(trial); !(other == trial)) both.push_back(other);
  }
  return both;
}

std::vector<Trial> own_weights(std::vector<Trial> trials) {
  for (Trial& trial : trials) trial = without_weights(std::move(trial));
  return trials;
}

StudyEnd run_trials(const LabReportCommand& command, const std::string& out,
                    const std::vector<Trial>& trials) {
  refuse_or_warn(trials);
  const StudyLock lock(out);
  const Places places = find_places(out, trials);
  fmt::print("{} trials into {}, about {} if nothing is there yet\n", trials.size(), out,
             human_seconds(estimated_seconds(trials)));
  std::fflush(stdout);
  prepare_work(places, trials);
  return run_study(
      {.out = out,
       .trials = places.python.empty() ? own_weights(trials) : trials,
       .environment = quiet_environment(current_environment()),
       .commit = std::string(build_commit()),
       .machine = machine_text(),
       .deadline_seconds = command.deadline_seconds,
       .retry = command.retry,
       .command = [&](const Trial& trial,
                      const std::string& folder) { return command_of(trial, places, folder); },
       .samples = [&](const Trial& trial) { return samples_of(places, trial.model); },
       .obstacle = [&](const Trial& trial) { return obstacle_to(trial, places); },
       .estimate = [](const Trial& trial) { return estimated_seconds(trial); }});
}

bool has_failed(const Outcome& outcome) {
  return !outcome.failure.empty() && !was_skipped(outcome);
}

int tell_end(const StudyEnd& end, std::size_t trials, const std::string& again) {
  if (end.signal != 0) {
    fmt::print("interrupted after {} of {} trials; to go on: {}\n", end.outcomes.size(), trials,
               again);
    return 128 + end.signal;
  }
  const auto failures = std::count_if(end.outcomes.begin(), end.outcomes.end(), has_failed);
  fmt::print("{} trials, {} of them run now, {} failed\n", trials, end.ran, failures);
  tell_failures(end.outcomes);
  if (failures > 0) fmt::print("to run these again: {} --retry\n", again);
  return failures > 0 ? kExitFailure : 0;
}

// What is in the folder, of this call or an earlier one, and what could not be run.
std::vector<Outcome> outcomes_for_pages(const std::string& out, const std::vector<Trial>& all,
                                        const StudyEnd& end) {
  std::vector<Outcome> outcomes = read_outcomes(out, with_and_without_weights(all));
  if (outcomes.empty() && end.outcomes.empty())
    throw ConfigError(fmt::format(
        "there are no outcomes of trials of this size in {}/raw to write pages of", out));
  for (const Outcome& outcome : end.outcomes)
    if (was_skipped(outcome)) outcomes.push_back(outcome);
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

ReportFacts facts_of(const LabReportCommand& command, const std::string& out,
                     const std::vector<Trial>& all, const std::vector<Outcome>& outcomes) {
  std::string began;
  for (const Outcome& outcome : outcomes)
    if (!outcome.began.empty() && (began.empty() || outcome.began < began)) began = outcome.began;
  return {.date = began.substr(0, 10),
          .machine = all_of(outcomes, &Outcome::machine),
          .commit = all_of(outcomes, &Outcome::commit),
          .command = command_text(command, out),
          .size = command.size,
          .trials = all.size()};
}

// What would be run, as lines for a shell: the data, then every trial.
std::string commands_without_running(const LabReportCommand& command, const std::string& out,
                                     const std::vector<Trial>& trials) {
  const Places places = find_places(out, trials);
  std::vector<Outcome> planned;
  for (const Trial& trial : places.python.empty() ? own_weights(trials) : trials) {
    if (!obstacle_to(trial, places).empty()) continue;
    Outcome& outcome = planned.emplace_back();
    outcome.trial = trial;
    outcome.command = command_of(trial, places, places.work + "/" + file_stem(trial));
  }
  return commands_text(planned, {.command = command_text(command, out)});
}

// Sizes share names of trials, so they do not share a folder.
std::string default_folder(const std::string& size) {
  return "docs/results/" + utc_now().substr(0, 10) + (size == "full" ? "" : "-" + size);
}

}  // namespace

int run_lab(const LabReportCommand& command) {
  const std::vector<Trial> all = lab_report_trials(parse_report_size(command.size));
  const std::vector<Trial> trials = chosen(all, {command.parts, command.rates, command.method});
  if (command.list) {
    fmt::print("{}", to_text(trials));
    return 0;
  }
  const std::string out = command.out.empty() ? default_folder(command.size) : command.out;
  if (command.commands) {
    fmt::print("{}", commands_without_running(command, out, trials));
    return 0;
  }
  StudyEnd end;
  int exit_code = 0;
  if (!command.pages_only) {
    end = run_trials(command, out, trials);
    exit_code = tell_end(end, trials.size(), command_text(command, out));
    if (end.signal != 0) return exit_code;
  }
  const std::vector<Outcome> outcomes = outcomes_for_pages(out, all, end);
  write_report(out, outcomes, facts_of(command, out, all, outcomes));
  fmt::print("{}/README.md, from {} outcomes in {}/raw\n", out, outcomes.size(), out);
  return exit_code;
}

}  // namespace laconic
