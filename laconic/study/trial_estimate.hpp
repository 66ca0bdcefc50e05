// study/trial_estimate.hpp — how long a trial may take, roughly, before anything has run.
//
// From what a step computes and sends, on two cores that do nothing else: for people who wonder how
// long it will take, and to tell long steps from short ones. No page shows any of it.
#pragma once

#include <vector>

#include "laconic/study/trial.hpp"

namespace laconic {

// Of one step; whatever the trial has for `warmup` and `steps`.
double estimated_step_seconds(const Trial& trial);

// Of the whole process, and of all of them one after the other.
double estimated_seconds(const Trial& trial);
double estimated_seconds(const std::vector<Trial>& trials);

}  // namespace laconic
