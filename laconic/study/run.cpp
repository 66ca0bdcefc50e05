#include "laconic/study/run.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <list>
#include <optional>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/lab/blocked_signals.hpp"
#include "laconic/study/run_files.hpp"
#include "laconic/study/trial_process.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

std::string outcome_path(const std::string& out, const Trial& trial) {
  return fmt::format("{}/raw/{}.json", out, file_stem(trial));
}
std::string log_path(const std::string& out, const Trial& trial) {
  return fmt::format("{}/logs/{}.txt", out, file_stem(trial));
}

std::string run_folder(const Study& study, const Trial& trial) {
  if (study.keeps_runs) return fmt::format("{}/trials/{}", study.out, file_stem(trial));
  return study.out + "/scratch/run";
}

std::string text_of(const std::string& path) {
  return fs::is_regular_file(path) ? std::string(MappedFile(path).text()) : std::string();
}

void make_folders(const std::string& out) {
  for (const char* name : {"raw", "logs", "scratch"}) fs::create_directories(fs::path(out) / name);
  // What is worth keeping is committed with the pages; this is not.
  write_atomically(out + "/.gitignore", "/scratch/\n/logs/\n/trials/\n/.lock\n");
}

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

// A trial in progress.
struct Running {
  std::size_t number = 0;  // among the trials, from 0
  Outcome outcome;
  TrialProcess process;
};

Running start_trial(const Study& study, std::size_t number) {
  const Trial& trial = study.trials[number];
  const std::string folder = run_folder(study, trial), log = log_path(study.out, trial);
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::remove(log);
  Outcome outcome{.trial = trial,
                  .commit = study.commit,
                  .machine = study.machine,
                  .began = utc_now(),
                  .command = study.command(trial, folder),
                  .samples = study.samples(trial)};
  if (study.about) outcome.model_about = study.about(trial);
  if (study.keeps_runs)
    write_atomically(folder + "/command.txt", shell_line(outcome.command) + "\n");
  TrialProcess process(outcome.command, study.environment, log, study.deadline_seconds);
  return {number, std::move(outcome), std::move(process)};
}

// Its signal; 0: none ended it, and its outcome is whole.
int finish_trial(const Study& study, Running& running) {
  Outcome& outcome = running.outcome;
  const std::string folder = run_folder(study, outcome.trial);
  const ProcessEnd end = running.process.end();
  outcome.seconds = end.seconds;
  outcome.failure = failure_of(study, end);
  if (outcome.failure.empty()) read_what_is_left(folder, end, outcome);
  if (outcome.failure.empty()) fs::remove(log_path(study.out, outcome.trial));
  if (!study.keeps_runs) fs::remove_all(folder);
  return end.signal;
}

// What is done, and how long the rest may take.
class Progress {
 public:
  explicit Progress(double estimate) : left_(estimate) {}

  void add(const Study& study, std::size_t number, const Outcome& outcome) {
    const double estimate = study.estimate(outcome.trial);
    done_ += estimate;
    left_ -= estimate;
    const std::string result =
        outcome.failure.empty()
            ? "step " + human_seconds(of_a_step(outcome, &StepRow::seconds).value_or(0))
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
         is_same_command(outcome.command, study.command(trial, run_folder(study, trial))) &&
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

namespace {

// Starts trials while there is room, takes in those that have ended, and ends all when a signal
// comes.
class Runner {
 public:
  explicit Runner(const Study& study)
      : study_(study), progress_(estimate_of_rest(study)), outcomes_(study.trials.size()) {}

  StudyEnd run() {
    while (end_.signal == 0 && (next_ < study_.trials.size() || !running_.empty())) {
      look_at_signals();
      while (end_.signal == 0 && next_ < study_.trials.size() &&
             running_.size() < static_cast<std::size_t>(std::max(1, study_.jobs)))
        begin(next_++);
      take_in();
    }
    while (!running_.empty()) take_in();
    for (std::optional<Outcome>& outcome : outcomes_)
      if (outcome) end_.outcomes.push_back(std::move(*outcome));
    return std::move(end_);
  }

 private:
  void look_at_signals() {
    const int signal = BlockedSignals::take();
    if (signal == 0) return;
    end_.signal = signal;
    for (Running& running : running_) running.process.interrupt(signal);
  }

  void begin(std::size_t number) {
    const Trial& trial = study_.trials[number];
    Outcome outcome;
    if (is_done(study_, trial, outcome)) {
      outcomes_[number] = std::move(outcome);
    } else if (const std::string obstacle = study_.obstacle(trial); !obstacle.empty()) {
      fmt::print("{:>3} of {}  {}  {}\n", number + 1, study_.trials.size(), id_of(trial), obstacle);
      outcomes_[number] = Outcome{.trial = trial, .failure = obstacle};
    } else {
      running_.push_back(start_trial(study_, number));
    }
  }

  void take_in() {
    if (running_.empty()) return;
    running_.front().process.wait();
    for (auto running = running_.begin(); running != running_.end();) {
      if (!running->process.has_ended()) {
        ++running;
        continue;
      }
      finish(*running);
      running = running_.erase(running);
    }
  }

  void finish(Running& running) {
    if (finish_trial(study_, running) != 0) return;  // it has no outcome
    write_atomically(outcome_path(study_.out, running.outcome.trial), to_json(running.outcome));
    ++end_.ran;
    progress_.add(study_, running.number + 1, running.outcome);
    outcomes_[running.number] = std::move(running.outcome);
  }

  const Study& study_;
  Progress progress_;
  std::vector<std::optional<Outcome>> outcomes_;
  std::list<Running> running_;
  std::size_t next_ = 0;
  StudyEnd end_;
};

}  // namespace

StudyEnd run_study(const Study& study) {
  const BlockedSignals blocked;  // until the last lab is gone
  make_folders(study.out);
  tell_other_commits(study);
  return Runner(study).run();
}

}  // namespace laconic
