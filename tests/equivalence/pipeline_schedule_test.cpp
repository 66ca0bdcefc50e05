// Schedules that nobody builds, but that a file may hold.
#include <fstream>

#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class ScheduleFile : public PipelineParallel {
 protected:
  // In double precision, so that the order in which microbatches add up does not show.
  RunConfig precise(const std::string& name, std::int64_t pp) {
    RunConfig c = config(name, pp);
    c.run.precision = RunPrecision::float64;
    c.train.microbatch = 4;
    return c;
  }
  RunConfig by(const std::string& text, std::int64_t pp, std::int64_t chunks = 1) {
    const std::string name = fmt::format("own{}", count_++);
    std::ofstream(folder_ / (name + ".txt")) << text;
    RunConfig c = precise(name, pp);
    c.pipeline.schedule = "file:" + (folder_ / (name + ".txt"));
    c.pipeline.chunks = chunks;
    return c;
  }

 private:
  int count_ = 0;
};

TEST_F(ScheduleFile, MicrobatchesMayComeInAnyOrder) {
  const TrainSummary alone = train({.config = precise("one", 1)});
  for (const char* text : {"rank 0: F0 F1 F2 F3 B3 B2 B1 B0\nrank 1: F0 F1 F2 F3 B3 B2 B1 B0\n",
                           "rank 0: F2 F0 F3 F1 B2 B0 B3 B1\nrank 1: F2 B2 F0 B0 F3 B3 F1 B1\n",
                           "rank 0: F3 F2 I3 F1 I2 W2 F0 I1 W3 W1 B0\n"
                           "rank 1: F3 B3 F2 I2 F1 B1 F0 W2 B0\n"})
    for (const LinkMemory memory : {LinkMemory::none, LinkMemory::delta}) {
      SCOPED_TRACE(fmt::format("{}, {}", text, name_in(kLinkMemoryNames, memory)));
      RunConfig c = by(text, 2);
      c.pp_activation.memory = c.pp_gradient.memory = memory;
      c.pp_activation.first = c.pp_gradient.first = "raw";
      if (memory == LinkMemory::none) {
        EXPECT_LT(largest_difference(run(c).checkpoint, alone.checkpoint, c), 1e-12);
      } else {
        c.data.train = folder_ / "few";
        c.train.steps = 7;
        EXPECT_EQ(run(c).pipeline.repaired, 0U);
      }
    }
}

TEST_F(ScheduleFile, ARunThatGoesOnReadsTheFileAgain) {
  const std::string in_turns = "rank 0: F0 F1 B0 F2 B1 F3 B2 B3\nrank 1: F0 B0 F1 B1 F2 B2 F3 B3\n";
  const std::string at_once = "rank 0: F0 F1 F2 F3 B0 B1 B2 B3\nrank 1: F0 B0 F1 B1 F2 B2 F3 B3\n";
  RunConfig c = by(in_turns, 2);
  const auto schedule_after = [&](std::int64_t steps) {
    c.train.steps = steps;
    return parse_decisions(read_checkpoint_info(run(c, "auto").checkpoint).pipeline).schedule;
  };
  EXPECT_EQ(schedule_after(2), parse_schedule(in_turns));
  EXPECT_EQ(schedule_after(3), parse_schedule(in_turns));
  std::ofstream(c.pipeline.schedule.substr(5)) << at_once;
  EXPECT_EQ(schedule_after(4), parse_schedule(at_once));
}

// The size of microbatches belongs to the choice: what goes on has it without asking again.
TEST_F(PipelineParallel, AChosenScheduleTrainsWhatItWouldIfItWereNamed) {
  RunConfig chosen = config("chosen", 3);
  chosen.pipeline.schedule = "auto";
  chosen.train.microbatch = 4;
  chosen.train.steps = 2;
  run(chosen);
  chosen.train.steps = 3;
  const std::string checkpoint = run(chosen, "auto").checkpoint;
  const PipelineDecisions decided = parse_decisions(read_checkpoint_info(checkpoint).pipeline);
  RunConfig named = config("named", 3);
  named.pipeline.schedule = decided.kind;
  named.train.microbatch = decided.microbatch;
  EXPECT_TRUE(model_bytes(run(named).checkpoint) == model_bytes(checkpoint)) << decided.why;
  EXPECT_EQ(decided.schedule.shape.microbatches, 16 / decided.microbatch);
}

TEST_F(ScheduleFile, StagesMayLieInAVOrWhereTheyAreSaidToBe) {
  const TrainSummary alone = train({.config = precise("one", 1)});
  const std::string in_a_v = to_text(zb_v({2, 4, 4}));
  const std::string twice =
      "placement: 0 0 1 1\n"
      "rank 0: 0F0 1F0 0F1 1F1 1B0 0B0 0F2 1F2 1B1 0B1 0F3 1F3 1B2 0B2 1B3 0B3\n"
      "rank 1: 2F0 3F0 3B0 2B0 2F1 3F1 3B1 2B1 2F2 3F2 3B2 2B2 2F3 3F3 3B3 2B3\n";
  const std::string ends_inside =  // embedding and head, which share a parameter, on ranks 1 and 0
      "placement: 1 2 0\n"
      "rank 0: 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3\n"
      "rank 1: 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n"
      "rank 2: 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3\n";
  for (const auto& [text, pp, chunks] :
       {std::tuple{in_a_v, 2, 2}, {twice, 2, 2}, {ends_inside, 3, 1}}) {
    SCOPED_TRACE(text);
    const RunConfig c = by(text, pp, chunks);
    EXPECT_TRUE(check_pipeline(c).empty()) << to_text(check_pipeline(c));
    const TrainSummary together = run(c);
    EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-12);
    EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-12);
  }
}

// With two replicas: alone nothing leaves, and a gradient that is announced too early is complete
// in the end all the same. Announced before the head has added its part, half of it would stay
// behind.
TEST_F(ScheduleFile, TheTiedGradientWaitsForTheHeadWhereverItComes) {
  const TrainSummary alone = train({.config = precise("one", 1)});
  const std::string forward = "rank 0: 0F0 1F0 0F1 1F1 ";
  const std::string inputs = "1I0 0I0 1I1 0I1 ";
  for (const std::string& text :
       {forward + inputs + "0W0 0W1 1W0 1W1\n", forward + inputs + "0W0 1W0 0W1 1W1\n",
        forward + inputs + "1W0 1W1 0W0 0W1\n"})
    for (const bool is_overlapped : {true, false}) {
      SCOPED_TRACE(text);
      RunConfig c = by(text, 1, 2);
      c.mesh.dp = 2;
      c.dp_gradient.overlap = is_overlapped;
      EXPECT_LT(largest_difference(run(c).checkpoint, alone.checkpoint, c), 1e-12);
    }
}

}  // namespace
}  // namespace laconic
