// policy/local_round.hpp — what a step of linear local updates does beside computing, as a pure
// function of its number.
//
//   warm-up: together in every step │ round 1: H steps │ round 2 │ ...
//
// The first step of rounds 1, 2, 4, 8, ... up to `refresh`, and then of every `refresh`-th, is
// taken together, too, and renews the second moment. Changes leave at the end of a round; they are
// taken at once, or before the update of step `overlap` of the next round, of its first step if
// that is taken together.
//
// With `spread` parts of the model (schedule/fragment.hpp) leave at different steps, each H steps
// after it left last, and are taken as many steps later; a step that is taken together takes all
// that is under way.
#pragma once

#include <cstdint>

#include "laconic/config/mesh_section.hpp"
#include "laconic/schedule/fragment.hpp"

namespace laconic {

struct LocalStep {
  bool is_together = false;    // gradients are summed, and the second moment renewed
  bool takes_changes = false;  // of the round before, if they are under way
  bool ends_round = false;     // changes leave after its update
  std::int64_t place = 0;      // in its round, counted from 0
  bool operator==(const LocalStep&) const = default;
};

// `round` is counted from 1.
inline bool renews_moment(std::int64_t round, std::int64_t refresh) {
  const bool is_power_of_two = (round & (round - 1)) == 0;
  return round % refresh == 0 || (round < refresh && is_power_of_two);
}

// Requires: check_local() has nothing to say; `step` is counted from 0.
inline LocalStep local_step(const LocalSection& local, std::int64_t step) {
  if (step < local.warmup) return {.is_together = true};
  const std::int64_t since = step - local.warmup, place = since % local.steps;
  LocalStep one{.place = place};
  one.is_together = place == 0 && renews_moment(since / local.steps + 1, local.refresh);
  one.takes_changes = one.is_together || place + 1 == local.overlap;
  one.ends_round = place + 1 == local.steps;
  return one;
}

// What happens to one fragment, of which there is but one where nothing is spread. Its first round
// may be shorter.
struct FragmentStep {
  bool comes_before_update = false;
  bool leaves_after_update = false;
  bool operator==(const FragmentStep&) const = default;
};

// Requires: `fragments` are those of `local` (fragments_of).
inline FragmentStep fragment_step(const LocalSection& local, const FragmentSpec& fragments,
                                  std::int64_t fragment, std::int64_t step) {
  const std::int64_t done = step - local.warmup + 1;  // steps of rounds, this one included
  return {.comes_before_update = local_step(local, step).is_together ||
                                 leaves_after(fragments, fragment, done - local.overlap),
          .leaves_after_update = leaves_after(fragments, fragment, done)};
}

}  // namespace laconic
