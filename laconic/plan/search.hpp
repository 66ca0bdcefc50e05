// plan/search.hpp — the fastest plans that fit, without trying all of them.
//
// Best first: of all candidates with open dims the one with the smallest lower bound is opened
// next; a whole one that comes up is timed, and one whose time comes up before all bounds is the
// next best. So plans come in the order of their times, equals in the order of their numbers, as if
// all had been timed and sorted: bounds are never above what they bound.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "laconic/plan/candidate.hpp"
#include "laconic/plan/step_model.hpp"

namespace laconic {

struct PlanFound {
  Candidate candidate;
  double seconds = 0;  // of a step, as the search has timed it
  bool operator==(const PlanFound&) const = default;
};

// What is too large: one plan, or whatever a group of plans with open dims needs at least.
struct Shortage {
  Candidate candidate;
  Fit fit;
  double missing() const { return fit.needed - fit.has; }
};

struct SearchLimits {
  int plans = 10;
  // Plans that differ from one that was found in nothing but messages, microbatches, recomputation
  // or precision, and are neither faster nor lose less, are not told.
  bool with_variants = false;
  std::int64_t most_timed = 200'000;  // then what has been found is all
  // Whether a candidate is asked for, open dims or not; empty: all are.
  std::function<bool(const Candidate&)> admits = {};
};

struct SearchResult {
  std::vector<PlanFound> plans;  // the fastest first
  std::int64_t opened = 0;       // candidates with open dims
  std::int64_t timed = 0;        // whole ones
  std::int64_t too_large = 0;    // whole ones that were not timed, and groups that were not opened
  std::optional<Shortage> nearest;  // of these, what misses least
  std::int64_t refused = 0;         // the same, but the configuration's check refuses them
  std::optional<Candidate> first_refused;
  bool is_complete = true;  // false: most_timed was reached
};

SearchResult search_plans(const PlanSpace& space, StepModel& model, const SearchLimits& limits);

// The same by timing every candidate, for tests.
SearchResult try_all_plans(const PlanSpace& space, StepModel& model, const SearchLimits& limits);

// Whether `plan` is told beside those that are faster.
bool is_variant(const PlanSpace& space, const PlanFound& plan, const std::vector<PlanFound>& told);

}  // namespace laconic
