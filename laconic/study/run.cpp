#include "laconic/study/run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/lab/blocked_signals.hpp"
#include "laconic/study/run_files.hpp"
#include "laconic/study/trial_process.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

std::string outcome_path(const std::string& out, const Trial& trial) {
  return fmt::format("{}/raw/{}.json", out, file_stem(trial));
}
std::string log_path(const std::string& out, const Trial& trial) {
  return fmt::format("{}/logs/{}.txt", out, file_stem(trial));
}

std::string run_folder(const Study& study) {
  return study.out + "/scratch/run";
}

std::string text_of(const std::string& path) {
  return fs::is_regular_file(path) ? std::string(MappedFile(path).text()) : std::string();
}

void make_folders(const std::string& out) {
  for (const char* name : {"raw", "logs", "scratch"}) fs::create_directories(fs::path(out) / name);
  // What is worth keeping is committed with the pages; this is not.
  write_atomically(out + "/.gitignore", "/scratch/\n/logs/\n/.lock\n");
}

// One trial; nothing when a signal ended it.
struct Ran {
  Outcome outcome;
  int signal = 0;
};

std::string failure_of(const Study& study, const ProcessEnd& end) {
  if (end.is_late) return fmt::format("not done after {} s", study.deadline_seconds);
  return end.exit_code == 0 ? "" : failure_reason(end.exit_code, end.errors);
}

void read_what_is_left(const std::string& folder, const ProcessEnd& end, Outcome& outcome) {
  try {
    read_run({text_of(folder + "/run/log.jsonl"), text_of(folder + "/summary.json"),
              text_of(folder + "/lab.json"), end.output},
             outcome);
  } catch (const std::runtime_error& error) {
    outcome.failure = error.what();
  }
}

Ran run_trial(const Study& study, const Trial& trial) {
  const std::string folder = run_folder(study), log = log_path(study.out, trial);
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::remove(log);
  Ran ran{.outcome = {.trial = trial,
                      .commit = study.commit,
                      .machine = study.machine,
                      .began = utc_now(),
                      .command = study.command(trial, folder),
                      .samples = study.samples(trial)}};
  const ProcessEnd end =
      run_to_end(ran.outcome.command, study.environment, log, study.deadline_seconds);
  ran.signal = end.signal;
  ran.outcome.seconds = end.seconds;
  ran.outcome.failure = failure_of(study, end);
  if (ran.outcome.failure.empty()) read_what_is_left(folder, end, ran.outcome);
  if (ran.outcome.failure.empty()) fs::remove(log);
  fs::remove_all(folder);
  return ran;
}

// What is done, and how long the rest may take.
class Progress {
 public:
  explicit Progress(double estimate) : left_(estimate) {}

  void add(const Study& study, std::size_t number, const Outcome& outcome) {
    const double estimate = study.estimate(outcome.trial);
    done_ += estimate;
    left_ -= estimate;
    const std::string result = outcome.failure.empty()
                                   ? "step " + human_seconds(median_seconds(outcome))
                                   : "failed: " + outcome.failure;
    fmt::print("{:>3} of {}  {}  {}, {} in all; so far {}, to go about {}\n", number,
               study.trials.size(), id_of(outcome.trial), result, human_seconds(outcome.seconds),
               human_seconds(clock_.seconds()),
               human_seconds(std::max(0.0, left_) * clock_.seconds() / done_));
    std::fflush(stdout);
  }

 private:
  Stopwatch clock_;
  double done_ = 0, left_ = 0;
};

// The study may be called from another folder: "data.train=out/scratch/pipeline" is
// "data.train=pipeline".
std::string without_folders(const std::string& word) {
  const std::size_t slash = word.rfind('/');
  if (slash == std::string::npos) return word;
  const std::size_t equals = word.find('=');
  return (equals < slash ? word.substr(0, equals + 1) : "") + word.substr(slash + 1);
}

bool is_same_command(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const std::string& one, const std::string& other) {
                      return without_folders(one) == without_folders(other);
                    });
}

bool is_done(const Study& study, const Trial& trial, Outcome& outcome) {
  return has_outcome(study.out, trial, outcome) &&
         is_same_command(outcome.command, study.command(trial, run_folder(study))) &&
         (outcome.failure.empty() || !study.retry);
}

void tell_other_commits(const Study& study) {
  std::size_t others = 0;
  Outcome outcome;
  for (const Trial& trial : study.trials)
    if (is_done(study, trial, outcome) && outcome.commit != study.commit) ++others;
  if (others > 0)
    fmt::print("{} outcomes that are there are of another commit than {}, and are not run again\n",
               others, study.commit);
}

double estimate_of_rest(const Study& study) {
  double seconds = 0;
  Outcome ignored;
  for (const Trial& trial : study.trials)
    if (!is_done(study, trial, ignored) && study.obstacle(trial).empty())
      seconds += study.estimate(trial);
  return seconds;
}

}  // namespace

StudyLock::StudyLock(const std::string& out) {
  std::error_code failed;
  fs::create_directories(out, failed);
  if (failed) throw SystemError(out, "make the folder", failed.value());
  const std::string path = out + "/.lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw SystemError(path, "open", errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw ConfigError(
        fmt::format("{}: another report is being made in this folder; wait for it, "
                    "or choose another with --out",
                    out));
  }
}

StudyLock::~StudyLock() {
  ::close(descriptor_);
}

std::string file_stem(const Trial& trial) {
  std::string stem = id_of(trial);
  std::replace(stem.begin(), stem.end(), '/', '_');
  return stem;
}

bool has_outcome(const std::string& out, const Trial& trial, Outcome& outcome) {
  const std::string text = text_of(outcome_path(out, trial));
  if (text.empty()) return false;
  try {
    outcome = parse_outcome(text);
  } catch (const FileError&) {
    return false;
  }
  return outcome.trial == trial;
}

std::vector<Outcome> read_outcomes(const std::string& out, const std::vector<Trial>& trials) {
  std::vector<Outcome> outcomes;
  std::set<std::string> others;
  std::error_code none;  // no folder, no outcomes
  for (const fs::directory_entry& entry : fs::directory_iterator(out + "/raw", none))
    if (entry.path().extension() == ".json") others.insert(entry.path().string());
  for (const Trial& trial : trials) {
    Outcome outcome;
    if (!has_outcome(out, trial, outcome)) continue;
    others.erase(outcome_path(out, trial));
    outcomes.push_back(std::move(outcome));
  }
  for (const std::string& path : others)
    fmt::print(stderr, "laconic: {} is left out: not the outcome of a trial of this report\n",
               path);
  return outcomes;
}

StudyEnd run_study(const Study& study) {
  const BlockedSignals blocked;  // until the last lab is gone
  make_folders(study.out);
  StudyEnd end;
  tell_other_commits(study);
  Progress progress(estimate_of_rest(study));
  for (std::size_t i = 0; i < study.trials.size(); ++i) {
    if (end.signal = BlockedSignals::take(); end.signal != 0) break;
    const Trial& trial = study.trials[i];
    Outcome outcome;
    if (is_done(study, trial, outcome)) {
      end.outcomes.push_back(std::move(outcome));
      continue;
    }
    if (const std::string obstacle = study.obstacle(trial); !obstacle.empty()) {
      fmt::print("{:>3} of {}  {}  {}\n", i + 1, study.trials.size(), id_of(trial), obstacle);
      end.outcomes.push_back({.trial = trial, .failure = obstacle});
      continue;
    }
    Ran ran = run_trial(study, trial);
    if (end.signal = ran.signal; end.signal != 0) break;
    write_atomically(outcome_path(study.out, trial), to_json(ran.outcome));
    ++end.ran;
    progress.add(study, i + 1, ran.outcome);
    end.outcomes.push_back(std::move(ran.outcome));
  }
  return end;
}

}  // namespace laconic
