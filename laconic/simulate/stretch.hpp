// simulate/stretch.hpp — which steps of a run are simulated, and how often each counts in the mean.
//
// Where all steps are alike one stands for all, or a few of them if one reaches into the next.
// Local updates have rounds, of which most steps are alike, too: a round is simulated without
// those that neither sum anything nor have anything under way beside them, and these once, by
// themselves. Where changes travel beside steps of the next round, a stretch begins with the end of
// the round before, which then counts less:
//
//   linear, overlap 2, of 6 steps:   [end 1 2 end] - [end] + 3 [inner]
//
// Where parts of the model are in different steps of their rounds, no step is like another: a whole
// round behind a whole one, less one round.
//
// Pure.
#pragma once

#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/policy/local_round.hpp"

namespace laconic {

struct Stretch {
  std::vector<LocalStep> steps;  // one after the other
  double times = 1;
};

// What a mean is made of.
struct Stretches {
  std::vector<Stretch> all;  // the first is what pictures show
  double counted() const;    // steps of all of them, each so many times
};

// `reaches_further`: a step of a run without local updates leaves something to the next.
Stretches stretches_of(const LocalSection& local, bool reaches_further);

}  // namespace laconic
