#include "laconic/plan/search.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

namespace laconic {

namespace {

// Smaller comes first: by time, then those that are not timed yet (their best may be as fast), then
// by number.
struct Node {
  double seconds = 0;  // a bound, unless it is timed
  bool is_timed = false;
  Candidate candidate;
  auto key() const { return std::tie(seconds, is_timed, candidate); }
  bool operator>(const Node& other) const { return key() > other.key(); }
};

// Whether a run can be.
class Trial {
 public:
  Trial(StepModel& model, SearchResult& result) : model_(model), result_(result) {}
  // Asked of candidates that would be told: most never come so far.
  bool passes_check(const Candidate& candidate) {
    if (model_.problems(candidate).empty()) return true;
    ++result_.refused;
    if (!result_.first_refused) result_.first_refused = candidate;
    return false;
  }
  // Asked before a candidate is timed, which takes longer.
  bool fits(const Candidate& candidate) { return note(candidate, model_.fit(candidate)); }
  bool may_fit(const Candidate& candidate) { return note(candidate, model_.least_fit(candidate)); }

 private:
  bool note(const Candidate& candidate, const Fit& fit) {
    if (fit.fits) return true;
    ++result_.too_large;
    const Shortage shortage{candidate, fit};
    if (!result_.nearest || shortage.missing() < result_.nearest->missing())
      result_.nearest = shortage;
    return false;
  }

  StepModel& model_;
  SearchResult& result_;
};

void tell(const PlanSpace& space, const SearchLimits& limits, const PlanFound& plan,
          SearchResult& result) {
  if (limits.with_variants || !is_variant(space, plan, result.plans)) result.plans.push_back(plan);
}

}  // namespace

bool is_variant(const PlanSpace& space, const PlanFound& plan, const std::vector<PlanFound>& told) {
  const auto same = [&](const Candidate& a, const Candidate& b, PlanDim dim) {
    return a.at(dim) == b.at(dim);
  };
  return std::ranges::any_of(told, [&](const PlanFound& other) {
    return same(plan.candidate, other.candidate, PlanDim::arrangement) &&
           same(plan.candidate, other.candidate, PlanDim::schedule) &&
           loss_of(space, plan.candidate).loss >= loss_of(space, other.candidate).loss &&
           is_proven(space, plan.candidate) <= is_proven(space, other.candidate);
  });
}

SearchResult search_plans(const PlanSpace& space, StepModel& model, const SearchLimits& limits) {
  SearchResult result;
  Trial trial(model, result);
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open;
  open.push({});
  while (!open.empty() && result.plans.size() < static_cast<std::size_t>(limits.plans)) {
    if (result.timed >= limits.most_timed) {
      result.is_complete = false;
      break;
    }
    const Node node = open.top();
    open.pop();
    if (node.is_timed) {
      if (!trial.passes_check(node.candidate)) continue;
      tell(space, limits, {node.candidate, node.seconds}, result);
      continue;
    }
    const std::size_t depth = depth_of(node.candidate);
    if (depth == kPlanDims) {  // it could be the next best
      if (!trial.fits(node.candidate)) continue;
      ++result.timed;
      open.push({model.seconds(node.candidate), true, node.candidate});
      continue;
    }
    ++result.opened;
    for (const int option : options(space, node.candidate)) {
      Node next{.candidate = node.candidate};
      next.candidate.choice[depth] = option;
      if (limits.admits && !limits.admits(next.candidate)) continue;
      if (!trial.may_fit(next.candidate)) continue;
      next.seconds = std::max(node.seconds, model.lower_bound(next.candidate));
      open.push(next);
    }
  }
  return result;
}

SearchResult try_all_plans(const PlanSpace& space, StepModel& model, const SearchLimits& limits) {
  SearchResult result;
  Trial trial(model, result);
  std::vector<Node> all;
  for (const Candidate& candidate : candidates(space)) {
    if (limits.admits && !limits.admits(candidate)) continue;
    ++result.timed;
    if (trial.passes_check(candidate) && trial.fits(candidate))
      all.push_back({model.seconds(candidate), true, candidate});
  }
  std::ranges::sort(all, [](const Node& a, const Node& b) { return a.key() < b.key(); });
  for (const Node& node : all) {
    if (result.plans.size() == static_cast<std::size_t>(limits.plans)) break;
    tell(space, limits, {node.candidate, node.seconds}, result);
  }
  return result;
}

}  // namespace laconic
