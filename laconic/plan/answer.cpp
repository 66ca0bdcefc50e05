#include "laconic/plan/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr double kLeastRate = 1e6, kMostRate = 1e11;  // of curves, in bits per second
constexpr int kRates = 21;
constexpr int kVariants = 48;  // of which most differ in microbatches

struct Share {
  double seconds;
  std::string what;
};

// The two largest parts, and memory where there is little left.
std::string reason_of(const StepTime& t, const StepModel::Patterns& patterns, const Fit& fit,
                      bool is_ring) {
  const auto over = [](const PatternCost& cost) {
    return cost.bottleneck.empty() ? std::string("latency") : cost.bottleneck;
  };
  std::vector<Share> shares = {
      {t.compute - t.codec, "computing"},
      {t.codec, "codecs and handling of messages"},
      {t.bubble, "bubbles of the pipeline"},
      {t.boundary, "activations over " + over(patterns.edge)},
      {t.grid, "the tensor grid over " + over(patterns.grid)},
      {t.rows, "rows of tables over " + over(patterns.direct)},
      {t.sum, "gradients over " + over(is_ring ? patterns.ring : patterns.direct)},
      {t.tied, "the shared table over " + over(patterns.tied)},
      {t.update, "update and agreement"}};
  std::ranges::stable_sort(shares,
                           [](const Share& a, const Share& b) { return a.seconds > b.seconds; });
  std::vector<std::string> parts;
  for (const Share& share : shares) {
    const double percent = t.seconds > 0 ? 100 * share.seconds / t.seconds : 0;
    if (parts.size() < 2 && percent >= 5)
      parts.push_back(fmt::format("{:.0f} % {}", percent, share.what));
  }
  if (fit.has > 0 && fit.needed > 0.9 * fit.has)
    parts.push_back(fmt::format("memory {:.0f} % of {}", 100 * fit.needed / fit.has, fit.where));
  return join(parts, ", ");
}

bool is_in_order(const std::vector<int>& seating) {
  for (std::size_t i = 0; i < seating.size(); ++i)
    if (seating[i] != static_cast<int>(i)) return false;
  return true;
}

PlanAnswer answer_of(const PlanSpace& space, StepModel& model, const PlanFound& found,
                     const AnswerOptions& options) {
  PlanAnswer plan{.candidate = found.candidate,
                  .config = config_of(space, found.candidate),
                  .seating = seating_of(space, arrangement_of(space, found.candidate)),
                  .seconds = found.seconds,
                  .simulated = {},
                  .unsimulated = {},
                  .parts = model.parts(found.candidate),
                  .fit = model.fit(found.candidate),
                  .loss = loss_of(space, found.candidate),
                  .is_proven = is_proven(space, found.candidate)};
  if (options.confirm) {
    PlanConfirmation found_out = options.confirm(plan.config, space.hosts, plan.seating);
    plan.simulated = found_out.seconds;
    plan.is_coarse = found_out.is_coarse;
    plan.unsimulated = std::move(found_out.why_not);
    if (plan.simulated) plan.seconds = *plan.simulated;
  }
  if (is_in_order(plan.seating)) plan.seating.clear();
  const Arrangement& a = arrangement_of(space, found.candidate);
  const bool is_ring = plan.config.dp_gradient.method == GradientMethod::codec &&
                       plan.config.dp_gradient.codec == "raw";
  plan.why = reason_of(plan.parts, model.patterns(a), plan.fit, is_ring);
  return plan;
}

// What formulas leave out, simulations see: a plan that cannot be simulated would come before all
// that can. It gets as much longer as the others do, in the median.
void level(std::vector<PlanAnswer>& plans) {
  std::vector<double> factors;
  for (const PlanAnswer& plan : plans)
    if (plan.simulated) factors.push_back(*plan.simulated / plan.parts.seconds);
  if (factors.empty()) return;
  std::ranges::sort(factors);
  for (PlanAnswer& plan : plans)
    if (!plan.simulated) plan.seconds = plan.parts.seconds * factors[factors.size() / 2];
}

bool differs_in_messages_alone(const PlanFound& a, const PlanFound& b) {
  return std::ranges::all_of(
      std::array{PlanDim::arrangement, PlanDim::precision, PlanDim::recompute, PlanDim::microbatch,
                 PlanDim::schedule},
      [&](PlanDim dim) { return a.candidate.at(dim) == b.candidate.at(dim); });
}

// Formulas and simulations may disagree about which of several policies is faster by a hundredth:
// the fastest that differ from a plan in messages alone are simulated, too, and which is told is
// decided then.
void add_variants(const PlanSpace& space, StepModel& model, std::vector<PlanFound>& plans) {
  const std::vector<PlanFound> found = plans;
  for (const PlanFound& plan :
       search_plans(space, model, {.plans = kVariants, .with_variants = true}).plans) {
    const auto is_same = [&](const PlanFound& other) {
      return differs_in_messages_alone(plan, other);
    };
    if (std::ranges::find(found, plan) == found.end() && std::ranges::any_of(found, is_same))
      plans.push_back(plan);
  }
}

void drop_variants(const PlanSpace& space, std::vector<PlanAnswer>& plans) {
  std::vector<PlanFound> told;
  std::erase_if(plans, [&](const PlanAnswer& plan) {
    const PlanFound found{plan.candidate, plan.seconds};
    if (is_variant(space, found, told)) return true;
    told.push_back(found);
    return false;
  });
}

void add_what_if(const PlanRequest& request, const std::string& change, const Hosts& hosts,
                 std::vector<WhatIf>& rows) {
  PlanRequest other = request;
  other.hosts = hosts;
  if (!check(other).empty()) return;
  const PlanSpace space = space_of(other);
  StepModel model(space);
  const SearchResult found = search_plans(space, model, {.plans = 1, .most_timed = 20'000});
  if (found.plans.empty()) return;
  rows.push_back({change, found.plans[0].seconds, describe_plan(space, found.plans[0].candidate)});
}

}  // namespace

std::string describe_plan(const PlanSpace& space, const Candidate& candidate) {
  const Arrangement& a = arrangement_of(space, candidate);
  const RunConfig config = config_of(space, candidate);
  std::vector<std::string> words = {
      a.ranks() == 1 ? "one rank" : to_text(Mesh{.pp = a.pp, .dp = a.dp, .tp = a.grid})};
  if (a.tp() > 1) words.emplace_back(name_of(a.method));
  if (a.outer == Axis::dp) words.emplace_back("replicas apart");
  if (a.pp > 1 && candidate.at(PlanDim::schedule) != kOpen)
    words.push_back(config.pipeline.schedule);
  if (candidate.at(PlanDim::microbatch) != kOpen)
    words.push_back(fmt::format("microbatch {}", config.microbatch_size()));
  if (config.model.recompute) words.emplace_back("recompute");
  if (candidate.at(PlanDim::precision) > 0)
    words.emplace_back(name_in(kRunPrecisionNames, config.run.precision));
  for (const PolicyClass of :
       {PolicyClass::pp, PolicyClass::dp, PolicyClass::rows, PolicyClass::tp}) {
    const int number = candidate.at(kPolicyDims[static_cast<std::size_t>(of)]);
    if (number == kOpen || !uses(space, candidate, of)) continue;
    words.push_back(
        fmt::format("{}: {}", name_in(kPolicyClassNames, of),
                    space.policies[static_cast<std::size_t>(of)][static_cast<std::size_t>(number)]
                        .choice.name));
  }
  return join(words, ", ");
}

PlanAnswers answer(const PlanRequest& request, const AnswerOptions& options) {
  const PlanSpace space = space_of(request);
  StepModel model(space);
  PlanAnswers answers;
  // A simulation of many ranks takes seconds.
  const int confirmed = has_many_ranks(space) ? options.top : options.confirmed;
  const int wanted = options.confirm ? std::max(options.top, confirmed) : options.top;
  answers.search = search_plans(space, model, {.plans = wanted});
  std::vector<PlanFound> found = answers.search.plans;
  if (options.confirm && !has_many_ranks(space)) add_variants(space, model, found);
  for (const PlanFound& plan : found)
    answers.plans.push_back(answer_of(space, model, plan, options));
  level(answers.plans);
  const double tokens =
      static_cast<double>(request.base.train.batch) * static_cast<double>(context_of(space.family));
  for (PlanAnswer& plan : answers.plans) plan.tokens_per_second = tokens / plan.seconds;
  std::ranges::stable_sort(answers.plans, {}, &PlanAnswer::seconds);
  drop_variants(space, answers.plans);
  answers.plans.resize(
      std::min<std::size_t>(answers.plans.size(), static_cast<std::size_t>(options.top)));
  answers.slowest_rate = slowest_link(request.hosts);
  // Searches and some hundred timings, which take minutes with many ranks.
  if (options.with_what_if || !has_many_ranks(space))
    answers.break_even = break_even_of(space, model, answers.search);
  for (BreakEven& row : answers.break_even)
    if (row.why_not.empty()) row.plan = describe_plan(space, row.candidate);
  if (options.with_curves) {
    for (int i = 0; i < kRates; ++i)
      answers.rates.push_back(
          kLeastRate * std::pow(kMostRate / kLeastRate, i / static_cast<double>(kRates - 1)));
    for (PlanAnswer& plan : answers.plans)
      for (const double rate : answers.rates)
        plan.at_rates.push_back(
            seconds_with_links(space, plan.candidate, rate / answers.slowest_rate));
  }
  if (!options.with_what_if) return answers;
  add_what_if(request, "links twice as fast", with_link_rates(request.hosts, 2), answers.what_if);
  add_what_if(request, "links ten times as fast", with_link_rates(request.hosts, 10),
              answers.what_if);
  for (std::size_t g = 0; g < request.hosts.groups.size(); ++g) {
    Hosts more = request.hosts;
    ++more.groups[g].hosts;
    add_what_if(request, fmt::format("one more host in {}", more.groups[g].name), more,
                answers.what_if);
    more.groups[g].hosts = 2 * request.hosts.groups[g].hosts;
    add_what_if(request, fmt::format("twice the hosts in {}", more.groups[g].name), more,
                answers.what_if);
  }
  return answers;
}

}  // namespace laconic
