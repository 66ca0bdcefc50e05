#include "laconic/plan/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/config/read.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/hosts/known_device.hpp"
#include "laconic/plan/answer.hpp"
#include "laconic/plan/confirm.hpp"
#include "laconic/plan/test_request.hpp"

namespace laconic {
namespace {

// Several ranks on a host, two sites, and a lab; with --all larger ones, too.
std::vector<PlanRequest> small_requests() {
  std::vector<PlanRequest> requests = {planned_request("lab"), planned_request("two-sites")};
  PlanRequest& shared = requests.emplace_back(planned_request("cloud-1gbit"));
  shared.hosts.groups[0].hosts = 1;
  shared.hosts.groups[0].ranks_per_host = 2;
  shared.hosts.groups[0].card.full_duplex = false;
  requests[0].hosts.groups[0].hosts = 3;
  PlanRequest& late = requests.emplace_back(planned_request("two-sites"));
  late.policies = late_policies();
  late.loss_budget = 100;
  late.with_unproven = true;
  for (PlanRequest& request : requests) request.base.train.batch = 2;
  const bool is_large = is_thorough();
  if (is_large) {
    requests[0].hosts.groups[0].hosts = 4;
    requests[2].hosts.groups[0].hosts = 2;
    for (PlanRequest& request : requests) {
      request.base.train.batch = 8;
      request.base.model.layers = 4;
      request.policies = read_policies(plan_presets() + "/plan/losses.toml");
    }
    requests.push_back(planned_request("campus"));
    requests.push_back(planned_request("home-fibre"));
  }
  for (const RowsOptimiser optimiser : {RowsOptimiser::same, RowsOptimiser::lazy_adam}) {
    PlanRequest& rows = requests.emplace_back(rows_request(optimiser));
    if (!is_large && optimiser == RowsOptimiser::lazy_adam)
      std::erase_if(rows.policies, [](const PolicyChoice& p) {
        return p.name != "alltoall" && p.name != "server, 8 bits" &&
               p.name != "alltoall, 4 bits, block by block";
      });
  }
  return requests;
}

TEST(PlanSearch, FindsWhatTryingAllFinds) {
  for (const PlanRequest& request : small_requests()) {
    const PlanSpace space = space_of(request);
    StepModel model(space);
    for (const bool with_variants : {true, false}) {
      const SearchLimits limits{.plans = with_variants ? 100 : 12, .with_variants = with_variants};
      const SearchResult all = try_all_plans(space, model, limits),
                         found = search_plans(space, model, limits);
      EXPECT_EQ(found.plans, all.plans);
      EXPECT_GE(found.plans.size(), 3U);
      EXPECT_TRUE(found.is_complete);
      EXPECT_LE(found.timed, all.timed);
    }
  }
}

TEST(PlanSearch, BoundsAreNeverAboveWhatTheyBound) {
  for (const PlanRequest& request : small_requests()) {
    const PlanSpace space = space_of(request);
    StepModel model(space);
    for (const Candidate& whole : candidates(space)) {
      const double seconds = model.seconds(whole);
      Candidate open = whole;
      ASSERT_LE(model.lower_bound(whole), seconds) << describe_plan(space, whole);
      for (std::size_t depth = kPlanDims; depth-- > 0;) {
        open.choice[depth] = kOpen;
        ASSERT_LE(model.lower_bound(open), seconds) << describe_plan(space, whole) << ", " << depth;
      }
      const Fit fit = model.fit(whole);
      ASSERT_TRUE(model.least_fit(whole).fits || !fit.fits) << describe_plan(space, whole);
    }
  }
}

// Cut where rows are short, even if stages are then uneven, and by no grid.
TEST(PlanSearch, BoundsOfProjectedModelsAreThoseOfTheirCuts) {
  PlanRequest request = planned_request("two-sites");
  std::erase_if(request.policies, [](const PolicyChoice& p) { return p.name != "4 bits"; });
  request.base.train.batch = 2;
  request.base.model.layers = 6;
  request.base.model.project_after = "5";
  request.base.model.project_rank = 16;
  for (const BasisKind basis : {BasisKind::seed, BasisKind::pca}) {
    request.base.model.project_basis = basis;
    const PlanSpace space = space_of(request);
    StepModel model(space);
    int pipelines = 0;
    for (const Candidate& whole : candidates(space)) {
      const Arrangement& a = arrangement_of(space, whole);
      EXPECT_EQ(a.tp(), 1);
      pipelines += a.pp > 1 ? 1 : 0;
      ASSERT_LE(model.lower_bound(whole), model.seconds(whole)) << describe_plan(space, whole);
    }
    EXPECT_GT(pipelines, 0);
  }
}

// Layers are numbered in the whole model, whatever smaller one tells which grids there are.
TEST(PlanSearch, GridsAreThoseOfAModelWhateverLayersEncode) {
  PlanRequest request = planned_request("cloud-1gbit");
  request.hosts.groups[0].hosts = 2;
  request.base.model.layers = 6;
  const std::size_t all = space_of(request).arrangements.size();
  request.base.tp_activation.layers = request.base.tp_gradient.layers = "4,5";
  EXPECT_EQ(space_of(request).arrangements.size(), all);
}

void expect_that_all_run(const PlanRequest& request) {
  const PlanAnswers answers = answer(request, {.top = 20, .with_what_if = false});
  ASSERT_GE(answers.plans.size(), 5U);
  double before = 0;
  for (const PlanAnswer& plan : answers.plans) {
    RunConfig read;
    EXPECT_EQ(to_text(apply_toml(to_toml(plan.config, false), "plan", read)), "");
    EXPECT_EQ(to_text(check(read)), "");
    EXPECT_EQ(differences(plan.config, read), std::vector<std::string>());
    EXPECT_LE(before, plan.seconds);
    before = plan.seconds;
    EXPECT_LE(plan.loss.loss, request.loss_budget);
    EXPECT_TRUE(plan.fit.fits);
    const StepTime& t = plan.parts;
    EXPECT_NEAR(t.compute + t.bubble + t.boundary + t.grid + t.rows + t.sum + t.tied + t.update,
                t.seconds, 1e-9 * t.seconds)
        << plan.why;
  }
  const PlanAnswers again = answer(request, {.top = 20, .with_what_if = false});
  for (std::size_t i = 0; i < answers.plans.size(); ++i)
    EXPECT_EQ(answers.plans[i].candidate, again.plans[i].candidate);
}

TEST(PlanSearch, WhatIsToldRunsAsItIs) {
  expect_that_all_run(planned_request("two-sites"));
  expect_that_all_run(rows_request(RowsOptimiser::same));
  expect_that_all_run(rows_request(RowsOptimiser::lazy_adam));
}

// GPT-2 fits on every GPU, and its activations are far more bytes than its gradients in short form.
TEST(PlanSearch, ReplicasBeatPipelinesOverSlowLinksWhereTheModelFits) {
  PlanRequest request = planned_request("home-fibre");
  request.hosts.groups[0].hosts = 2;
  request.base = read_config(
      {"preset:gpt2",
       {"model.vocabulary=50257", "train.batch=64", "run.precision=bfloat16", "data.train=none"},
       plan_presets()});
  const PlanSpace space = space_of(request);
  StepModel model(space);
  const SearchResult found = search_plans(space, model, {.plans = 1});
  ASSERT_EQ(found.plans.size(), 1U);
  const Arrangement& a = arrangement_of(space, found.plans[0].candidate);
  EXPECT_EQ(a.pp, 1);
  EXPECT_GT(a.dp, 1);
  // The best pipeline over all hosts.
  PlanSpace pipelines = space;
  pipelines.arrangements.clear();
  pipelines.cuttable.clear();
  for (std::size_t i = 0; i < space.arrangements.size(); ++i)
    if (space.arrangements[i].pp > 1) {
      pipelines.arrangements.push_back(space.arrangements[i]);
      pipelines.cuttable.push_back(space.cuttable[i]);
    }
  StepModel other(pipelines);
  const SearchResult slower = search_plans(pipelines, other, {.plans = 1});
  ASSERT_EQ(slower.plans.size(), 1U);
  EXPECT_GT(slower.plans[0].seconds, 3 * found.plans[0].seconds);
}

TEST(PlanSearch, AModelThatFitsOnNoHostIsCut) {
  PlanRequest request = planned_request("campus");
  request.hosts.groups[0].hosts = 2;
  request.base.model.kind = ModelKind::llama;
  request.base.model.layers = 8;
  request.base.model.width = 2048;
  request.base.model.heads = 16;
  request.base.model.context = 512;
  request.base.model.vocabulary = 32000;
  request.base.train.batch = 4;
  request.hosts.groups[0].device.memory_bytes = 7e9;  // parameters and moments alone are more
  const PlanSpace space = space_of(request);
  StepModel model(space);
  const SearchResult found = search_plans(space, model, {.plans = 1});
  ASSERT_EQ(found.plans.size(), 1U);
  const Arrangement& a = arrangement_of(space, found.plans[0].candidate);
  EXPECT_GT(a.pp * a.tp(), 1);
  request.hosts.groups[0].device.memory_bytes = 1e9;  // half is more than that
  const PlanSpace small = space_of(request);
  StepModel none(small);
  const SearchResult nothing = search_plans(small, none, {.plans = 1});
  EXPECT_TRUE(nothing.plans.empty());
  ASSERT_TRUE(nothing.nearest);
  EXPECT_GT(nothing.nearest->missing(), 0);
  // No plan misses less than what is told of the nearest, and some plan fits with a little more.
  double least = 1e99;
  for (const Candidate& whole : candidates(small)) {
    const Fit fit = none.fit(whole);
    if (none.problems(whole).empty()) least = std::min(least, fit.needed - fit.has);
  }
  EXPECT_LE(nothing.nearest->missing(), least);
  EXPECT_GT(nothing.nearest->missing(), 0.5 * least) << "says nothing";
}

// A group of plans is dropped by what each of them holds: never more than what it does.
TEST(PlanSearch, NothingNeedsLessMemoryThanItsGroupDoes) {
  for (const double memory : {1e9, 40e9}) {
    PlanRequest request = planned_request("campus");
    request.hosts.groups[0].hosts = 2;
    request.hosts.groups[0].device.memory_bytes = memory;
    request.hosts.groups[0].memory_bytes = 0;
    request.base.model.kind = ModelKind::llama;
    request.base.model.layers = 5;
    request.base.model.vocabulary = 5000;
    request.base.run.precision = RunPrecision::bfloat16;
    const PlanSpace space = space_of(request);
    StepModel model(space);
    double nearest = 0;
    for (const Candidate& whole : candidates(space)) {
      const double needed = model.fit(whole).needed;
      Candidate open = whole;
      for (std::size_t depth = kPlanDims + 1; depth-- > 1;) {
        if (depth < kPlanDims) open.choice[depth] = kOpen;
        const double least = model.least_fit(open).needed;
        ASSERT_LE(least, needed * (1 + 1e-12)) << describe_plan(space, whole) << ", " << depth;
        nearest = std::max(nearest, least / needed);
      }
    }
    EXPECT_GT(nearest, 0.8) << "bounds say little";
  }
}

TEST(PlanSearch, LossesAreKeptWithinTheBudgetAndProven) {
  PlanRequest request = planned_request("home-fibre");
  request.policies = read_policies(plan_presets() + "/plan/losses.toml");
  const auto names = [&](PolicyClass of) { return names_of(space_of(request), of); };
  using Names = std::vector<std::string>;
  const std::string late_8 = "ac-sgd 4/6, tied 8 bits late",
                    late_4 = "ac-sgd 4/6, tied 4 bits late";
  EXPECT_EQ(names(PolicyClass::pp), (Names{"exact", "ac-sgd 4/6", "ac-sgd 4/8", late_8, late_4}));
  request.loss_budget = 0.3;
  EXPECT_EQ(names(PolicyClass::pp), (Names{"exact", late_8, late_4}));
  EXPECT_EQ(names(PolicyClass::dp), (Names{"exact", "16 bits", "4 bits", "power_sgd 48, 8 bits",
                                           "power_sgd 32, 8 bits", "linear 2"}));
  request.with_unproven = true;
  EXPECT_EQ(names(PolicyClass::pp),
            (Names{"exact", late_8, late_4, "transform 4/8", "16 bits", "8 bits"}));
  // A model that is trained on minds less.
  request.with_unproven = false;
  request.is_trained = true;
  EXPECT_EQ(names(PolicyClass::pp), (Names{"exact", "ac-sgd 4/8", "ac-sgd 3/6", late_8, late_4}));
  // Of two policies that are within the budget each the sum may not be.
  request.is_trained = false;
  request.loss_budget = 0.45;
  const PlanSpace space = space_of(request);
  for (const Candidate& candidate : candidates(space))
    ASSERT_LE(loss_of(space, candidate).loss, 0.45);
}

// Two replicas on hosts of their own, by policy and how much faster links are.
TEST(PlanSearch, SumsThatAreLateOrRareCostWhatIsNotHidden) {
  PlanRequest request = planned_request("home-fibre");
  request.hosts.groups[0].hosts = 2;
  request.hosts.groups[0].card.latency_seconds = 0;
  request.policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(request.policies, [](const PolicyChoice& p) {
    return p.name != "late" && p.name != "linear 4" && p.name != "mean of 2";
  });
  request.loss_budget = 100;
  const auto seconds_of = [&](const std::string& name, double factor) {
    PlanRequest other = request;
    other.hosts = with_link_rates(request.hosts, factor);
    const PlanSpace space = space_of(other);
    StepModel model(space);
    const auto& policies = space.policies[static_cast<std::size_t>(PolicyClass::dp)];
    for (const Candidate& c : candidates(space))
      if (arrangement_of(space, c).dp == 2 &&
          policies[static_cast<std::size_t>(c.at(PlanDim::dp_policy))].choice.name == name)
        return model.seconds(c);
    return 0.0;
  };
  // Slow links: what is on the wire is all there is. Of linear rounds one in 16 has two sums.
  const double exact = seconds_of("exact", 1e-3);
  EXPECT_NEAR(seconds_of("late", 1e-3) / exact, 1, 0.01);
  EXPECT_NEAR(seconds_of("mean of 2", 1e-3) / exact, 1.0 / 2, 0.01);
  EXPECT_NEAR(seconds_of("linear 4", 1e-3) / exact, 17.0 / 16 / 4, 0.01);
  // Fast ones: nothing is waited for.
  const double still = seconds_of("exact", 1e9);
  EXPECT_LE(seconds_of("late", 1e9), still);
  EXPECT_LE(seconds_of("linear 4", 1e9), still);
  // Between them a late sum hides behind forward, too, a third of the step, where nothing but
  // computing counts.
  HostDevice& device = request.hosts.groups[0].device;
  device.handled_bytes_per_second = device.message_seconds = device.updates_per_second = 0;
  for (double& rate : device.multiply_adds_per_second) rate *= 1e-4;
  double least = 1;
  for (double factor = 1e-6; factor < 1; factor *= 1.25)
    least = std::min(least, seconds_of("late", factor) / seconds_of("exact", factor));
  EXPECT_LT(least, 0.85);
  EXPECT_GT(least, 0.7);
}

// Of a pipeline, too: what is slow there is told as what it is.
TEST(PlanSearch, AGridOverSlowLinksIsNotComputing) {
  PlanRequest request = planned_request("home-fibre");
  request.hosts.groups[0].hosts = 4;
  request.hosts = with_link_rates(request.hosts, 1e-3);
  const PlanSpace space = space_of(request);
  StepModel model(space);
  int grids = 0;
  for (const Candidate& whole : candidates(space)) {
    const Arrangement& a = arrangement_of(space, whole);
    if (a.tp() != 2 || a.pp != 2) continue;
    ++grids;
    const StepTime t = model.parts(whole);
    ASSERT_GT(t.grid, t.compute) << describe_plan(space, whole);
    ASSERT_NEAR((t.compute + t.bubble + t.boundary + t.grid + t.rows + t.sum + t.tied + t.update) /
                    t.seconds,
                1, 1e-9)
        << describe_plan(space, whole);
  }
  EXPECT_GT(grids, 0);
}

TEST(PlanSearch, FasterLinksAndMoreMemoryNeverHurt) {
  double before = 1e9;
  for (const double factor : {0.01, 1.0, 100.0}) {
    PlanRequest request = planned_request("two-sites");
    request.base.train.batch = 2;
    request.hosts = with_link_rates(request.hosts, factor);
    const PlanSpace space = space_of(request);
    StepModel model(space);
    const double best = search_plans(space, model, {.plans = 1}).plans.at(0).seconds;
    EXPECT_LE(best, before * (1 + 1e-12)) << factor;
    before = best;
  }
}

TEST(PlanSearch, ARequestThatCannotBeAnsweredSaysWhy) {
  PlanRequest request = planned_request("lab");
  request.loss_budget = -1;
  request.base.run.precision = RunPrecision::bfloat16;
  const std::string problems = to_text(check(request));
  EXPECT_NE(problems.find("-1 % is not in 0 to 100"), std::string::npos) << problems;
  EXPECT_NE(problems.find("device 'core' computes in bfloat16 is not known"), std::string::npos);
}

}  // namespace
}  // namespace laconic
