// study/run.hpp — runs the trials of a study that have no outcome yet, one after the other or,
// where nothing is timed, several at once.
//
//   OUT/raw/ID.json    the outcome of a trial, written when it has ended
//   OUT/logs/ID.txt    what a trial printed, if it failed
//   OUT/scratch/       datasets, and the run in progress; of no use afterwards
//   OUT/trials/ID/     the folder of a run, where they are kept: its command, configuration and log
//
// A trial is done when its file holds that very trial and its command, folders aside: one whose
// settings have changed is run again; one of another commit is not, and that is said. What fails is
// an outcome too. SIGINT, SIGTERM or SIGHUP ends the trial in progress, lab included, and leaves no
// outcome of it: the next call begins with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/machine/environment.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

// One study in a folder at a time. Throws ConfigError when there is another, SystemError when the
// folder cannot be made.
class StudyLock {
 public:
  explicit StudyLock(const std::string& out);
  ~StudyLock();
  StudyLock(const StudyLock&) = delete;
  StudyLock& operator=(const StudyLock&) = delete;

 private:
  int descriptor_ = -1;
};

struct Study {
  std::string out;
  std::vector<Trial> trials;
  Environment environment;  // of every trial
  std::string commit, machine;
  double deadline_seconds = 1800;  // of one trial
  bool retry = false;              // those that have failed, too
  int jobs = 1;                    // trials at once
  bool keeps_runs = false;         // in OUT/trials

  // The words of a trial that leaves its files in `folder` (study/run_files.hpp).
  std::function<std::vector<std::string>(const Trial& trial, const std::string& folder)> command;
  // Samples in its dataset.
  std::function<double(const Trial& trial)> samples;
  // Why it cannot be run here; empty: it can.
  std::function<std::string(const Trial& trial)> obstacle;
  std::function<double(const Trial& trial)> estimate;  // seconds
  // What its model is, for pages; may be empty.
  std::function<std::string(const Trial& trial)> about = {};
};

struct StudyEnd {
  // In the order of the trials; those that could not be run here say so, and have no file.
  std::vector<Outcome> outcomes;
  int signal = 0;       // that ended it; 0: it is complete
  std::size_t ran = 0;  // trials, this time
};

// "bandwidth/100mbit/fp32/1" is bandwidth_100mbit_fp32_1.
std::string file_stem(const Trial& trial);

// The outcome in the file of a trial, if it is the outcome of that very trial. A file that is
// damaged counts as none.
bool has_outcome(const std::string& out, const Trial& trial, Outcome& outcome);

// Says on standard output how it goes. Requires: the caller holds the lock of the folder, no other
// thread runs. Throws SystemError when the folder cannot be written to.
StudyEnd run_study(const Study& study);

}  // namespace laconic
