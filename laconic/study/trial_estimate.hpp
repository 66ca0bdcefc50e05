// study/trial_estimate.hpp — how long a trial may take, roughly, before anything has run.
//
// Computed from the arithmetic and the bytes of a step, for two idle cores. `--list` shows it, and
// it tells long steps from short ones; no page shows it.
#pragma once

#include <vector>

#include "laconic/study/study_file.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

// Guesses the seconds of one step, whatever the trial has for `warmup` and `steps`.
double estimated_step_seconds(const Trial& trial, const StudyModel& model);

// Guesses the seconds of the whole process, and of several one after the other.
double estimated_seconds(const Trial& trial, const std::vector<StudyModel>& models);
double estimated_seconds(const std::vector<Trial>& trials, const std::vector<StudyModel>& models);

}  // namespace laconic
