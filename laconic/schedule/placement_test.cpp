#include "laconic/schedule/placement.hpp"

#include <gtest/gtest.h>

#include <random>

#include "laconic/base/error.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/selection.hpp"
#include "laconic/schedule/test_schedule.hpp"

namespace laconic {
namespace {

// Both microbatches through four stages in a V on two ranks, messages included.
constexpr const char* kInAV =
    "placement:  0 1 1 0\n"
    "rank 0:  0F0 0>a0 0F1 0>a1 3<a0 3F0 3B0 3>g0 3<a1 3F1 3B1 3>g1 0<g0 0B0 0<g1 0B1\n"
    "rank 1:  1<a0 1F0 2F0 2>a0 1<a1 1F1 2F1 2>a1 2<g0 2B0 1B0 1>g0 2<g1 2B1 1B1 1>g1\n";

TEST(PlacementOfStages, GoesRoundTheRanksOrThereAndBack) {
  EXPECT_EQ(round_robin(3, 6), (Placement{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(v_shape(3), (Placement{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(round_robin(1, 3), (Placement{0, 0, 0}));
  EXPECT_EQ(v_shape(1), (Placement{0, 0}));
  for (const auto& [ranks, stages] : {std::pair{0, 4}, {-1, 4}, {2, 0}, {2, -4}})
    EXPECT_TRUE(round_robin(ranks, stages).empty());
  EXPECT_TRUE(v_shape(0).empty());
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks)
      EXPECT_EQ(check(round_robin(ranks, ranks * chunks), ranks, ranks * chunks), Problems{});
    EXPECT_EQ(check(v_shape(ranks), ranks, 2 * ranks), Problems{});
  }
}

TEST(PlacementOfStages, EveryReasonAgainstOneIsSaid) {
  EXPECT_EQ(lines(check(Placement{0, 2, -1}, 2, 4)),
            "placement: the placement says the ranks of 3 stages, there are 4\n"
            "placement: stage 1 is placed on rank 2, ranks are 0 ... 1\n"
            "placement: stage 2 is placed on rank -1, ranks are 0 ... 1\n"
            "placement: no stage is placed on rank 1\n");
  EXPECT_EQ(lines(check(Placement{}, 1, 0)), "placement: no stage is placed on rank 0\n");
}

TEST(PlacementOfStages, ARankKnowsItsStagesAndWhichEdgesLeaveIt) {
  const Schedule schedule{{3, 6, 1}, {}, v_shape(3)};
  EXPECT_EQ(stages_of_rank(schedule, 0), (std::vector<int>{0, 5}));
  EXPECT_EQ(stages_of_rank(schedule, 2), (std::vector<int>{2, 3}));
  EXPECT_TRUE(stages_of_rank(schedule, 3).empty());
  std::vector<int> crossing;
  for (int edge = -1; edge <= 6; ++edge)
    if (crosses_ranks(schedule, edge)) crossing.push_back(edge);
  EXPECT_EQ(crossing, (std::vector<int>{0, 1, 3, 4}));
}

TEST(PlacementOfStages, IsPartOfTheScheduleAndRoundRobinWhereNothingIsSaid) {
  const Schedule plain{{2, 4, 1}, {{}, {}}};
  EXPECT_EQ(plain.placement, round_robin(2, 4));
  Schedule other = plain;
  EXPECT_EQ(other, plain);
  other.placement = v_shape(2);
  EXPECT_NE(other, plain);
  EXPECT_EQ(Schedule{}.placement, Placement{0});
}

TEST(PlacementOfStages, ATextSaysItWhereAReaderCouldNotKnow) {
  const Schedule schedule = parse_schedule(kInAV);
  EXPECT_EQ(schedule.shape, (PipelineShape{2, 4, 2}));
  EXPECT_EQ(schedule.placement, v_shape(2));
  EXPECT_EQ(to_text(schedule), kInAV);
  EXPECT_EQ(check(schedule), Problems{}) << picture_of_fault(schedule);
  EXPECT_EQ(picture_of_fault(schedule), kInAV);
  for (const char* head : {"", "placement: 0 1 0 1\n", " placement :0\t1  0 1\r\n"}) {
    const std::string lists = "rank 0:  0F0 2F0 2B0 0B0\nrank 1:  1F0 3F0 3B0 1B0\n";
    const Schedule round = parse_schedule(head + lists);
    EXPECT_EQ(round.placement, round_robin(2, 4));
    EXPECT_EQ(to_text(round), lists);
  }
  // Stages that no action names are there by the placement alone.
  const char* stages = "placement:  0 1 0 1\nrank 0:  0F0\nrank 1:  1F0\n";
  EXPECT_EQ(parse_schedule(stages).shape.stages, 4);
  EXPECT_EQ(to_text(parse_schedule(stages)), stages);
}

TEST(PlacementOfStages, AnyPlacementIsReadAsItIsWritten) {
  std::minstd_rand random(5);
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int stages = ranks * (1 + static_cast<int>(random() % 3));
    Schedule schedule{{ranks, stages, 1}, {}, {}};
    schedule.by_rank.resize(static_cast<std::size_t>(ranks));
    for (int stage = 0; stage < stages; ++stage) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      schedule.placement.push_back(rank);
      if (random() % 4 > 0 || stage == 0)
        schedule.by_rank[static_cast<std::size_t>(rank)].push_back({Op::forward, stage, 0});
    }
    EXPECT_EQ(parse_schedule(to_text(schedule)), schedule) << to_text(schedule);
  }
}

TEST(PlacementOfStages, AWrongPlacementInATextIsRefusedWithTheLine) {
  const auto refusal = [](const std::string& text) {
    try {
      return lines(check(parse_schedule(text)));
    } catch (const ConfigError& error) {
      return lines(error.problems());
    }
  };
  EXPECT_EQ(refusal("placement: 0 x 1y -1 1000\nrank 0: 0F0"),
            "line 1: 'x' in the placement is no rank below 1000\n"
            "line 1: '1y' in the placement is no rank below 1000\n"
            "line 1: '-1' in the placement is no rank below 1000\n"
            "line 1: '1000' in the placement is no rank below 1000\n");
  EXPECT_EQ(refusal("placement:\nrank 0: 0F0"),
            "line 1: the placement has 0 ranks; one for each stage is needed, from 1 to 1000\n");
  EXPECT_EQ(refusal("placement: 0\nrank 0: F0 B0\nplacement: 0"),
            "line 3: a placement is there already, in line 1\n");
  EXPECT_EQ(refusal("placement: 0 1 0\nrank 0: 0F0\nrank 1: 1F0"),
            "schedule: 3 stages are no multiple of 2 ranks\n");
  EXPECT_EQ(refusal("placement: 0 0 3 0\nrank 0: 0F0\nrank 1: 1F0"),
            "schedule: stage 2 is placed on rank 3, ranks are 0 ... 1\n"
            "schedule: no stage is placed on rank 1\n");
  EXPECT_EQ(refusal("placement: 0 1 1 0\nrank 0: 0F0 2F0 7F0\nrank 1: 1F0"),
            "rank 0, action 1 (2F0): stage 2 lives on rank 1\n"
            "rank 0, action 2 (7F0): there is no stage 7 among 4\n");
}

// Stages that follow each other on a rank hand over without a message; a P bears the first stage.
TEST(PlacementOfStages, LoweringKnowsIt) {
  const Schedule schedule = parse_schedule(kInAV);
  EXPECT_EQ(with_communication(compute_only(schedule)).placement, v_shape(2));
  EXPECT_EQ(check(lowered(compute_only(schedule))), Problems{});
  const Schedule swapped = parse_schedule("placement: 1 0\nrank 0: 1F0 1B0\nrank 1: 0F0 0B0\n");
  EXPECT_EQ(to_text(with_prefetch(with_communication(swapped))),
            "placement:  1 0\n"
            "rank 0:  1<a0 1F0 1P 1B0 1>g0\n"
            "rank 1:  0F0 0>a0 0P 0<g0 0B0\n");
  EXPECT_EQ(check(lowered(swapped)), Problems{});
}

// By hand: 2 F on each rank in turn, and back; a message takes half a second, none where the V
// turns.
TEST(PlacementOfStages, EstimatesSendNothingWhereTheVTurns) {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}};
  costs.edges = {{0.5, 0.5, 0}};
  const Schedule one = lowered(
      parse_schedule("placement: 0 1 1 0\nrank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 2F0 2B0 1B0\n"));
  const Timing timing = estimate(one, costs);
  EXPECT_EQ(timing.makespan, 4 + 8 + 4 * 0.5);
  EXPECT_EQ(timing.messages.size(), 4u);
  EXPECT_EQ(timing.live_activations, (std::vector<int>{2, 2}));
}

// In a V the middle rank takes activations from both neighbours, and its gradients go to both: what
// one still sends does not travel against what goes to the other.
TEST(PlacementOfStages, AnEpilogueIsOfAPairOfRanks) {
  const Schedule schedule =
      lowered(parse_schedule("placement: 0 1 2 2 1 0\n"
                             "rank 0: 0F0 0F1 5F0 5B0 5F1 5B1 0B0 0B1\n"
                             "rank 1: 1F0 1F1 4F0 4F1 4B0 4B1 1B0 1B1\n"
                             "rank 2: 2F0 3F0 2F1 3F1 3B0 2B0 3B1 2B1\n"));
  ASSERT_EQ(check(schedule), Problems{}) << picture_of_fault(schedule);
  const GradientSends sends = select_gradient_sends(schedule, When::epilogue, {});
  // Into stages 0 ... 4. Rank 0 sends 5's first gradient before it takes the last activation.
  EXPECT_EQ(sends, (GradientSends{
                       {true, true}, {true, true}, {false, false}, {true, true}, {false, true}}));
}

}  // namespace
}  // namespace laconic
