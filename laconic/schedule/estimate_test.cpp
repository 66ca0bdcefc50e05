#include "laconic/schedule/estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {
namespace {

Schedule make(ScheduleKind kind, int ranks, int microbatches, int chunks = 1) {
  return lowered(build(kind, {ranks, ranks * chunks, microbatches}));
}

Costs compute_costs(double forward, double backward) {
  Costs costs;
  costs.stages = {{forward, backward, backward / 2, backward / 2}};
  return costs;
}

Costs with_messages(double activation, double gradient) {
  Costs costs = compute_costs(1, 2);
  costs.edges = {{activation, gradient, 0}};
  return costs;
}

double makespan(ScheduleKind kind, int ranks, int microbatches, const Costs& costs) {
  return estimate(make(kind, ranks, microbatches), costs).makespan;
}

// Some costs for each way in which messages can travel.
std::vector<Costs> all_engines(const Costs& base) {
  std::vector<Costs> engines;
  for (const Wiring wiring : {Wiring::pairs, Wiring::hosts})
    for (const bool full_duplex : {true, false})
      for (const Exchange exchange : {Exchange::asynchronous, Exchange::paired}) {
        engines.push_back(base);
        engines.back().wiring = wiring;
        engines.back().full_duplex = full_duplex;
        engines.back().exchange = exchange;
      }
  return engines;
}

constexpr ScheduleKind kFlatKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                       ScheduleKind::zero_bubble};

TEST(Estimate, GpipeAndOneForwardOneBackwardTakeTheClosedForm) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      for (const auto& [f, b] : {std::pair{1.0, 2.0}, {1.0, 1.0}, {0.25, 0.75}, {3.0, 1.0}})
        for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
          EXPECT_NEAR(makespan(kind, p, n, compute_costs(f, b)), (n + p - 1) * (f + b), 1e-9)
              << name_of(kind) << " " << p << " " << n << " " << f << " " << b;
}

// A rank has N v actions of each kind, (F + B) / v long. The last rank begins after P - 1 forwards
// and then is never idle until its own work is done; the gradient needs P - 1 backwards from there.
TEST(Estimate, InterleavedWaitsOnlyForOneChunkPerRank) {
  for (int p = 2; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int n = p; n <= 4 * p; n += p)
        for (const auto& [f, b] : {std::pair{1.0, 2.0}, {1.0, 1.0}}) {
          const double got =
              estimate(make(ScheduleKind::interleaved, p, n, v), compute_costs(f / v, b / v))
                  .makespan;
          EXPECT_NEAR(got, (n * v + p - 1) * (f + b) / v, 1e-9) << p << " " << v << " " << n;
        }
}

// With F = I = W = 1. The way there and back is (P - 1)(F + I) long, since W no longer stands on
// it, and all but one of the W that a rank has room to put off fill it: (P - 1)(F + I - W) from
// N = P on, where 1F1B has (P - 1)(F + I + W).
TEST(Estimate, ZeroBubbleFillsTheWayBackWithWeights) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 24; ++n) {
      const double bubble =
          makespan(ScheduleKind::zero_bubble, p, n, compute_costs(1, 2)) - 3.0 * n;
      EXPECT_NEAR(bubble, 2.0 * (p - 1) - (std::min(n, p) - 1), 1e-9) << p << " " << n;
      if (n >= p) {
        EXPECT_NEAR(bubble, p - 1, 1e-9);
      }
    }
}

TEST(Estimate, ZeroBubbleIsNeverIdleForLongerThanOneForwardOneBackward) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      for (const double input : {0.5, 1.0, 1.5, 2.0})
        for (const double weight : {0.5, 1.0, 1.5, 2.0}) {
          Costs costs;
          costs.stages = {{1, input + weight, input, weight}};
          const Timing plain = estimate(make(ScheduleKind::one_f_one_b, p, n), costs);
          const Timing split = estimate(make(ScheduleKind::zero_bubble, p, n), costs);
          for (int rank = 0; rank < p; ++rank)
            EXPECT_LE(split.idle[index(rank)], plain.idle[index(rank)] + 1e-9)
                << p << " " << n << " " << input << " " << weight;
        }
}

// The way there, one forward, and then the slower of stage and wire for each further microbatch;
// the same back. Exact when all stages and all wires are alike.
TEST(Estimate, GpipeWithMessagesTakesTheSlowerOfStageAndWire) {
  for (int p = 2; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      for (const double to : {0.0, 0.5, 1.0, 3.0})
        for (const double back : {0.0, 0.5, 2.0, 5.0}) {
          const double expected = (p - 1) * (1 + to) + 1 + (n - 1) * std::max(1.0, to) +
                                  (p - 1) * (2 + back) + 2 + (n - 1) * std::max(2.0, back);
          Costs costs = with_messages(to, back);
          costs.step = 0.125;
          EXPECT_NEAR(makespan(ScheduleKind::gpipe, p, n, costs), expected + 0.125, 1e-9)
              << p << " " << n << " " << to << " " << back;
        }
}

TEST(Estimate, LatencyComesOnTopAndOccupiesNothing) {
  Costs costs = with_messages(0.5, 0.5);
  const double without = makespan(ScheduleKind::gpipe, 4, 8, costs);
  costs.latency = 10;
  EXPECT_NEAR(makespan(ScheduleKind::gpipe, 4, 8, costs), without + 2 * 3 * 10, 1e-9);
  const Timing timing = estimate(make(ScheduleKind::gpipe, 2, 3), costs);
  EXPECT_NEAR(timing.messages[0].begin, 1, 1e-12);
  EXPECT_NEAR(timing.messages[0].end, 11.5, 1e-12);
  EXPECT_NEAR(timing.messages[1].begin, 2, 1e-12) << "the wire is free again after half a second";
}

// Two ranks, one microbatch, by hand: F 0-1, >a 1-4, F 4-5, B 5-7, >g 7-12, B 12-14.
TEST(Estimate, OneMicrobatchByHand) {
  const Timing t = estimate(make(ScheduleKind::one_f_one_b, 2, 1), with_messages(3, 5));
  EXPECT_EQ(t.makespan, 14);
  EXPECT_EQ(t.compute_end, (std::vector<double>{14, 7}));
  EXPECT_EQ(t.busy, (std::vector<double>{3, 3}));
  EXPECT_EQ(t.idle, (std::vector<double>{11, 11}));
  ASSERT_EQ(t.messages.size(), 2u);
  EXPECT_EQ(t.messages[1].action, (Action{Op::send_gradient, 1, 0}));
  EXPECT_EQ(t.messages[1].rank, 1);
  EXPECT_EQ(t.messages[1].begin, 7);
  EXPECT_EQ(t.messages[1].end, 12);
}

TEST(Estimate, EncodedGradientsCostWhatTheEdgeSays) {
  Costs costs = with_messages(3, 5);
  costs.edges[0].encoded_gradient = 1;
  costs.encoded = {{true}};
  EXPECT_EQ(makespan(ScheduleKind::one_f_one_b, 2, 1, costs), 10);
  costs.encoded = {{false}};
  EXPECT_EQ(makespan(ScheduleKind::one_f_one_b, 2, 1, costs), 14);
}

// Rank 1 of three has an activation for rank 2 and a gradient for rank 0 ready in turn. Through
// one outlet they queue; on wires of their own they do not.
TEST(Estimate, HostsShareOneOutlet) {
  const Schedule schedule = make(ScheduleKind::one_f_one_b, 3, 6);
  Costs costs = with_messages(4, 4);
  const double pairs = estimate(schedule, costs).makespan;
  costs.wiring = Wiring::hosts;
  const Timing hosts = estimate(schedule, costs);
  EXPECT_GT(hosts.makespan, pairs);
  std::vector<Span> of_rank_1;
  for (const Span& span : hosts.messages)
    if (span.rank == 1) of_rank_1.push_back(span);
  for (std::size_t i = 1; i < of_rank_1.size(); ++i)
    EXPECT_GE(of_rank_1[i].begin, of_rank_1[i - 1].end);
}

TEST(Estimate, SwitchedMessagesThatMeetNobodyAreThoseOfHosts) {
  const Schedule schedule = lowered(parse_schedule("rank 0: F0 B0\nrank 1: F0 B0\n"));
  Costs costs = with_messages(4, 6);
  costs.wiring = Wiring::hosts;
  const double hosts = estimate(schedule, costs).makespan;
  costs.wiring = Wiring::switched;
  EXPECT_EQ(estimate(schedule, costs).makespan, hosts);
}

// 6.24 is what a simulation in steps of 2 ms says, written apart from this one; messages that queue
// for outlets alone take 4.96.
TEST(Estimate, SwitchedMessagesShareOutletsAndInlets) {
  Costs costs = with_messages(0.2197, 0.2197);
  costs.stages = {{.forward = 0.03, .backward = 0.06}};
  costs.wiring = Wiring::switched;
  const Timing timing = estimate(make(ScheduleKind::one_f_one_b, 4, 8), costs);
  EXPECT_NEAR(timing.makespan, 6.24, 0.02);
  double longest = 0;
  for (const Span& span : timing.messages) {
    EXPECT_GE(span.end - span.begin, 0.2197 - 1e-9);
    longest = std::max(longest, span.end - span.begin);
  }
  EXPECT_NEAR(longest, 2 * 0.2197, 0.1);  // one of two all the way, more or less
}

TEST(Estimate, SwitchedIsNeverFasterThanWiresOfTheirOwnAndAsFastWithoutMessages) {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble})
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int microbatches = 1; microbatches <= 8; ++microbatches) {
        const Schedule schedule = make(kind, ranks, microbatches);
        SCOPED_TRACE(to_text(schedule));
        for (const double c : {0.0, 0.3, 2.0}) {
          Costs costs = with_messages(c, c);
          const double pairs = estimate(schedule, costs).makespan;
          costs.wiring = Wiring::switched;
          const Timing timing = estimate(schedule, costs);
          EXPECT_GE(timing.makespan, pairs - 1e-9);
          if (c == 0) {
            EXPECT_NEAR(timing.makespan, pairs, 1e-9);
          }
        }
      }
}

// What is under way between two ranks: a message on its wire, or sums, which go to nobody.
struct UnderWay {
  int from, to;
  double begin, end, seconds;
};

std::vector<UnderWay> all_under_way(const Schedule& schedule, const Costs& costs,
                                    const Timing& timing) {
  std::vector<UnderWay> all;
  for (const Span& span : timing.messages) {
    const bool is_activation = span.action.op == Op::send_activation;
    const int to = span.action.stage + (is_activation ? 1 : -1);
    all.push_back({span.rank, rank_of_stage(schedule, to), span.begin, span.end - costs.latency,
                   is_activation ? costs.edges[0].activation : costs.edges[0].gradient});
  }
  for (const Reduction& sum : timing.reductions)
    all.push_back({sum.rank, -1, sum.begin, sum.end, costs.stages[0].reduction});
  return all;
}

// Seconds at full rate that one has come to by its end, by what was under way beside it.
double carried(const UnderWay& one, const std::vector<UnderWay>& all) {
  std::vector<double> changes;
  for (const UnderWay& other : all)
    for (const double time : {other.begin, other.end})
      if (one.begin <= time && time <= one.end) changes.push_back(time);
  std::ranges::sort(changes);
  double seconds = 0;
  for (std::size_t i = 1; i < changes.size(); ++i) {
    const double middle = (changes[i - 1] + changes[i]) / 2;
    int out = 0, in = 0;
    for (const UnderWay& other : all) {
      if (middle < other.begin || other.end < middle) continue;
      out += other.from == one.from ? 1 : 0;
      in += one.to >= 0 && other.to == one.to ? 1 : 0;
    }
    seconds += (changes[i] - changes[i - 1]) / std::max({1, out, in});
  }
  return seconds;
}

TEST(Estimate, EverySwitchedMessageHasItsShareAllTheTime) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble,
                                  ScheduleKind::zb_v, ScheduleKind::interleaved}) {
    double longest = 0;  // than alone
    for (const int ranks : {2, 3, 5}) {
      const int chunks = kind == ScheduleKind::zb_v || kind == ScheduleKind::interleaved ? 2 : 1;
      const Schedule schedule = make(kind, ranks, 3 * ranks, chunks);
      Costs costs = with_messages(0.9, 0.7);
      costs.stages = {{.forward = 0.3, .backward = 0.7, .reduction = 2.5}};
      costs.latency = 0.05;
      costs.wiring = Wiring::switched;
      const std::vector<UnderWay> all = all_under_way(schedule, costs, estimate(schedule, costs));
      for (const UnderWay& one : all) {
        ASSERT_NEAR(carried(one, all), one.seconds, 1e-9) << name_of(kind) << ", " << ranks;
        longest = std::max(longest, one.end - one.begin - one.seconds);
      }
    }
    EXPECT_GT(longest, 0.1) << "nothing shares with " << name_of(kind);
  }
}

TEST(Estimate, SwitchedRefusesWhatItCannotTime) {
  Costs costs{.stages = {StageCost{}}};
  costs.wiring = Wiring::switched;
  costs.full_duplex = false;
  EXPECT_EQ(check(costs, PipelineShape{2, 2, 2}).size(), 1U);
}

bool overlap(const Span& a, const Span& b) {
  return a.begin < b.end - 1e-12 && b.begin < a.end - 1e-12;
}

int receiver_of(const Schedule& schedule, const Span& span) {
  const int step = span.action.op == Op::send_activation ? 1 : -1;
  return rank_of_stage(schedule, span.action.stage + step);
}

TEST(Estimate, NoWireCarriesTwoMessagesAtOnce) {
  for (Costs costs : all_engines(with_messages(0.7, 0.9)))
    for (int p = 2; p <= 5; ++p) {
      const Schedule schedule = make(ScheduleKind::one_f_one_b, p, 6);
      const Timing t = estimate(schedule, costs);
      for (std::size_t i = 0; i < t.messages.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) {
          const Span &a = t.messages[i], &b = t.messages[j];
          const int to_a = receiver_of(schedule, a), to_b = receiver_of(schedule, b);
          const bool same_way = a.rank == b.rank && to_a == to_b;
          const bool same_pair = same_way || (a.rank == to_b && b.rank == to_a);
          const bool touch = a.rank == b.rank || a.rank == to_b || to_a == b.rank || to_a == to_b;
          const bool shares = costs.wiring == Wiring::pairs
                                  ? (costs.full_duplex ? same_way : same_pair)
                                  : (costs.full_duplex ? a.rank == b.rank : touch);
          EXPECT_FALSE(shares && overlap(a, b)) << p << " " << a.begin << " " << b.begin;
        }
    }
}

TEST(Estimate, BusyAndIdleMakeTheMakespan) {
  for (Costs costs : all_engines(with_messages(0.3, 0.4))) {
    costs.step = 0.5;
    costs.stages[0].reduction = 0.25;
    for (const ScheduleKind kind : kFlatKinds)
      for (int p = 1; p <= 6; ++p)
        for (int n = 1; n <= 9; ++n) {
          const Schedule schedule = make(kind, p, n);
          if (!check(costs, schedule).empty()) continue;
          const Timing t = estimate(schedule, costs);
          for (int rank = 0; rank < p; ++rank) {
            EXPECT_NEAR(t.busy[index(rank)] + t.idle[index(rank)], t.makespan, 1e-9);
            EXPECT_NEAR(t.busy[index(rank)], 3 * n, 1e-9);
            EXPECT_LE(t.compute_end[index(rank)], t.makespan);
          }
          EXPECT_EQ(t.messages.size(), index(2 * (p - 1) * n));
          EXPECT_EQ(t.reductions.size(), index(p));
          EXPECT_TRUE(std::ranges::is_sorted(t.messages, {}, &Span::begin));
        }
  }
}

TEST(Estimate, NothingBeginsBeforeItsInput) {
  for (const Costs& costs : all_engines(with_messages(0.6, 1.1)))
    for (int p = 2; p <= 5; ++p)
      for (int n = 1; n <= 7; ++n) {
        const Timing t = estimate(make(ScheduleKind::one_f_one_b, p, n), costs);
        const auto of = [&](Op op, int stage, int k) {
          const auto& spans = is_compute(op) ? t.compute : t.messages;
          return *std::ranges::find(spans, Action{op, stage, k}, &Span::action);
        };
        for (int s = 0; s + 1 < p; ++s)
          for (int k = 0; k < n; ++k) {
            const Span there = of(Op::send_activation, s, k),
                       back = of(Op::send_gradient, s + 1, k);
            EXPECT_GE(there.begin, of(Op::forward, s, k).end - 1e-12);
            EXPECT_GE(of(Op::forward, s + 1, k).begin, there.end - 1e-12);
            EXPECT_GE(back.begin, of(Op::backward, s + 1, k).end - 1e-12);
            EXPECT_GE(of(Op::backward, s, k).begin, back.end - 1e-12);
          }
      }
}

TEST(Estimate, MoreBandwidthNeverMakesTheStepLonger) {
  for (const bool full_duplex : {true, false})
    for (int p = 1; p <= 8; ++p)
      for (int n = 1; n <= 12; ++n) {
        const Schedule schedule = make(ScheduleKind::one_f_one_b, p, n);
        double last = std::numeric_limits<double>::infinity();
        for (int tenths = 30; tenths >= 0; --tenths) {
          Costs costs = with_messages(tenths / 10.0, tenths / 10.0);
          costs.full_duplex = full_duplex;
          const double now = estimate(schedule, costs).makespan;
          EXPECT_LE(now, last + 1e-9) << p << " " << n << " " << tenths;
          last = now;
        }
      }
}

TEST(Estimate, ActivationsLiveFromForwardToTheEndOfBackward) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      for (int rank = 0; rank < p; ++rank) {
        const auto live = [&](ScheduleKind kind) {
          return estimate(make(kind, p, n), compute_costs(1, 2)).live_activations[index(rank)];
        };
        EXPECT_EQ(live(ScheduleKind::gpipe), n);
        EXPECT_EQ(live(ScheduleKind::one_f_one_b), std::min(p - rank, n));
        EXPECT_LE(live(ScheduleKind::zero_bubble), std::min(p, n)) << "no more than 1F1B's worst";
      }
}

TEST(Estimate, ReductionsBeginWithTheLastGradientAndEndTheStep) {
  Costs costs = compute_costs(1, 2);
  costs.stages[0].reduction = 7;
  const Timing t = estimate(make(ScheduleKind::one_f_one_b, 3, 4), costs);
  ASSERT_EQ(t.reductions.size(), 3u);
  for (const Reduction& sum : t.reductions) {
    EXPECT_EQ(sum.begin, t.compute_end[index(sum.rank)]);
    EXPECT_EQ(sum.end - sum.begin, 7);
  }
  EXPECT_EQ(t.makespan, (4 + 2) * 3 + 7);
}

// The sum of rank 1's second chunk begins while gradients of its first still have to leave.
TEST(Estimate, ReductionsHoldUpMessagesOnlyOnASharedOutlet) {
  const Schedule schedule = make(ScheduleKind::interleaved, 2, 2, 2);
  Costs costs = with_messages(0.1, 0.1);
  const double end_of_rank_0 = estimate(schedule, costs).compute_end[0];
  costs.stages.assign(4, costs.stages[0]);
  costs.stages[3].reduction = 50;
  EXPECT_EQ(estimate(schedule, costs).compute_end[0], end_of_rank_0);
  costs.wiring = Wiring::hosts;
  const Timing shared = estimate(schedule, costs);
  const Reduction sum = *std::ranges::find(shared.reductions, 3, &Reduction::stage);
  EXPECT_EQ(sum.end, sum.begin + 50);
  EXPECT_GT(shared.compute_end[0], sum.end);
}

// Sums were actions of the schedule once, after a stage's last gradient and its message. These are
// the makespans, and the sums of the reductions' begins, from then.
TEST(Estimate, ReductionsTakeTheTimeThatTheyTookAsActions) {
  struct Row {
    ScheduleKind kind;
    int ranks, chunks, microbatches;
    Wiring wiring;
    double makespan, begins;
  };
  const Row rows[] = {
      {ScheduleKind::gpipe, 3, 1, 4, Wiring::pairs, 25, 59.75},
      {ScheduleKind::gpipe, 3, 1, 4, Wiring::hosts, 25, 60.75},
      {ScheduleKind::gpipe, 3, 1, 4, Wiring::switched, 26, 61.25},
      {ScheduleKind::one_f_one_b, 4, 1, 6, Wiring::pairs, 41, 138.3},
      {ScheduleKind::one_f_one_b, 4, 1, 6, Wiring::hosts, 41, 139.8},
      {ScheduleKind::one_f_one_b, 4, 1, 6, Wiring::switched, 42.5, 141.3},
      {ScheduleKind::interleaved, 2, 3, 4, Wiring::pairs, 55.85, 279.85},
      {ScheduleKind::interleaved, 2, 3, 4, Wiring::hosts, 55.85, 282.35},
      {ScheduleKind::interleaved, 2, 3, 4, Wiring::switched, 58.35, 287.35},
      {ScheduleKind::zero_bubble, 4, 1, 6, Wiring::pairs, 33.4, 122.3},
      {ScheduleKind::zero_bubble, 4, 1, 6, Wiring::hosts, 33.4, 122.3},
      {ScheduleKind::zero_bubble, 4, 1, 6, Wiring::switched, 33.4, 122.3},
  };
  for (const Row& row : rows) {
    Costs costs;
    costs.wiring = row.wiring;
    costs.latency = 0.05;
    for (int s = 0; s < row.ranks * row.chunks; ++s)
      costs.stages.push_back({1 + 0.1 * s, 2 + 0.1 * s, 1, 1 + 0.1 * s, 2.5 - 0.25 * s});
    costs.edges = {{0.75, 0.5, 0}};
    const Timing t = estimate(make(row.kind, row.ranks, row.microbatches, row.chunks), costs);
    double begins = 0;
    for (const Reduction& sum : t.reductions) begins += sum.begin;
    EXPECT_NEAR(t.makespan, row.makespan, 1e-9) << name_of(row.kind);
    EXPECT_NEAR(begins, row.begins, 1e-9) << name_of(row.kind);
  }
}

// Finishing times of four stages under Megatron's exchange, found by another simulator.
TEST(Estimate, PairedExchangeHasTheFinishingTimesOfMegatron) {
  Costs costs = with_messages(0.1, 0.1);
  costs.exchange = Exchange::paired;
  const Timing t = estimate(make(ScheduleKind::one_f_one_b, 4, 16), costs);
  const double expected[] = {60.5, 58.5, 56.4, 54.3};
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_NEAR(t.compute_end[index(rank)], expected[rank], 0.1) << rank;
  EXPECT_NEAR(t.makespan, 60.5, 1e-9);
}

TEST(Estimate, PairedExchangeLastsAsLongAsTheLongerOrBoth) {
  Costs costs = with_messages(1, 3);
  costs.exchange = Exchange::paired;
  const Schedule schedule = make(ScheduleKind::one_f_one_b, 2, 2);
  // F0 >a | rank 1: F0 B0; exchange of a1 and g0 | B0 and F1 B1 | >g | B1
  EXPECT_EQ(estimate(schedule, costs).makespan, 1 + 1 + 3 + 3 + 3 + 3 + 2);
  costs.full_duplex = false;
  EXPECT_EQ(estimate(schedule, costs).makespan, 1 + 1 + 3 + 4 + 3 + 3 + 2);
}

// W stands between a gradient and the activation that it would be exchanged with: both sides send.
TEST(Estimate, RefusesPairedExchangeThatNeverEnds) {
  Costs costs = with_messages(1, 1);
  costs.exchange = Exchange::paired;
  const Schedule schedule = parse_schedule(
      "rank 0: F0 >a0 F1 >a1 <g0 B0 <g1 B1\n"
      "rank 1: <a0 F0 B0 >g0 <a1 F1 B1 >g1\n");
  EXPECT_TRUE(check(costs, schedule).empty()) << "the exchange is a pair at both ends";
  const Schedule crossed = parse_schedule(
      "rank 0: F0 >a0 F1 >a1 <g0 I0 W0 <g1 I1 W1\n"
      "rank 1: <a0 F0 I0 >g0 W0 <a1 F1 I1 >g1 W1\n");
  const Problems problems = check(costs, crossed);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].where, "rank 0, action 3");
  EXPECT_NE(problems[0].what.find(">a1 waits for ever for rank 1"), std::string::npos);
  EXPECT_THROW(estimate(crossed, costs), ConfigError);
  costs.exchange = Exchange::asynchronous;
  EXPECT_TRUE(check(costs, crossed).empty());
}

TEST(Estimate, NamesEveryCostThatDoesNotFit) {
  const PipelineShape shape{2, 4, 3};
  EXPECT_TRUE(check(compute_costs(1, 2), shape).empty());
  Costs costs;
  costs.stages.resize(3);
  costs.stages[1].forward = -1;
  costs.edges.resize(2);
  costs.edges[0].gradient = std::numeric_limits<double>::quiet_NaN();
  costs.latency = std::numeric_limits<double>::infinity();
  costs.step = -2;
  costs.encoded = {{true}};
  std::vector<std::string> where;
  for (const Problem& problem : check(costs, shape)) where.push_back(problem.where);
  EXPECT_EQ(where,
            (std::vector<std::string>{"costs.stages", "costs.stages[1].forward", "costs.edges",
                                      "costs.edges[0].gradient", "costs.encoded",
                                      "costs.encoded[0]", "costs.latency", "costs.step"}));
  EXPECT_EQ(check(costs, shape)[0].what,
            "there are 3 for 4 stages; give one for all, or one for each");
}

TEST(Estimate, IsFastEnoughToBeAskedOften) {
  const Schedule schedule = make(ScheduleKind::interleaved, 8, 64, 4);
  Costs costs = with_messages(0.3, 0.3);
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_GT(estimate(schedule, costs).makespan, 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best, 0.010);
#endif
}

}  // namespace
}  // namespace laconic
