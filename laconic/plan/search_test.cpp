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

namespace laconic {
namespace {

std::string plan_presets() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/presets";
}

RunConfig planned_config() {
  RunConfig config;
  config.model.layers = 2;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.context = 32;
  config.model.vocabulary = 500;
  config.train.batch = 4;
  config.data.train = "none";
  return config;
}

// Some of the policies that there are, so that all candidates can be tried.
std::vector<PolicyChoice> few_policies() {
  std::vector<PolicyChoice> policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(policies, [](const PolicyChoice& p) {
    return p.name != "ac-sgd 4/6" && p.name != "4 bits" && p.name != "power_sgd 32, 8 bits" &&
           p.name != "8 bits" && p.name != "linear 4";
  });
  return policies;
}

// Sums that are late, or of rounds, whatever they lose.
std::vector<PolicyChoice> late_policies() {
  std::vector<PolicyChoice> policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(policies, [](const PolicyChoice& p) {
    return p.name != "late" && p.name != "linear 4, power_sgd 8, overlap 2" &&
           p.name != "linear 4 in parts, power_sgd 64, overlap 1" &&
           p.name != "ac-sgd 4/6, tied low rank late" && p.name != "transform 4/8";
  });
  return policies;
}

PlanRequest planned_request(const std::string& hosts) {
  return {.base = planned_config(),
          .hosts = read_hosts(hosts, plan_presets()),
          .policies = few_policies()};
}

// A model with a table of its own, which plain sgd or lazy Adam changes by rows.
PlanRequest rows_request(RowsOptimiser optimiser) {
  PlanRequest request = planned_request("lab");
  request.hosts.groups[0].hosts = 3;
  request.base.model.kind = ModelKind::llama;
  request.base.model.tied = false;
  request.base.model.vocabulary = 3000;
  request.base.train.batch = 6;
  request.base.train.clip = 0;
  request.base.embedding_rows.optimiser = optimiser;
  if (optimiser == RowsOptimiser::same) {
    request.base.optimiser.kind = OptimiserKind::sgd;
    request.base.optimiser.momentum = request.base.optimiser.weight_decay = 0;
  }
  request.policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(request.policies, [](const PolicyChoice& p) {
    return p.of != PolicyClass::rows && !(p.of == PolicyClass::dp && p.name == "4 bits") &&
           p.name != "linear 4";
  });
  return request;
}

std::vector<std::string> names_of(const PlanSpace& space, PolicyClass of) {
  std::vector<std::string> names;
  for (const PolicyOption& o : space.policies[static_cast<std::size_t>(of)])
    names.push_back(o.choice.name);
  return names;
}

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

// Which ways of rows there are follows from what a run trains by.
TEST(PlanSearch, RowsAreOfferedWhereAConfigurationCanHaveThem) {
  using Names = std::vector<std::string>;
  const auto reasons_of = [](const PlanSpace& space) {
    std::string text;
    for (const RefusedPolicy& refused : space.refused)
      text += refused.choice.name + ": " + refused.why + "\n";
    return text;
  };
  PlanRequest request = rows_request(RowsOptimiser::same);
  const Names all = {"exact",
                     "alltoall",
                     "allgather",
                     "server",
                     "alltoall, block by block",
                     "alltoall, 8 bits",
                     "alltoall, 4 bits",
                     "alltoall, 8 bits, block by block",
                     "alltoall, 4 bits, block by block"};
  PlanSpace space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), all);
  EXPECT_EQ(reasons_of(space), "");
  for (const Candidate& whole : candidates(space)) {
    const Arrangement& a = arrangement_of(space, whole);
    if (whole.at(PlanDim::rows_policy) == 0) continue;
    const RunConfig config = config_of(space, whole);
    ASSERT_TRUE(a.dp > 1 && a.tp() == 1 && config.local.steps == 0);
    ASSERT_TRUE(a.pp == 1 || config.train.update == UpdateBy::step);
    ASSERT_TRUE(a.dp == 2 || config.embedding_rows.codec == "raw")
        << "3 does not divide the columns of a row";
    ASSERT_EQ(to_text(StepModel(space).problems(whole)), "");
  }
  // A norm of all gradients is not there block by block.
  request.base.train.clip = 1;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows).size(), 6U);
  EXPECT_NE(reasons_of(space).find("alltoall, block by block: update = \"block\" with "
                                   "train.clip = 1"),
            std::string::npos)
      << reasons_of(space);
  // Another algorithm is offered to who asks for what nobody has measured, or names it.
  request = rows_request(RowsOptimiser::lazy_adam);
  space = space_of(request);
  Names lazy = all;
  std::erase(lazy, "allgather");  // which is "exact" there
  EXPECT_EQ(names_of(space, PolicyClass::rows), lazy);
  request.base.embedding_rows.optimiser = RowsOptimiser::same;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), Names{"exact"});
  EXPECT_NE(reasons_of(space).find("alltoall: optimiser = \"same\""), std::string::npos)
      << reasons_of(space);
  request.with_unproven = true;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows).size(), 7U);
  for (const Candidate& whole : candidates(space))
    ASSERT_TRUE(whole.at(PlanDim::rows_policy) == 0 || !is_proven(space, whole));
  // Neither a table that is the output's, too, nor rows of a GPU.
  request = rows_request(RowsOptimiser::same);
  request.base.model.tied = true;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), Names{"exact"});
  EXPECT_NE(reasons_of(space).find("no table that is only looked up"), std::string::npos);
  request = rows_request(RowsOptimiser::same);
  request.hosts = read_hosts("campus", plan_presets());
  EXPECT_NE(reasons_of(space_of(request)).find("these hosts have GPUs"), std::string::npos);
  request.base.embedding_rows.optimiser = RowsOptimiser::lazy_adam;
  EXPECT_NE(to_text(check(request)).find("all hosts have GPUs"), std::string::npos);
}

// Where rows are most of what travels, formulas know of them what simulations do: which way, in how
// many bits, and what is hidden.
TEST(PlanSearch, RowsTakeAboutAsLongAsInSimulations) {
  for (const double factor : {0.1, 1.0}) {
    PlanRequest request = rows_request(RowsOptimiser::lazy_adam);
    request.base.model.context = 256;
    request.hosts.groups[0].hosts = 2;
    request.hosts.groups[0].cores = 0;
    request.hosts = with_link_rates(request.hosts, factor);
    std::erase_if(request.policies, [](const PolicyChoice& p) { return p.name == "linear 4"; });
    const PlanSpace space = space_of(request);
    StepModel model(space);
    std::map<std::string, double> seconds;
    for (const Candidate& whole : candidates(space)) {
      const Arrangement& a = arrangement_of(space, whole);
      if (a.dp != 2 || a.pp != 1 || whole.at(PlanDim::recompute) != 0 ||
          whole.at(PlanDim::microbatch) != 1 || whole.at(PlanDim::dp_policy) != 1)
        continue;
      const std::string name = names_of(
          space, PolicyClass::rows)[static_cast<std::size_t>(whole.at(PlanDim::rows_policy))];
      seconds[name] = model.seconds(whole);
      const double simulated =
          simulated_plan(config_of(space, whole), space.hosts, seating_of(space, a))
              .seconds.value();
      EXPECT_NEAR(seconds[name] / simulated, 1, 0.1) << describe_plan(space, whole);
    }
    ASSERT_EQ(seconds.size(), 8U);
    if (factor == 1) continue;
    EXPECT_LT(seconds["alltoall, 8 bits"], 0.85 * seconds["alltoall"]);
    EXPECT_LT(seconds["alltoall, block by block"], seconds["alltoall"]);
  }
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

TEST(PlanSearch, BreakEvenIsWhereBothAreAsFast) {
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
TEST(PlanSearch, EveryPolicyHasARateOrAReason) {
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

TEST(PlanSearch, WhatCannotBeSimulatedGetsAsMuchLongerAsTheOthers) {
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
TEST(PlanSearch, OfVariantsTheOneIsToldThatSimulationsFindFaster) {
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
