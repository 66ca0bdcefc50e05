#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/base/index.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {
namespace {

// Every shape up to 8 ranks and 16 microbatches, and some larger ones.
template <class Body>
void for_each_v(const Body& body) {
  std::vector<std::pair<int, int>> shapes = {{8, 40}, {12, 11}, {12, 23}, {16, 16}, {16, 33},
                                             {24, 5}, {31, 61}, {32, 1},  {3, 200}, {1, 100}};
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n) shapes.emplace_back(p, n);
  for (const auto& [p, n] : shapes) {
    SCOPED_TRACE(testing::Message() << p << " ranks, " << n << " microbatches");
    body(p, n, lowered(zb_v({p, 2 * p, n})));
  }
}

// F = I = W = 1 on a chunk, and messages that take no time.
Costs alike_chunks() {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}};
  return costs;
}

// The same model on ranks with one stage each.
Costs alike_ranks() {
  Costs costs;
  costs.stages = {{2, 4, 2, 2}};
  return costs;
}

TEST(ZbV, CanBeRun) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    EXPECT_EQ(check(schedule), Problems{});
    EXPECT_EQ(check(compute_only(schedule)), Problems{});
    EXPECT_EQ(schedule.placement, v_shape(p));
    EXPECT_EQ(schedule.shape, (PipelineShape{p, 2 * p, n}));
    EXPECT_EQ(rank_of_stage(schedule, 2 * p - 1), 0) << "the last stage";
    EXPECT_EQ(parse_schedule(to_text(schedule)), schedule);
  });
}

TEST(ZbV, GradientsOfAStageAddUpInAscendingOrder) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    for (int stage = 0; stage < 2 * p; ++stage)
      for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight}) {
        int next = 0;
        for (const Action& action : schedule.by_rank[index(rank_of_stage(schedule, stage))])
          if (action.op == op && action.stage == stage) {
            EXPECT_EQ(action.microbatch, next++);
          }
        EXPECT_EQ(next, n);
      }
  });
}

// An activation is held from its F to its W. 1F1B holds min(p, n) of two chunks on rank 0.
TEST(ZbV, NoRankHoldsMoreThan1F1BOnItsFirst) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    const Timing timing = estimate(schedule, alike_chunks());
    const Timing plain = estimate(lowered(one_forward_one_backward({p, p, n})), alike_ranks());
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(timing.live_activations[index(rank)], 2 * std::min(p, n));
      EXPECT_LE(timing.live_activations[index(rank)], 2 * plain.live_activations[0]);
    }
  });
}

// No schedule of these stages is faster than 6 n + p - 1, see zb_v.cpp; with fewer microbatches
// than ranks the way there and back is longer than the work.
TEST(ZbV, TakesTheClosedForm) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    const double got = estimate(schedule, alike_chunks()).makespan;
    EXPECT_EQ(got, std::max({6 * n + p - 1, 4 * n + 3 * p - 1, 2 * n + 4 * p - 1}));
    if (n >= p) {
      EXPECT_EQ(got, 6 * n + p - 1);
    }
  });
}

// What the paper calls zero bubble.
TEST(ZbV, WithEnoughMicrobatchesNoRankIsIdleOnceItHasBegun) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    if (n < 2 * p - 1) return;
    const Timing timing = estimate(schedule, alike_chunks());
    std::vector<double> begin(index(p), timing.makespan);
    for (const Span& span : timing.compute)
      begin[index(span.rank)] = std::min(begin[index(span.rank)], span.begin);
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(begin[index(rank)], rank);
      EXPECT_EQ(timing.compute_end[index(rank)] - begin[index(rank)], 6 * n) << "rank " << rank;
    }
  });
}

// From n = p on idle time is half of ZB-H1's and a third of that of interleaved chunks.
TEST(ZbV, IsIdleForNoLongerThanTheOthers) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    const Timing timing = estimate(schedule, alike_chunks());
    const Timing halves = estimate(lowered(zero_bubble({p, p, n})), alike_ranks());
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(timing.busy[index(rank)], halves.busy[index(rank)]);
      EXPECT_LE(timing.idle[index(rank)], halves.idle[index(rank)]);
      if (n >= p) {
        EXPECT_EQ(2 * timing.idle[index(rank)], halves.idle[index(rank)]);
      }
    }
    if (n % p != 0) return;
    const Timing chunks = estimate(lowered(interleaved({p, 2 * p, n})), alike_chunks());
    for (int rank = 0; rank < p; ++rank)
      EXPECT_EQ(3 * timing.idle[index(rank)], chunks.idle[index(rank)]);
  });
}

// With other costs its lists are not the best, but still no slower than 1F1B's.
TEST(ZbV, IsNoSlowerThan1F1BWhateverIAndWCost) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      for (const double input : {0.5, 1.0, 1.5, 2.0})
        for (const double weight : {0.5, 1.0, 1.5, 2.0}) {
          Costs costs;
          costs.stages = {{1, input + weight, input, weight}};
          const double v = estimate(lowered(zb_v({p, 2 * p, n})), costs).makespan;
          costs.stages = {{2, 2 * (input + weight), 2 * input, 2 * weight}};
          const double plain =
              estimate(lowered(one_forward_one_backward({p, p, n})), costs).makespan;
          EXPECT_LE(v, plain + 1e-9) << p << " " << n << " " << input << " " << weight;
        }
}

// Everything that travels, travels: between neighbours, and never where the V turns.
TEST(ZbV, MessagesGoToNeighbours) {
  for_each_v([](int p, int n, const Schedule& schedule) {
    Costs costs = alike_chunks();
    costs.edges = {{0.25, 0.25, 0.1}};
    for (const Wiring wiring : {Wiring::pairs, Wiring::hosts, Wiring::switched}) {
      costs.wiring = wiring;
      const Timing timing = estimate(schedule, costs);
      EXPECT_EQ(timing.messages.size(), index(2 * n * 2 * (p - 1)));
      for (const Span& span : timing.messages) {
        const int step = span.action.op == Op::send_activation ? 1 : -1;
        const int to = rank_of_stage(schedule, span.action.stage + step);
        EXPECT_EQ(std::abs(to - span.rank), 1);
      }
    }
    const GradientSends always = select_gradient_sends(schedule, When::always, costs);
    for (int edge = 0; edge < 2 * p - 1; ++edge)
      EXPECT_EQ(std::ranges::count(always[index(edge)], true), edge == p - 1 ? 0 : n);
  });
}

}  // namespace
}  // namespace laconic
