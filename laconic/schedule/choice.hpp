// schedule/choice.hpp — which order of work, and how many microbatches, by estimate.
//
// Candidates are data: whoever has costs times each and says whether it fits, and choose() takes
// one. Estimates are not exact to the last per cent, so those that are nearly as fast as the
// fastest count as equals, and the one that holds least is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

struct ScheduleCandidate {
  ScheduleKind kind = ScheduleKind::gpipe;
  int microbatches = 1;
  double seconds = 0;  // of a step
  double held = 0;     // at once, in any unit that all candidates share
  bool fits = true;    // in memory
};

// Kinds that can be chosen for stages that go round the ranks, so many on each.
std::vector<ScheduleKind> kinds_for_chunks(int chunks);

// Sizes to try for microbatches of `samples` samples: divisors, the largest first, none above
// `most`. Smaller ones than an eighth of the first are left out: products of matrices that small
// gain nothing any more, and each size takes time to measure.
std::vector<std::int64_t> microbatch_sizes(std::int64_t samples, std::int64_t most);

// What ranks of one machine compute in a step: the longest of them, and all together.
struct MachineWork {
  double longest = 0;
  double all = 0;
};
// Seconds of a step whose estimate is `makespan`, when ranks share processors on which so many can
// compute at once (0: each has its own): longer by what the processors need beyond the longest
// rank, so that never shorter than all their work, and waiting for messages still counts.
double shared_seconds(double makespan, const MachineWork& work, int at_once);

// The place of the one to take; none where none fits.
std::optional<std::size_t> choose(const std::vector<ScheduleCandidate>& candidates);

// "gpipe in 16 microbatches".
std::string to_text(const ScheduleCandidate& candidate);

}  // namespace laconic
