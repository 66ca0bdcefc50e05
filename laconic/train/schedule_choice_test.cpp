#include "laconic/train/schedule_choice.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"

namespace laconic {
namespace {

// Four ranks on machines of their own; forward of a block takes 1 ms and backward 2 ms a sample,
// and `fixed` seconds whatever the size.
struct ChosenRun {
  RunConfig config;
  LinkFacts link;
  double fixed = 0;
  std::int64_t memory = 1 << 30;
  int processors = 0;
  const char* host = nullptr;  // of all ranks

  explicit ChosenRun(std::initializer_list<std::string> sets = {}) {
    config.model = {.layers = 6, .width = 8, .heads = 2, .context = 16, .vocabulary = 50};
    config.data.train = "unread";
    config.train.batch = 16;
    config.mesh.pp = 4;
    config.pipeline.schedule = kScheduleAuto;
    for (const std::string& set : sets) {
      const Problems problems = apply_set(set, config);
      EXPECT_TRUE(problems.empty()) << to_text(problems);
    }
    EXPECT_TRUE(check(config).empty()) << to_text(check(config));
  }

  PipelineDecisions choose(std::vector<std::int64_t>* measured = nullptr) const {
    const ModelSpec spec = model_spec(family_of(config, {}), config.model.context);
    std::vector<RankResources> ranks;
    for (std::int64_t r = 0; r < config.mesh.pp; ++r) {
      ranks.push_back({.process = r, .memory_bytes = memory, .flops_per_second = 1e9});
      std::strcpy(ranks.back().host.data(), host != nullptr ? host : std::to_string(r).c_str());
    }
    const GridPlan grid;
    const RunFacts facts{.spec = spec,
                         .grid = grid,
                         .link = link,
                         .samples = 100,
                         .ranks = ranks,
                         .processors = processors};
    return choose_schedule(config, facts, [&](std::int64_t size) {
      if (measured != nullptr) measured->push_back(size);
      const auto samples = static_cast<double>(size);
      return std::vector<BlockTimes>(spec.blocks.size(),
                                     {fixed + 1e-3 * samples, fixed + 2e-3 * samples});
    });
  }
};

// 512 bytes for a sample and boundary: at 100 kB/s as long as five forwards of a block.
constexpr LinkFacts kSlow{.bytes_per_second = 1e5, .slowest_bytes_per_second = 1e5};

TEST(AutoSchedule, OnSlowLinksAllForwardsGoFirstInSmallMicrobatches) {
  ChosenRun run;
  run.link = kSlow;
  const PipelineDecisions d = run.choose();
  EXPECT_EQ(d.kind, "gpipe");
  EXPECT_EQ(d.microbatch, 1);
  EXPECT_EQ(d.schedule.shape.microbatches, 16);
  EXPECT_NE(d.why.find("0.8 Mbit/s"), std::string::npos) << d.why;
  EXPECT_EQ(parse_decisions(to_json(d)), d);
}

TEST(AutoSchedule, SizesAreMeasuredBelowTheLimitAndCostWhatTheyCost) {
  ChosenRun run({"train.microbatch=4"});
  run.link = kSlow;
  std::vector<std::int64_t> measured;
  EXPECT_EQ(run.choose(&measured).microbatch, 1);
  EXPECT_EQ(measured, (std::vector<std::int64_t>{4, 2, 1}));
  run.fixed = 50e-3;  // small ones are hardly shorter
  EXPECT_EQ(run.choose().microbatch, 4);
}

TEST(AutoSchedule, WhereMessagesAreFreeMemoryDecides) {
  const PipelineDecisions d = ChosenRun({"train.microbatch=1"}).choose();
  EXPECT_NE(d.kind, "gpipe");
  EXPECT_NE(d.why.find("as if messages took no time"), std::string::npos) << d.why;
}

TEST(AutoSchedule, AnOrderThatDoesNotFitIsNotTaken) {
  ChosenRun run({"train.microbatch=1"});
  run.link = kSlow;
  ASSERT_EQ(run.choose().kind, "gpipe");
  run.memory = 200'000;  // 16 microbatches of two layers keep 275 kB, four of them 69 kB
  const PipelineDecisions d = run.choose();
  EXPECT_NE(d.kind, "gpipe");
  EXPECT_NE(d.why.find("1 would not fit in memory"), std::string::npos) << d.why;
  run.memory = 1000;
  EXPECT_NE(run.choose().kind, "gpipe") << "none fits: what needs least, which is then refused";
}

// With half of the processors small microbatches gain nothing from shorter ways and cost their
// overhead twice.
TEST(AutoSchedule, RanksOfOneMachineShareItsProcessors) {
  ChosenRun run({"train.microbatch=4", "run.threads=1"});
  run.link = {.bytes_per_second = 1e6, .slowest_bytes_per_second = 1e6};
  run.fixed = 0.4e-3;
  EXPECT_EQ(run.choose().microbatch, 2);
  run.host = "one";
  run.processors = 1;
  EXPECT_EQ(run.choose().microbatch, 4);
}

TEST(AutoSchedule, ChunksAreInterleaved) {
  ChosenRun run({"mesh.pp=2", "pipeline.chunks=2", "train.microbatch=8"});
  run.link = kSlow;
  const PipelineDecisions d = run.choose();
  EXPECT_EQ(d.kind, "interleaved");
  EXPECT_EQ(d.schedule.shape.microbatches % 2, 0);
  RunConfig odd = run.config;
  odd.train.batch = 15;
  odd.train.microbatch = 0;
  ASSERT_EQ(check(odd).size(), 1u) << to_text(check(odd));
  EXPECT_EQ(check(odd)[0].where, "pipeline.schedule");
}

TEST(AutoSchedule, IsRefusedOnATensorGrid) {
  ChosenRun run;
  run.config.mesh.tp = "2";
  const Problems problems = check(run.config);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems[0].where, "pipeline.schedule") << to_text(problems);
}

}  // namespace
}  // namespace laconic
