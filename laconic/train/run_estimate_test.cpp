#include "laconic/train/run_estimate.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/policy/grid_estimate.hpp"
#include "laconic/train/gpu_report.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

RankResources rank_on(const char* host, std::int64_t process) {
  RankResources facts{
      .process = process, .memory_bytes = 1 << 20, .resident_bytes = 1000, .flops_per_second = 1e9};
  std::strcpy(facts.host.data(), host);
  return facts;
}

RunConfig small(std::initializer_list<std::string> sets = {}) {
  RunConfig c;
  c.model = {.layers = 4, .width = 8, .heads = 2, .context = 16, .vocabulary = 50};
  c.train.batch = 8;
  for (const std::string& set : sets) {
    const Problems problems = apply_set(set, c);
    EXPECT_TRUE(problems.empty()) << to_text(problems);
  }
  return c;
}

RunEstimate estimate_of(const RunConfig& c, const std::vector<RankResources>& ranks,
                        const LinkFacts& link = {}) {
  const Family family = family_of(c, {});
  return estimate_run({.config = c,
                       .spec = model_spec(family, c.model.context),
                       .decisions = decide_pipeline(c, family, link, {}),
                       .link = link,
                       .samples = 100,
                       .ranks = ranks});
}

// Counted by hand: layers of 12 d^2 + 13 d, a table of 50 x 8, positions of 16 x 8, a norm of 16.
constexpr double kLayer = 12 * 64 + 13 * 8, kTable = 50 * 8, kPositions = 16 * 8, kNorm = 16;
constexpr double kModel = 4 * kLayer + kTable + kPositions + kNorm;
constexpr double kLayerKept = 16 * (16 * 8 + 2 + 4), kHeadKept = 16 * (2 * 8 + 50 + 3);

TEST(RunEstimate, CountsEveryPartOfOneProcess) {
  const RunEstimate e = estimate_of(small(), {rank_on("a", 1)});
  const MemoryEstimate& m = e.ranks.at(0);
  EXPECT_EQ(m.parameters, 4 * kModel);
  EXPECT_EQ(m.gradients, 4 * (kModel + kTable)) << "the table has two sums: embedding and head";
  EXPECT_EQ(m.optimiser, 8 * kModel);
  EXPECT_EQ(m.activations, 4 * 8 * (4 * kLayerKept + kHeadKept + kLayerKept / 2));
  EXPECT_EQ(m.references, 0);
  EXPECT_EQ(m.buffers, 0);
  EXPECT_EQ(m.program, 1000);
}

TEST(RunEstimate, InBfloat16ParametersHaveCopiesAndActivationsAreHalf) {
  const MemoryEstimate full = estimate_of(small(), {rank_on("a", 1)}).ranks.at(0);
  const MemoryEstimate m =
      estimate_of(small({"run.precision=bfloat16"}), {rank_on("a", 1)}).ranks.at(0);
  EXPECT_EQ(m.parameters, full.parameters * 1.5);
  EXPECT_EQ(m.gradients, full.gradients);
  EXPECT_EQ(m.optimiser, full.optimiser);
  EXPECT_EQ(m.activations, full.activations / 2);
  EXPECT_EQ(estimate_of(small({"run.precision=tf32"}), {rank_on("a", 1)}).ranks.at(0).total(),
            full.total());
}

TEST(RunEstimate, OptimisersWithOneMomentNeedHalf) {
  const double both = estimate_of(small(), {rank_on("a", 1)}).ranks[0].optimiser;
  const auto of = [&](const char* kind) {
    return estimate_of(small({std::string("optimiser.kind=") + kind}), {rank_on("a", 1)})
        .ranks[0]
        .optimiser;
  };
  EXPECT_EQ(of("sgd"), both / 2);
  EXPECT_EQ(of("lion"), both / 2);
  EXPECT_EQ(of("muon"), both - 4 * 4 * 12 * 64) << "matrices of the layers have one";
}

TEST(RunEstimate, RecomputationAndSmallerMicrobatchesNeedLess) {
  const double all = estimate_of(small(), {rank_on("a", 1)}).ranks[0].activations;
  EXPECT_EQ(estimate_of(small({"train.microbatch=2"}), {rank_on("a", 1)}).ranks[0].activations,
            all / 4);
  const double recomputed =
      estimate_of(small({"model.recompute=true"}), {rank_on("a", 1)}).ranks[0].activations;
  EXPECT_EQ(recomputed, 4 * 8 * (5 * 16 * 8 + kHeadKept + 1.5 * kLayerKept));
}

// Ranks of one host add up; threads share their process.
TEST(RunEstimate, MachinesAreRefusedByTheSumOfTheirRanks) {
  const RunConfig c = small({"mesh.dp=4", "train.microbatch=2"});
  std::vector<RankResources> ranks = {rank_on("a", 1), rank_on("a", 2), rank_on("b", 7),
                                      rank_on("a", 2)};
  RunEstimate e = estimate_of(c, ranks);
  ASSERT_EQ(e.hosts.size(), 2u);
  EXPECT_EQ(e.hosts[0].ranks, 3);
  EXPECT_EQ(e.hosts[0].needed.program, 2000);
  EXPECT_EQ(e.hosts[0].needed.parameters, 3 * 4 * kModel);
  EXPECT_EQ(e.hosts[0].needed.buffers, 3 * 4 * kModel) << "flat buffers of sums";
  EXPECT_EQ(e.flops_per_second, 4e9);
  EXPECT_TRUE(check_memory(e).empty());
  for (RankResources& rank : ranks)
    rank.memory_bytes = static_cast<std::int64_t>(e.hosts[0].needed.total()) - 1;
  e = estimate_of(c, ranks);
  const Problems problems = check_memory(e);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].what.find("on a for 3 ranks"), std::string::npos) << problems[0].what;
  RunConfig allowed = c;
  allowed.run.memory = 1 << 30;
  EXPECT_TRUE(check_memory(estimate_of(allowed, ranks)).empty());
}

RankResources rank_with_gpu(const char* host, std::int64_t process, int gpu, std::int64_t free) {
  RankResources facts = rank_on(host, process);
  facts.gpu = gpu;
  std::strcpy(facts.gpu_bus.data(), gpu == 0 ? "0000:1b:00.0" : "0000:43:00.0");
  facts.gpu_total_bytes = 2 * free;
  facts.gpu_free_bytes = free;
  return facts;
}

// The model is there, and only what messages need is on the host.
TEST(RunEstimate, GpusAreRefusedByTheSumOfTheRanksThatShareThem) {
  const RunConfig c = small({"mesh.dp=4", "train.microbatch=2"});
  const std::int64_t much = 1 << 30;
  std::vector<RankResources> ranks = {
      rank_with_gpu("a", 1, 0, much), rank_with_gpu("a", 2, 1, much),
      rank_with_gpu("a", 3, 0, much - 5), rank_with_gpu("b", 4, 0, much)};
  const RunEstimate e = estimate_of(c, ranks);
  ASSERT_EQ(e.gpus.size(), 3u);
  EXPECT_EQ(e.gpus[0].ranks, 2);
  EXPECT_EQ(e.gpus[0].has, much - 5) << "the least that a rank has seen";
  EXPECT_EQ(e.gpus[0].needed.parameters, 2 * 4 * kModel);
  EXPECT_EQ(e.gpus[0].needed.program, 0);
  EXPECT_EQ(e.gpus[1].index, 1);
  EXPECT_EQ(e.gpus[2].host, "b");
  EXPECT_EQ(e.hosts[0].needed.parameters, 0);
  EXPECT_EQ(e.hosts[0].needed.buffers, 3 * 4 * kModel);
  EXPECT_EQ(e.hosts[0].needed.program, 3000);
  EXPECT_TRUE(check_memory(e).empty());
  for (RankResources& rank : ranks)
    rank.gpu_free_bytes = static_cast<std::int64_t>(e.gpus[0].needed.total()) - 1;
  const Problems problems = check_memory(estimate_of(c, ranks));
  ASSERT_EQ(problems.size(), 1u) << "one rank alone fits";
  EXPECT_NE(problems[0].what.find("on cuda:0 of a for 2 ranks"), std::string::npos)
      << problems[0].what;
  RunConfig allowed = c;
  allowed.run.memory = much;
  EXPECT_TRUE(check_memory(estimate_of(allowed, ranks)).empty());
}

// Rows of a step are on the GPU, of which 4 samples of 16 ids read 64 at most: as they come, as a
// leaf and with gradients.
TEST(RunEstimate, TablesWhoseRowsTravelAreInHostMemory) {
  const std::int64_t much = 1 << 30;
  std::vector<RankResources> ranks = {rank_with_gpu("a", 1, 0, much),
                                      rank_with_gpu("a", 2, 1, much)};
  for (RankResources& rank : ranks) rank.has_gpu_codecs = true;
  for (const auto& [precision, item] : {std::pair{"float32", 4}, {"bfloat16", 2}}) {
    SCOPED_TRACE(precision);
    const auto of = [&](const std::string& method) {
      RunConfig c =
          small({"model.kind=llama", "model.vocabulary=5000", "mesh.dp=2",
                 fmt::format("run.precision={}", precision), "embedding.rows.method=" + method});
      return estimate_of(c, ranks);
    };
    const RunEstimate whole = of("allreduce");
    for (const auto& [method, parts] : {std::pair{"alltoall", 2}, {"allgather", 1}}) {
      SCOPED_TRACE(method);
      const double table = 5000 * 8, held = table / parts;
      const RunEstimate e = of(method);
      const MemoryEstimate &gpu = e.gpus[0].needed, &gpu_before = whole.gpus[0].needed;
      const double copies = item == 4 ? 4 : 4 + item;
      EXPECT_EQ(gpu.parameters, gpu_before.parameters - copies * table);
      EXPECT_EQ(gpu.optimiser, gpu_before.optimiser - 8 * table);
      EXPECT_EQ(gpu.gradients, gpu_before.gradients - 4 * table + 4 * 16 * 8 * (item + 8));
      EXPECT_EQ(gpu.buffers, gpu_before.buffers - 4 * table);
      const MemoryEstimate& host = e.hosts[0].needed;
      EXPECT_EQ(host.parameters, 2 * 4 * held);
      EXPECT_EQ(host.optimiser, 2 * 8 * held);
      EXPECT_EQ(host.buffers, whole.hosts[0].needed.buffers + 2 * 4 * held);
    }
  }
}

// A GPU that adds has the buffers of sums, and residuals twice: the old ones and the next.
TEST(RunEstimate, SumsAreWhereTheyAreMade) {
  const std::int64_t much = 1 << 30;
  std::vector<RankResources> ranks = {rank_with_gpu("a", 1, 0, much),
                                      rank_with_gpu("a", 2, 1, much)};
  struct Case {
    RunConfig config;
    double on_host, on_gpu;  // copies of the model
  };
  const std::vector<Case> cases = {
      {small({"mesh.dp=2"}), 0, 1},
      {small({"mesh.dp=2", "dp.gradient.codec=quantise:bits=4"}), 0, 1 + 2 * 1.5},
      {small({"mesh.dp=2", "dp.gradient.codec=quantise:bits=4", "dp.gradient.feedback=none"}), 0,
       1},
      {small({"mesh.dp=2", "run.precision=float64"}), 2, 0},
      {small({"mesh.dp=2", "local.steps=4"}), 3, 0}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    for (RankResources& rank : ranks) rank.has_gpu_codecs = false;
    const RunEstimate before = estimate_of(cases[i].config, ranks);
    EXPECT_EQ(before.gpus[0].needed.buffers, 0);
    for (RankResources& rank : ranks) rank.has_gpu_codecs = true;
    const RunEstimate e = estimate_of(cases[i].config, ranks);
    EXPECT_EQ(e.gpus[0].needed.buffers, cases[i].on_gpu * 4 * kModel);
    EXPECT_EQ(e.hosts[0].needed.buffers, 2 * cases[i].on_host * 4 * kModel);
    EXPECT_GE(before.hosts[0].needed.buffers, 2 * 4 * kModel);
  }
}

TEST(RunEstimate, SaysWhatWouldFit) {
  const RunConfig c = small();
  const Family family = family_of(c, {});
  const ModelSpec spec = model_spec(family, c.model.context);
  const PipelineDecisions decisions = decide_pipeline(c, family, {}, {});
  const auto help_with = [&](double bytes, std::int64_t samples) {
    RankResources rank = rank_on("a", 1);
    rank.memory_bytes = static_cast<std::int64_t>(bytes);
    RunConfig changed = c;
    changed.train.microbatch = samples;
    return what_would_help({.config = changed,
                            .spec = spec,
                            .decisions = decisions,
                            .samples = 100,
                            .ranks = {rank}})
        .ways;
  };
  const auto has = [](const std::vector<std::string>& ways, const std::string& way) {
    return std::ranges::any_of(ways, [&](const std::string& w) { return w.starts_with(way); });
  };
  const MemoryEstimate all = estimate_of(c, {rank_on("a", 1)}).ranks[0];
  // A quarter of the activations, and one block's gradient that waits to be added.
  const double quarter =
      estimate_of(small({"train.microbatch=2"}), {rank_on("a", 1)}).ranks[0].total();
  EXPECT_TRUE(has(help_with(quarter + 1, 0), "train.microbatch = 2 needs"));
  EXPECT_FALSE(has(help_with(quarter - 1, 0), "train.microbatch = 2 needs"));
  EXPECT_TRUE(has(help_with(all.total() - 1, 0), "model.recompute = true needs"));
  EXPECT_EQ(help_with(all.parameters, 0), std::vector<std::string>()) << "nothing is enough";
}

TEST(RunEstimate, DoesNotPraiseWhatIsNotEnough) {
  RankResources small_host = rank_on("a", 1), small_gpu = rank_with_gpu("a", 1, 0, 100);
  small_host.memory_bytes = 100;
  const auto refusal = [&](const RankResources& rank, const MemoryAdvice* advice) {
    return to_text(check_memory(estimate_of(small(), {rank}), advice));
  };
  const auto expect_end = [](const std::string& text, const std::string& end) {
    EXPECT_TRUE(text.ends_with(end + "; run.memory overrides what it has")) << text;
  };
  const MemoryAdvice none, untried{.has_tried_microbatches = false}, some{.ways = {"x", "y"}};
  expect_end(refusal(small_host, nullptr),
             "the machine has 100 B. A smaller train.microbatch, model.recompute = true or more "
             "machines help");
  expect_end(refusal(small_host, &some), "model.recompute = true or more machines help (x; y)");
  expect_end(refusal(small_host, &none),
             ". Neither a smaller train.microbatch nor model.recompute = true is enough: more "
             "machines help");
  expect_end(refusal(small_host, &untried),
             ". model.recompute = true is not enough: a smaller train.microbatch may be, and more "
             "machines help");
  expect_end(refusal(small_gpu, &some),
             "free there are 100 B of 200 B. A smaller train.microbatch, model.recompute = true, a "
             "shorter precision or fewer ranks on a GPU help (x; y)");
  const auto advice_for = [&](const RunConfig& c, const std::vector<RankResources>& ranks) {
    const Family family = family_of(c, {});
    const ModelSpec spec = model_spec(family, c.model.context);
    return what_would_help({.config = c,
                            .spec = spec,
                            .decisions = decide_pipeline(c, family, {}, {}),
                            .samples = 100,
                            .ranks = ranks});
  };
  EXPECT_TRUE(advice_for(small(), {small_host}).has_tried_microbatches);
  EXPECT_FALSE(advice_for(small({"mesh.pp=2", "train.microbatch=1"}), {small_host, small_host})
                   .has_tried_microbatches);
  EXPECT_TRUE(advice_for(small(), {small_gpu}).ways.empty()) << "the GPU is too small for all";
  EXPECT_FALSE(advice_for(small(), {rank_with_gpu("a", 1, 0, 1 << 30)}).ways.empty());
}

// Two ranks cut samples: the inputs of two maps of a layer and that of the head are gathered, of 2
// x 16 x 8 elements each, and half of that is the other rank's. Of 1f1b the first rank has two
// microbatches under way, the last has one.
TEST(RunEstimate, GridsHoldWhatTheyKeepForEveryMicrobatchUnderWay) {
  const auto activations = [](const char* keep, const char* recompute) {
    RunConfig c = small({"mesh.pp=2", "mesh.tp=2", "tensor.method=1d-sequence",
                         "tensor.table=split", "train.microbatch=2", "pipeline.split=2,2"});
    EXPECT_TRUE(apply_set(std::string("tensor.keep=") + keep, c).empty());
    EXPECT_TRUE(apply_set(std::string("model.recompute=") + recompute, c).empty());
    const Family family = family_of(c, {});
    const ModelSpec spec = model_spec(family, c.model.context);
    const PipelineDecisions decisions = decide_pipeline(c, family, {}, {});
    std::vector<double> all;
    for (const MemoryEstimate& m : rank_memory({c, spec, decisions, grid_plan_of(c, family), 0}))
      all.push_back(m.activations);
    return all;
  };
  constexpr double kInput = 2 * 16 * 8 / 2;
  const auto expect_more = [&](const char* recompute, double first, double last) {
    const auto nothing = activations("nothing", recompute),
               kept = activations("gathered", recompute);
    EXPECT_EQ(kept[0] - nothing[0], 4 * kInput * first) << recompute;
    EXPECT_EQ(kept[1] - nothing[1], 4 * kInput * last) << recompute;
  };
  expect_more("false", 2 * 2 * 2, 2 * 2 + 1);
  expect_more("true", 2, 2 + 1);  // of one layer at work, and of the head, which is not recomputed
}

TEST(RunEstimate, PipelinesHoldTheirPartAndWhatIsUnderWay) {
  const RunConfig c = small({"mesh.pp=2", "train.microbatch=1", "pipeline.split=2,2",
                             "pp.activation.memory=delta", "pp.activation.codec=quantise:bits=4"});
  const RunEstimate e = estimate_of(c, {rank_on("a", 1), rank_on("b", 2)});
  const MemoryEstimate &first = e.ranks[0], &last = e.ranks[1];
  EXPECT_EQ(first.parameters, 4 * (2 * kLayer + kTable + kPositions));
  EXPECT_EQ(last.parameters, 4 * (2 * kLayer + kTable + kNorm));
  // 1f1b: the first rank has two microbatches under way, the last has one.
  EXPECT_EQ(first.activations, 4 * (2 * 2 * kLayerKept + kLayerKept / 2));
  EXPECT_EQ(last.activations, 4 * (2 * kLayerKept + kHeadKept + kLayerKept / 2));
  EXPECT_EQ(first.references, 100 * 4096) << "a page for each sample";
  EXPECT_EQ(last.references, first.references);
}

// The first of three boundaries remembers nothing.
TEST(RunEstimate, BoundariesThatAreNotEncodedHaveNoReferences) {
  const RunConfig c = small({"mesh.pp=4", "train.microbatch=1", "pp.activation.memory=delta",
                             "pp.activation.boundaries=last half"});
  const RunEstimate e =
      estimate_of(c, {rank_on("a", 1), rank_on("b", 2), rank_on("c", 3), rank_on("d", 4)});
  const double boundary = 100 * 4096;
  for (const auto& [rank, references] :
       {std::pair{0U, 0.0}, {1U, boundary}, {2U, 2 * boundary}, {3U, boundary}})
    EXPECT_EQ(e.ranks.at(rank).references, references) << rank;
}

// What the GPU holds the host does not, and a disk does not hold it either.
TEST(RunEstimate, ReferencesAreCountedWhereTheyLie) {
  const auto with = [](const char* more) {
    const RunConfig c = small({"mesh.pp=2", "train.microbatch=1", "pipeline.split=2,2",
                               "pp.activation.memory=delta", "pp.activation.codec=quantise:bits=4",
                               "pp.activation.budget=400000", more});
    return estimate_of(c, {rank_with_gpu("a", 1, 0, 1 << 30), rank_on("b", 2)});
  };
  const RunEstimate none = with("pp.activation.device_memory=0");
  EXPECT_EQ(none.gpus.at(0).needed.references, 0);
  EXPECT_EQ(none.hosts.at(0).needed.references, 400000);
  const RunEstimate some = with("pp.activation.device_memory=300000");
  EXPECT_EQ(some.gpus.at(0).needed.references, 300000);
  EXPECT_EQ(some.hosts.at(0).needed.references, 100000);
  EXPECT_EQ(some.hosts.at(1).needed.references, 400000) << "a rank without a GPU";
  const RunEstimate all = with("pp.activation.device_memory=1000000");
  EXPECT_EQ(all.gpus.at(0).needed.references, 400000);
  EXPECT_EQ(all.hosts.at(0).needed.references, 0);
}

// 6 N + 6 L d T for a token, N the weights of products.
TEST(RunEstimate, FlopsAreThoseOfTheFormula) {
  const RunConfig c = small();
  const RunEstimate e = estimate_of(c, {rank_on("a", 1)});
  const double weights = 4 * 12 * 64 + 50 * 8, attention = 4 * 8 * 16;
  EXPECT_EQ(e.step_flops, 6 * (weights + attention) * 8 * 16);
  EXPECT_NEAR(e.step_seconds, e.step_flops / 1e9, 1e-12);
  EXPECT_FALSE(e.has_network);
  // Two replicas at the same speed, and sums of 4 bytes for each parameter at 1 kB/s.
  const RunEstimate two = estimate_of(small({"mesh.dp=2"}), {rank_on("a", 1), rank_on("b", 2)},
                                      {.slowest_bytes_per_second = 1000});
  EXPECT_TRUE(two.has_network);
  EXPECT_GT(two.step_seconds, 4 * kModel / 1000);
  EXPECT_LT(two.step_seconds, 8 * kModel / 1000);
}

// `laconic layout` predicts the same without libtorch.
TEST(RunEstimate, OfOneGridIsWhatLayoutPredicts) {
  for (const auto& [method, tp] : {std::pair{"1d", "1,2,1"}, {"3d", "2,1,1"}, {"3d", "1,1,2"}}) {
    SCOPED_TRACE(std::string(method) + " on " + tp);
    const RunConfig c = small({std::string("mesh.tp=") + tp, std::string("tensor.method=") + method,
                               "model.recompute=true", "train.microbatch=4"});
    const Family family = family_of(c, {});
    const LinkFacts link{.bytes_per_second = 1e5, .latency = 1e-3};
    const RunEstimate run = estimate_run({.config = c,
                                          .spec = model_spec(family, c.model.context),
                                          .decisions = decide_pipeline(c, family, link, {}),
                                          .grid = grid_plan_of(c, family),
                                          .link = link,
                                          .samples = 100,
                                          .ranks = {rank_on("a", 1), rank_on("b", 1)}});
    const GridEstimate grid = estimate_grid(
        c, family, {.flops_per_second = 1e9, .bytes_per_second = 1e5, .latency = 1e-3});
    EXPECT_NEAR(run.step_seconds, grid.step.total(), 1e-9);
    EXPECT_EQ(run.ranks[0].parameters, grid.memory.parameters);
    EXPECT_EQ(run.ranks[0].gradients, grid.memory.gradients);
    EXPECT_EQ(run.ranks[0].optimiser, grid.memory.optimiser);
    EXPECT_EQ(run.ranks[0].activations, grid.memory.activations + grid.memory.gathered);
  }
}

TEST(RunEstimate, OfAGridIsTheShareOfARank) {
  const auto estimate = [](const RunConfig& c, std::size_t ranks) {
    const Family family = family_of(c, {});
    return estimate_run({.config = c,
                         .spec = model_spec(family, c.model.context),
                         .decisions = decide_pipeline(c, family, {}, {}),
                         .grid = grid_plan_of(c, family),
                         .link = {},
                         .samples = 100,
                         .ranks = std::vector<RankResources>(ranks, rank_on("a", 1))})
        .ranks[0];
  };
  const MemoryEstimate whole = estimate(small({"model.vocabulary=56"}), 1);
  for (const auto& [method, tp, ranks] : {std::tuple{"3d", "2,2,2", 8},
                                          {"3d", "1,2,4", 8},
                                          {"2d", "2,2,1", 4},
                                          {"2.5d", "2,2,2", 8}}) {
    SCOPED_TRACE(fmt::format("{} on {}", method, tp));
    const MemoryEstimate part =
        estimate(small({fmt::format("mesh.tp={}", tp), fmt::format("tensor.method={}", method),
                        "model.vocabulary=56"}),
                 static_cast<std::size_t>(ranks));
    EXPECT_EQ(part.parameters * ranks, whole.parameters);
    EXPECT_EQ(part.gradients * ranks, whole.gradients);
    EXPECT_EQ(part.optimiser * ranks, whole.optimiser);
  }
}

TEST(RunEstimate, IsToldInTwoLines) {
  const RunConfig c = small({"mesh.dp=2"});
  const std::vector<std::string> lines =
      describe(estimate_of(c, {rank_on("a", 1), rank_on("a", 2)}), c);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("memory: about "), 0u) << lines[0];
  EXPECT_NE(lines[0].find("for 2 ranks on a, which has 1.0 MB"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1].find("time: "), 0u) << lines[1];
}

TEST(RunEstimate, OfARankWithAGpuTellsEachMemoryBesideItsOwn) {
  const RunConfig c = small();
  const RunEstimate e = estimate_of(c, {rank_with_gpu("a", 1, 0, 1 << 30)});
  EXPECT_EQ(describe(e, c)[0],
            fmt::format("memory: about {} on cuda:0 of a for 1 rank ({}), which has 1.1 GB free; "
                        "about {} on a for 1 rank ({}), which has 1.0 MB",
                        human_bytes(e.gpus[0].needed.total()), to_text(e.gpus[0].needed),
                        human_bytes(e.hosts[0].needed.total()), to_text(e.hosts[0].needed)));
  EXPECT_EQ(e.gpus[0].needed.program, 0);
  EXPECT_EQ(e.hosts[0].needed.parameters, 0);
}

// Of three ranks the last two have problems, one of them alone.
TEST(GpuReport, WhatOneRankCannotIsRefusedByAll) {
  std::vector<std::unique_ptr<Transport>> transports = make_in_process(3);
  run_ranks(transports, [](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world({.dp = 3}, progress_thread);
    EXPECT_NO_THROW(refuse_on_all({}, world));
    Problems mine;
    if (world.rank() > 0) mine.push_back({"run.device", "no GPU"});
    if (world.rank() == 2) mine.push_back({"run.precision", "no bfloat16"});
    try {
      refuse_on_all(mine, world);
      ADD_FAILURE() << "rank " << world.rank() << " goes on";
    } catch (const ConfigError& error) {
      EXPECT_EQ(to_text(error.problems()),
                "run.device: no GPU (rank 1, 2)\nrun.precision: no bfloat16 (rank 2)");
    }
  });
  World alone;
  EXPECT_THROW(refuse_on_all({{"run.device", "no GPU"}}, alone), ConfigError);
}

}  // namespace
}  // namespace laconic
