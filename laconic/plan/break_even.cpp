#include "laconic/plan/break_even.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr std::size_t kManyRanks = 32;
constexpr double kFarFactor = 1e6;          // how far links are slowed down or sped up
constexpr std::int64_t kMostTimed = 2'000;  // of a search for a plan that has a policy

// Where a policy stops being faster than exact messages: bisection between the two last of a row of
// rates that have it on different sides.
double break_even_factor(const std::function<bool(double)>& is_faster) {
  constexpr int kSteps = 24;
  double below = 0, above = 0;
  const auto factor_at = [](int i) { return std::pow(kFarFactor, 2.0 * i / kSteps - 1); };
  for (int i = 0; i <= kSteps; ++i)
    if (is_faster(factor_at(i))) {
      below = factor_at(i);
      above = i == kSteps ? std::numeric_limits<double>::infinity() : factor_at(i + 1);
    }
  if (below == 0 || std::isinf(above)) return below == 0 ? 0 : above;
  for (int i = 0; i < 30; ++i) {
    const double middle = std::sqrt(below * above);
    (is_faster(middle) ? below : above) = middle;
  }
  return below;
}

const char* messages_of(PolicyClass of) {
  switch (of) {
    case PolicyClass::pp: return "stages";
    case PolicyClass::dp: return "replicas";
    case PolicyClass::tp: return "a tensor grid";
    case PolicyClass::rows: return "replicas with tables that travel by rows";
  }
  return "";
}

std::string text_of(const Problems& problems) {
  std::vector<std::string> reasons;
  for (const Problem& problem : problems) reasons.push_back(problem.what);
  return join(reasons, "; ");
}

class BreakEvens {
 public:
  BreakEvens(const PlanSpace& space, StepModel& model, const SearchResult& found)
      : space_(space), model_(model), found_(found) {}

  BreakEven of_policy(PolicyClass of, int policy) {
    const auto& choice =
        space_.policies[static_cast<std::size_t>(of)][static_cast<std::size_t>(policy)].choice;
    BreakEven row{.of = of, .policy = choice.name};
    const std::optional<Candidate> plan = plan_with(of, policy);
    if (!plan) {
      row.why_not = why_not(of, policy);
      return row;
    }
    const Candidate exact = with(*plan, of, 0);
    const auto gain = [&](double factor) {
      return exact_seconds(exact, factor) / seconds_with_links(space_, *plan, factor);
    };
    row.candidate = *plan;
    row.seconds = model_.seconds(*plan);
    row.gain = gain(1);
    row.bits_per_second =
        break_even_factor([&](double f) { return gain(f) > 1; }) * slowest_link(space_.hosts);
    return row;
  }

 private:
  static Candidate with(Candidate candidate, PolicyClass of, int policy) {
    candidate.at(kPolicyDims[static_cast<std::size_t>(of)]) = policy;
    return candidate;
  }

  // With exact messages of all other classes.
  static Candidate alone(Candidate candidate, PolicyClass of, int policy) {
    for (const PlanDim dim : kPolicyDims) candidate.at(dim) = 0;
    return with(candidate, of, policy);
  }

  bool can_be(const Candidate& candidate) {
    if (candidate.at(PlanDim::rows_policy) > 0) {
      const auto& rows =
          space_.row_options[static_cast<std::size_t>(candidate.at(PlanDim::arrangement))];
      if (std::ranges::find(rows, candidate.at(PlanDim::rows_policy)) == rows.end()) return false;
    }
    return model_.problems(candidate).empty() && model_.fit(candidate).fits;
  }

  std::optional<Candidate> plan_with(PolicyClass of, int policy) {
    for (const PlanFound& plan : found_.plans)
      if (uses(space_, plan.candidate, of))
        if (const Candidate one = with(plan.candidate, of, policy); can_be(one)) return one;
    const SearchResult& best = best_of(of);
    if (best.plans.empty()) return std::nullopt;
    if (const Candidate one = with(best.plans[0].candidate, of, policy); can_be(one)) return one;
    if (has_many_ranks(space_)) {
      const Candidate one = alone(best.plans[0].candidate, of, policy);
      return can_be(one) ? std::optional(one) : std::nullopt;
    }
    const SearchResult found = search(of, policy);
    if (found.plans.empty()) return std::nullopt;
    return found.plans[0].candidate;
  }

  SearchResult search(PolicyClass of, int policy) {
    const PlanDim dim = kPolicyDims[static_cast<std::size_t>(of)];
    return search_plans(
        space_, model_,
        {.plans = 1, .most_timed = kMostTimed, .admits = [&, dim](const Candidate& candidate) {
           const int chosen = candidate.at(dim);
           return uses(space_, candidate, of) &&
                  (policy == kOpen || chosen == kOpen || chosen == policy);
         }});
  }

  // Of all plans that have such messages, whatever their policy.
  const SearchResult& best_of(PolicyClass of) {
    std::optional<SearchResult>& best = best_[static_cast<std::size_t>(of)];
    if (!best) best = search(of, kOpen);
    return *best;
  }

  std::string why_not(PolicyClass of, int policy) {
    const bool is_used = std::ranges::any_of(options(space_, {}), [&](int arrangement) {
      Candidate candidate;
      candidate.at(PlanDim::arrangement) = arrangement;
      return uses(space_, candidate, of);
    });
    if (!is_used) return fmt::format("no mesh of these hosts has {}", messages_of(of));
    const SearchResult& best = best_of(of);
    if (!best.plans.empty()) {
      const Candidate one = alone(best.plans[0].candidate, of, policy);
      const Problems problems = model_.problems(one);
      if (!problems.empty()) return text_of(problems);
      const Fit fit = model_.fit(one);
      if (!fit.fits)
        return fmt::format("{} are missing on {}", human_bytes(fit.needed - fit.has), fit.where);
    } else if (best.first_refused) {
      return text_of(model_.problems(*best.first_refused));
    } else if (best.nearest) {
      return fmt::format("no plan with {} fits: at least {} are missing on {}", messages_of(of),
                         human_bytes(best.nearest->missing()), best.nearest->fit.where);
    }
    return fmt::format("no plan that has {} and can run was found", messages_of(of));
  }

  double exact_seconds(const Candidate& exact, double factor) {
    const auto [known, is_new] = exact_[exact].try_emplace(factor);
    if (is_new) known->second = seconds_with_links(space_, exact, factor);
    return known->second;
  }

  const PlanSpace& space_;
  StepModel& model_;
  const SearchResult& found_;
  std::array<std::optional<SearchResult>, kPolicyClasses> best_;
  std::map<Candidate, std::map<double, double>> exact_;
};

}  // namespace

bool has_many_ranks(const PlanSpace& space) {
  return space.seats.size() > kManyRanks;
}

Hosts with_link_rates(Hosts hosts, double factor) {
  for (HostGroup& group : hosts.groups) {
    group.card.bits_per_second *= factor;
    if (group.uplink) group.uplink->bits_per_second *= factor;
  }
  return hosts;
}

double slowest_link(const Hosts& hosts) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const HostGroup& group : hosts.groups) {
    slowest = std::min(slowest, group.card.bits_per_second);
    if (group.uplink) slowest = std::min(slowest, group.uplink->bits_per_second);
  }
  return slowest;
}

double seconds_with_links(const PlanSpace& space, const Candidate& candidate, double factor) {
  PlanSpace other = space;
  other.hosts = with_link_rates(space.hosts, factor);
  return StepModel(other).seconds(candidate);
}

std::vector<BreakEven> break_even_of(const PlanSpace& space, StepModel& model,
                                     const SearchResult& found) {
  std::vector<BreakEven> rows;
  if (found.plans.empty()) return rows;
  BreakEvens of(space, model, found);
  for (const Named<PolicyClass>& one : kPolicyClassNames) {
    const auto count = static_cast<int>(space.policies[static_cast<std::size_t>(one.value)].size());
    for (int policy = 1; policy < count; ++policy) rows.push_back(of.of_policy(one.value, policy));
  }
  for (const RefusedPolicy& refused : space.refused)
    rows.push_back(
        {.of = refused.choice.of, .policy = refused.choice.name, .why_not = refused.why});
  return rows;
}

}  // namespace laconic
