// What goes wrong in a pipeline: damaged messages, and steps that are not finite.
#include <gtest/gtest.h>

#include "laconic/engine/meter.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class PipelineFault : public PipelineParallel {
 protected:
  RunConfig damaged(const std::string& name, const std::vector<std::string>& sets) {
    RunConfig c = config(name, 2);
    set(c, sets);
    return c;
  }

  // Messages of a class that both ranks sent.
  static std::uint64_t messages(const TrainSummary& summary, Traffic traffic) {
    for (const TrafficTotal& total : summary.traffic)
      if (total.traffic == traffic) return total.sent.messages;
    return 0;
  }
};

TEST_F(PipelineFault, ADamagedActivationIsSentAgainAndCounted) {
  const TrainSummary summary =
      run(damaged("a", {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
                        "network.faults=flip:rank=0,traffic=pp.activation,at=20,bit=2000"}));
  EXPECT_EQ(summary.step, 3);
  EXPECT_GE(summary.pipeline.repaired, 1U);
  EXPECT_LE(summary.pipeline.repaired, 2U);  // the samples of a microbatch
}

// Eight microbatches make eight gradients a step; the sender has nothing else to do when the last
// of them is refused, and must not end the step before the receiver has it.
TEST_F(PipelineFault, ADamagedGradientIsSentAgainWhicheverOfTheStepItIs) {
  for (const int at : {16, 20, 23}) {
    SCOPED_TRACE(at);
    const TrainSummary summary = run(damaged(
        fmt::format("g{}", at),
        {"pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
         fmt::format("network.faults=flip:rank=1,traffic=pp.gradient,at={},bit=2000", at)}));
    EXPECT_EQ(summary.step, 3);
    EXPECT_GE(summary.pipeline.repaired, 1U);
    EXPECT_LE(summary.pipeline.repaired, 2U);
  }
}

// The receiver of gradients says that it has all, once a step: rank 0 sends nothing else of this
// traffic. Whatever becomes of it on the way, that it comes is all it says.
TEST_F(PipelineFault, ADamagedAcknowledgementIsOneNevertheless) {
  const std::vector<std::string> delta = {"pp.gradient.codec=quantise:bits=4",
                                          "pp.gradient.memory=delta"};
  RunConfig c = config("whole", 2);
  set(c, delta);
  const TrainSummary whole = run(c);
  const std::uint64_t acknowledged = static_cast<std::uint64_t>(c.train.steps);
  EXPECT_EQ(messages(whole, Traffic::pp_gradient), 8 * acknowledged + acknowledged);
  for (const int bit : {5, 90}) {
    c.run.folder = folder_ / fmt::format("a{}", bit);
    set(c, {fmt::format("network.faults=flip:rank=0,traffic=pp.gradient,at=1,bit={}", bit)});
    EXPECT_TRUE(model_bytes(run(c).checkpoint) == model_bytes(whole.checkpoint)) << bit;
  }
}

const std::vector<std::vector<std::string>> kRemembering = {
    {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
     "pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback"},
    {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
     "pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
     "dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=sign"},
    {"pp.gradient.codec=top_k:keep=0.2", "pp.gradient.memory=feedback",
     "dp.gradient.method=power_sgd", "dp.gradient.rank=1"}};

// Every link and sum has seen a whole step of good numbers when its loss turns out not to be one:
// all of them give back what they have remembered, and all files of a checkpoint are those of the
// one before, byte for byte.
TEST_F(PipelineFault, AStepThatIsNotFiniteLeavesNoTrace) {
  for (std::size_t i = 0; i < kRemembering.size(); ++i) {
    SCOPED_TRACE(kRemembering[i].front());
    RunConfig c = config(fmt::format("spoiled{}", i), 2, 2);
    c.data.train = folder_ / "few";
    c.train.steps = 5;
    c.train.non_finite = NonFinite::skip;
    c.checkpoint.every = 1;
    c.checkpoint.keep = 0;
    set(c, kRemembering[i]);
    EXPECT_EQ(run_hooked(c, {.spoiled = {2, 3}}).skipped, 2);
    const auto at = [&](int step) {
      return fmt::format("{}/checkpoints/step-{:08}", c.run.folder, step);
    };
    for (const int step : {3, 4}) {
      EXPECT_TRUE(model_bytes(at(step)) == model_bytes(at(2))) << step;
      const MappedFile state(at(step) + "/state.json");
      EXPECT_NE(state.text().find(fmt::format("\"position\": {},", 16 * step)), std::string::npos)
          << "the samples of the step are not tried again";
      const auto expected = rank_files(at(2)), found = rank_files(at(step));
      EXPECT_GE(expected.size(), 4U);
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, bytes] : expected)
        EXPECT_TRUE(found.at(name) == bytes) << name << " after step " << step;
    }
    EXPECT_FALSE(model_bytes(at(5)) == model_bytes(at(4))) << "it goes on";
    EXPECT_FALSE(rank_files(at(5)) == rank_files(at(4)));
  }
}

// What links and sums have open when a step is skipped shows in no later step either: going on is
// what a run does that begins from the checkpoint behind it.
TEST_F(PipelineFault, AfterAStepThatIsNotFiniteARunGoesOnAsIfItBeganThere) {
  for (std::size_t i = 0; i < kRemembering.size(); ++i) {
    SCOPED_TRACE(kRemembering[i].front());
    RunConfig c = config(fmt::format("whole{}", i), 2, 2);
    c.data.train = folder_ / "few";
    c.train.steps = 6;
    c.train.non_finite = NonFinite::skip;
    c.checkpoint.every = 3;
    set(c, kRemembering[i]);
    const std::string whole = model_bytes(run_hooked(c, {.spoiled = {2}}).checkpoint);
    const std::string behind = c.run.folder + "/checkpoints/step-00000003";
    c.run.folder = folder_ / fmt::format("resumed{}", i);
    EXPECT_TRUE(model_bytes(run(c, behind).checkpoint) == whole);
  }
}

TEST_F(PipelineFault, NumbersThatAreNotFiniteOnTheWayAreSkippedAndLeaveNoTrace) {
  RunConfig c = config("a", 3);
  c.data.train = folder_ / "few";
  c.train.non_finite = NonFinite::skip;
  c.optimiser.lr = c.optimiser.min_lr = 1e30;  // from the second step on
  c.optimiser.warmup = 0;
  c.checkpoint.every = 1;
  c.checkpoint.keep = 0;
  set(c, kRemembering[0]);
  EXPECT_EQ(run(c).skipped, 2);
  const std::string first = c.run.folder + "/checkpoints/step-00000001",
                    last = c.run.folder + "/checkpoints/step-00000003";
  EXPECT_TRUE(model_bytes(last) == model_bytes(first));
  EXPECT_TRUE(rank_files(last) == rank_files(first));
}

}  // namespace
}  // namespace laconic
