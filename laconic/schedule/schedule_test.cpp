#include "laconic/schedule/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "laconic/base/error.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/test_schedule.hpp"

namespace laconic {
namespace {

int count(const Schedule& schedule, const auto& is_one) {
  int sum = 0;
  for (const auto& list : schedule.by_rank)
    sum += static_cast<int>(std::ranges::count_if(list, is_one));
  return sum;
}

std::vector<int> microbatches(const Schedule& schedule, Op op, int stage) {
  std::vector<int> found;
  for (const Action& action :
       schedule.by_rank[static_cast<std::size_t>(rank_of_stage(schedule, stage))])
    if (action.op == op && action.stage == stage) found.push_back(action.microbatch);
  return found;
}

// The most activations that a rank holds: from F to B, or to W where backward is split.
int peak(const std::vector<Action>& list) {
  int live = 0, most = 0;
  for (const Action& action : list) {
    if (action.op == Op::forward) most = std::max(most, ++live);
    if (action.op == Op::backward || action.op == Op::backward_weight) --live;
  }
  return most;
}

// Interleaved: a forward more than the warm-up, which is all that there is when there is one round.
int expected_peak(ScheduleKind kind, const PipelineShape& shape, int rank) {
  const int p = shape.ranks, n = shape.microbatches, v = chunks_of(shape);
  switch (kind) {
    case ScheduleKind::gpipe: return n;
    case ScheduleKind::one_f_one_b: return std::min(p - rank, n);
    case ScheduleKind::zero_bubble: return std::min(p, n);
    case ScheduleKind::zb_v: return 2 * std::min(p, n);
    case ScheduleKind::interleaved: return n == p ? n * v : (v - 1) * p + 2 * (p - 1 - rank) + 1;
  }
  return 0;
}

TEST(Schedule, EveryBuilderIsExecutableForAllSmallShapes) {
  int shapes = 0;
  for_each_shape(8, 16, 4, [&](ScheduleKind kind, const PipelineShape& shape) {
    ++shapes;
    const Schedule built = build(kind, shape);
    EXPECT_EQ(check(built), Problems{});
    EXPECT_EQ(check(with_communication(built)), Problems{});
    EXPECT_EQ(check(lowered(built)), Problems{}) << picture_of_fault(lowered(built));
  });
  EXPECT_EQ(shapes, 4 * 8 * 16 + 3 * (16 + 8 + 5 + 4 + 3 + 2 + 2 + 2));
}

TEST(Schedule, EveryStageTakesEveryMicrobatchOnceInAscendingOrder) {
  for_each_shape(8, 16, 4, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule built = build(kind, shape);
    std::vector<int> all;
    for (int k = 0; k < shape.microbatches; ++k) all.push_back(k);
    const bool has_halves = kind == ScheduleKind::zero_bubble || kind == ScheduleKind::zb_v;
    for (int stage = 0; stage < shape.stages; ++stage) {
      EXPECT_EQ(microbatches(built, Op::forward, stage), all);
      EXPECT_EQ(microbatches(built, Op::backward, stage), has_halves ? std::vector<int>{} : all);
      EXPECT_EQ(microbatches(built, Op::backward_input, stage),
                has_halves ? all : std::vector<int>{});
      EXPECT_EQ(microbatches(built, Op::backward_weight, stage),
                has_halves ? all : std::vector<int>{});
    }
    const int actions = count(built, [](const Action&) { return true; });
    EXPECT_EQ(actions, (has_halves ? 3 : 2) * shape.stages * shape.microbatches);
  });
}

TEST(Schedule, RanksHoldAsManyActivationsAsTheClosedFormsSay) {
  for_each_shape(8, 16, 4, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule built = build(kind, shape);
    for (int rank = 0; rank < shape.ranks; ++rank)
      EXPECT_EQ(peak(built.by_rank[static_cast<std::size_t>(rank)]),
                expected_peak(kind, shape, rank))
          << "rank " << rank;
  });
}

TEST(Schedule, ThereIsAMessageThereAndBackForEveryEdgeBetweenRanks) {
  for_each_shape(8, 16, 4, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule schedule = lowered(build(kind, shape));
    const int turns = kind == ScheduleKind::zb_v ? 1 : 0;  // stages that follow on one rank
    const int edges = shape.ranks == 1 ? 0 : edge_count(shape) - turns;
    for (const auto& [a, b] : {std::pair{Op::send_activation, Op::send_gradient},
                               std::pair{Op::recv_activation, Op::recv_gradient}})
      EXPECT_EQ(count(schedule, [&](const Action& x) { return x.op == a || x.op == b; }),
                2 * edges * shape.microbatches);
  });
}

TEST(Schedule, LoweringAddsOnePrefetchPerRank) {
  for_each_shape(8, 16, 4, [](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule built = build(kind, shape);
    const Schedule schedule = lowered(built);
    for (const auto& list : schedule.by_rank) {
      const auto is_prefetch = [](const Action& x) { return x.op == Op::prefetch; };
      const auto at = std::ranges::find_if(list, is_prefetch);
      EXPECT_EQ(std::ranges::count_if(list, is_prefetch), 1);
      EXPECT_TRUE(std::none_of(at, list.end(), [](const Action& x) {
        return x.op == Op::forward || x.op == Op::send_activation;
      }));
    }
    EXPECT_EQ(lowered(schedule), schedule) << "what is there is left alone";
    EXPECT_EQ(compute_only(schedule), built);
  });
}

TEST(Schedule, GPipeAsText) {
  EXPECT_EQ(to_text(build(ScheduleKind::gpipe, {2, 2, 3})),
            "rank 0:  F0 F1 F2 B0 B1 B2\n"
            "rank 1:  F0 F1 F2 B0 B1 B2\n");
}

TEST(Schedule, OneForwardOneBackwardAsText) {
  const Schedule built = build(ScheduleKind::one_f_one_b, {3, 3, 4});
  EXPECT_EQ(to_text(built),
            "rank 0:  F0 F1 F2 B0 F3 B1 B2 B3\n"
            "rank 1:  F0 F1 B0 F2 B1 F3 B2 B3\n"
            "rank 2:  F0 B0 F1 B1 F2 B2 F3 B3\n");
  EXPECT_EQ(to_text(with_communication(built)),
            "rank 0:  F0 >a0 F1 >a1 F2 >a2 <g0 B0 F3 >a3 <g1 B1 <g2 B2 <g3 B3\n"
            "rank 1:  <a0 F0 >a0 <a1 F1 >a1 <g0 B0 >g0 <a2 F2 >a2 <g1 B1 >g1 <a3 F3 >a3 <g2 B2 >g2 "
            "<g3 B3 >g3\n"
            "rank 2:  <a0 F0 B0 >g0 <a1 F1 B1 >g1 <a2 F2 B2 >g2 <a3 F3 B3 >g3\n");
  EXPECT_EQ(to_text(lowered(built)),
            "rank 0:  F0 >a0 F1 >a1 F2 >a2 <g0 B0 F3 >a3 P <g1 B1 <g2 B2 <g3 B3\n"
            "rank 1:  <a0 F0 >a0 <a1 F1 >a1 <g0 B0 >g0 <a2 F2 >a2 <g1 B1 >g1 <a3 F3 >a3 P <g2 B2 "
            ">g2 <g3 B3 >g3\n"
            "rank 2:  <a0 F0 B0 >g0 <a1 F1 B1 >g1 <a2 F2 B2 >g2 <a3 F3 P B3 >g3\n");
}

TEST(Schedule, ZeroBubbleAsText) {
  const Schedule built = build(ScheduleKind::zero_bubble, {3, 3, 4});
  EXPECT_EQ(to_text(built),
            "rank 0:  F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
            "rank 1:  F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
            "rank 2:  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::zero_bubble, {2, 2, 2}))),
            "rank 0:  F0 >a0 F1 >a1 P <g0 I0 W0 <g1 I1 W1\n"
            "rank 1:  <a0 F0 I0 >g0 <a1 F1 P I1 >g1 W0 W1\n");
}

TEST(Schedule, ZbVAsText) {
  EXPECT_EQ(to_text(build(ScheduleKind::zb_v, {2, 4, 3})),
            "placement:  0 1 1 0\n"
            "rank 0:  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 0I1 3W2 0I2 0W1 0W2\n"
            "rank 1:  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2\n");
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::zb_v, {2, 4, 1}))),
            "placement:  0 1 1 0\n"
            "rank 0:  0F0 0>a0 3<a0 3F0 0P 3I0 3>g0 3W0 0<g0 0I0 0W0\n"
            "rank 1:  1<a0 1F0 2F0 2>a0 1P 2<g0 2I0 1I0 1>g0 2W0 1W0\n");
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::zb_v, {1, 2, 2}))),
            "rank 0:  0F0 1F0 1I0 1W0 0F1 0I0 0W0 1F1 0P 1I1 0I1 1W1 0W1\n");
}

TEST(Schedule, InterleavedAsText) {
  EXPECT_EQ(to_text(build(ScheduleKind::interleaved, {2, 4, 4})),
            "rank 0:  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "rank 1:  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
  EXPECT_EQ(to_text(build(ScheduleKind::interleaved, {2, 4, 2})),
            "rank 0:  0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n"
            "rank 1:  1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1\n");
}

TEST(Schedule, OneRankAloneNeedsNoMessages) {
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::one_f_one_b, {1, 1, 2}))),
            "rank 0:  F0 B0 F1 P B1\n");
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::zero_bubble, {1, 1, 2}))),
            "rank 0:  F0 I0 W0 F1 P I1 W1\n");
  EXPECT_EQ(to_text(lowered(build(ScheduleKind::interleaved, {1, 2, 2}))),
            "rank 0:  0F0 1F0 1B0 0F1 0B0 1F1 0P 1B1 0B1\n");
}

TEST(Schedule, WhatAFilePlacesByItselfIsLeftAlone) {
  // The receives of rank 1 are early, its messages late.
  const Schedule file = parse_schedule(
      "rank 0: F0 F1 >a0 >a1 <g0 B0 <g1 B1\n"
      "rank 1: <a0 <a1 F0 F1 B0 B1 >g0 >g1\n");
  EXPECT_EQ(with_communication(file), file);
  EXPECT_EQ(to_text(lowered(file)),
            "rank 0:  F0 F1 >a0 >a1 P <g0 B0 <g1 B1\n"
            "rank 1:  <a0 <a1 F0 F1 P B0 B1 >g0 >g1\n");
  EXPECT_EQ(check(lowered(file)), Problems{});
}

TEST(Schedule, RefusesShapesWithTheNumbers) {
  struct Case {
    ScheduleKind kind;
    PipelineShape shape;
    std::string text;
  };
  const Case cases[] = {
      {ScheduleKind::interleaved,
       {4, 8, 6},
       "interleaved: 6 microbatches are no multiple of 4 ranks\n"},
      {ScheduleKind::interleaved,
       {4, 8, 3},
       "interleaved: 3 microbatches are fewer than 4 ranks\n"},
      {ScheduleKind::interleaved,
       {4, 4, 6},
       "interleaved: 6 microbatches are no multiple of 4 ranks\n"
       "interleaved: 4 stages on 4 ranks are 1 chunk each, needs at least 2\n"},
      {ScheduleKind::gpipe, {2, 4, 1}, "gpipe: 4 stages on 2 ranks are 2 chunks each, needs 1\n"},
      {ScheduleKind::one_f_one_b, {3, 4, 1}, "1f1b: 4 stages are no multiple of 3 ranks\n"},
      {ScheduleKind::zb_v, {3, 3, 1}, "zb_v: 3 stages on 3 ranks are 1 chunk each, needs 2\n"},
      {ScheduleKind::zb_v, {3, 9, 1}, "zb_v: 9 stages on 3 ranks are 3 chunks each, needs 2\n"},
      {ScheduleKind::zero_bubble,
       {0, 0, -1},
       "zero_bubble: 0 ranks\nzero_bubble: -1 microbatches\n"
       "zero_bubble: 0 stages are no multiple of 0 ranks\n"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(lines(check(c.kind, c.shape)), c.text);
    EXPECT_THROW(build(c.kind, c.shape), std::exception);
  }
}

TEST(Schedule, KindsHaveNames) {
  for (const ScheduleKind kind : kScheduleKinds)
    EXPECT_EQ(parse_schedule_kind(name_of(kind)), kind);
  try {
    parse_schedule_kind("1b1f");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "there is no schedule '1b1f'; there are gpipe, 1f1b, interleaved, zero_bubble, zb_v (did "
        "you mean 1f1b?)");
  }
}

}  // namespace
}  // namespace laconic
