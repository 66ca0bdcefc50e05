#include "laconic/plan/answer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "laconic/hosts/known_device.hpp"
#include "laconic/plan/confirm.hpp"
#include "laconic/plan/test_request.hpp"

namespace laconic {
namespace {

TEST(PlanAnswer, BreakEvenIsWhereBothAreAsFast) {
  PlanRequest request = planned_request("cloud-1gbit");
  request.hosts.groups[0].device.handled_bytes_per_second = 0;  // or encoding pays at any rate
  request.hosts.groups[0].device.codecs = {{"quantise", 1e7, 1e7}};
  request.hosts.groups[0].hosts = 2;
  const PlanAnswers answers = answer(request, {.top = 40, .with_what_if = false});
  const auto row = std::ranges::find_if(answers.break_even, [](const BreakEven& b) {
    return b.of == PolicyClass::dp && b.policy == "4 bits";
  });
  ASSERT_NE(row, answers.break_even.end());
  ASSERT_GT(row->bits_per_second, 1e6);
  ASSERT_LT(row->bits_per_second, 1e12);
  const PlanSpace space = space_of(request);
  const auto replicas = std::ranges::find_if(answers.search.plans, [&](const PlanFound& p) {
    return arrangement_of(space, p.candidate).dp > 1;
  });
  PlanSpace there = space;
  there.hosts = with_link_rates(space.hosts, row->bits_per_second / answers.slowest_rate);
  StepModel model(there);
  Candidate exact = replicas->candidate, encoded = exact;
  exact.at(PlanDim::dp_policy) = 0;
  encoded.at(PlanDim::dp_policy) = 1;
  EXPECT_NEAR(model.seconds(encoded) / model.seconds(exact), 1, 1e-6);
}

// Also of classes that no found plan has, and of policies that cannot be told beside others; what
// cannot be at all has its reason.
TEST(PlanAnswer, EveryPolicyHasARateOrAReason) {
  const auto rows_of = [](const PlanRequest& request) {
    const PlanAnswers answers = answer(request, {.top = 3, .with_what_if = false});
    const PlanSpace space = space_of(request);
    StepModel model(space);
    for (const BreakEven& row : answers.break_even) {
      if (!row.why_not.empty()) continue;
      const auto& policies = space.policies[static_cast<std::size_t>(row.of)];
      const int number = row.candidate.at(kPolicyDims[static_cast<std::size_t>(row.of)]);
      EXPECT_EQ(policies[static_cast<std::size_t>(number)].choice.name, row.policy);
      EXPECT_EQ(to_text(model.problems(row.candidate)), "") << row.plan;
      EXPECT_TRUE(model.fit(row.candidate).fits) << row.plan;
      EXPECT_EQ(model.seconds(row.candidate), row.seconds);
    }
    std::size_t wanted = space.refused.size();
    for (const auto& policies : space.policies) wanted += policies.size() - 1;
    EXPECT_EQ(answers.break_even.size(), wanted);
    return answers.break_even;
  };
  const auto with_reason = [](const std::vector<BreakEven>& rows) {
    std::string text;
    for (const BreakEven& row : rows)
      if (!row.why_not.empty())
        text +=
            fmt::format("{} {}: {}\n", name_in(kPolicyClassNames, row.of), row.policy, row.why_not);
    return text;
  };
  PlanRequest request = rows_request(RowsOptimiser::same);
  for (const PolicyChoice& policy : few_policies())
    if (policy.of == PolicyClass::pp || policy.of == PolicyClass::tp)
      request.policies.push_back(policy);
  EXPECT_EQ(with_reason(rows_of(request)),
            "dp linear 4: linear shares the second moment of adamw, and optimiser.kind is \"sgd\": "
            "use \"diloco\"\n");
  // One host alone sends nothing.
  request.hosts.groups[0].hosts = 1;
  const std::string reasons = with_reason(rows_of(request));
  EXPECT_NE(reasons.find("pp ac-sgd 4/6: no mesh of these hosts has stages"), std::string::npos)
      << reasons;
  EXPECT_NE(reasons.find("rows server: no mesh of these hosts has replicas"), std::string::npos)
      << reasons;
}

TEST(PlanAnswer, WhatCannotBeSimulatedGetsAsMuchLongerAsTheOthers) {
  PlanRequest request = planned_request("home-fibre");
  request.hosts.groups[0].hosts = 2;
  const ConfirmPlan confirm = [](const RunConfig& config, const Hosts&, const std::vector<int>&) {
    return config.local.steps > 0 ? PlanConfirmation{.why_not = "too many"}
                                  : PlanConfirmation{.seconds = 7.0};
  };
  const PlanAnswers answers =
      answer(request, {.top = 20, .confirm = confirm, .with_what_if = false});
  std::vector<double> factors;
  for (const PlanAnswer& plan : answers.plans)
    if (plan.simulated) factors.push_back(7 / plan.parts.seconds);
  std::ranges::sort(factors);
  ASSERT_GE(factors.size(), 2U);
  ASSERT_LT(factors.size(), answers.plans.size()) << "no plan has local updates";
  std::optional<double> median;  // of all that were simulated, those that are not told among them
  for (const PlanAnswer& plan : answers.plans) {
    EXPECT_EQ(plan.unsimulated, plan.simulated ? "" : "too many");
    if (plan.simulated) {
      EXPECT_EQ(plan.seconds, 7);
      continue;
    }
    if (!median) median = plan.seconds / plan.parts.seconds;
    EXPECT_DOUBLE_EQ(plan.seconds, plan.parts.seconds * *median);
    EXPECT_GE(*median, factors.front() * 0.1);
    EXPECT_LE(*median, factors.back() * 10);
  }
}

// Formulas may find another policy faster, by a hundredth: of plans that differ in that alone the
// one is told that takes less time by simulation.
TEST(PlanAnswer, OfVariantsTheOneIsToldThatSimulationsFindFaster) {
  PlanRequest request = planned_request("home-fibre");
  request.hosts.groups[0].hosts = 2;
  request.policies = parse_policies(R"(
[[policy]]
name = "shorter"
class = "dp"
set = { dp.gradient.codec = "quantise:bits=4" }
scratch = { loss = 0.1, seeds = 1 }
source = "a test"

[[policy]]
name = "longer"
class = "dp"
set = { dp.gradient.codec = "quantise:bits=5" }
scratch = { loss = 0.2, seeds = 1 }
source = "a test"
)",
                                    "losses");
  const auto is_longer = [](const RunConfig& config) {
    return config.mesh.dp > 1 && config.dp_gradient.codec == "quantise:bits=5";
  };
  const ConfirmPlan confirm = [&](const RunConfig& config, const Hosts&, const std::vector<int>&) {
    return PlanConfirmation{.seconds = is_longer(config) ? 1.0 : 2.0};
  };
  const PlanAnswers answers = answer(request, {.confirm = confirm, .with_what_if = false});
  const PlanSpace space = space_of(request);
  for (const PlanFound& plan : answers.search.plans)
    ASSERT_FALSE(is_longer(config_of(space, plan.candidate))) << "it is no variant";
  ASSERT_FALSE(answers.plans.empty());
  EXPECT_TRUE(is_longer(answers.plans[0].config));
  EXPECT_EQ(answers.plans[0].seconds, 1);
}

}  // namespace
}  // namespace laconic
