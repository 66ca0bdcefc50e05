#include "laconic/schedule/selection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {
namespace {

Schedule one_f_one_b(int ranks, int microbatches) {
  return lowered(one_forward_one_backward({ranks, ranks, microbatches}));
}

int count(const GradientSends& sends) {
  int selected = 0;
  for (const auto& edge : sends) selected += static_cast<int>(std::ranges::count(edge, true));
  return selected;
}

Costs engine(double message, Exchange exchange, bool full_duplex, double encoded = 0) {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}};
  costs.edges = {{message, message, encoded}};
  costs.exchange = exchange;
  costs.full_duplex = full_duplex;
  return costs;
}

double makespan(const Schedule& schedule, Costs costs, const GradientSends& encoded) {
  costs.encoded = encoded;
  return estimate(schedule, costs).makespan;
}

double makespan(const Schedule& schedule, const Costs& costs, When when) {
  return makespan(schedule, costs, select_gradient_sends(schedule, when, costs));
}

TEST(Selection, NamesAreReadAsTheyAreWritten) {
  for (const When when : {When::always, When::epilogue, When::critical, When::never})
    EXPECT_EQ(parse_when(name_of(when)), when);
  try {
    parse_when("sometimes");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "'sometimes' does not say when: there are always, epilogue, critical, never");
  }
}

TEST(Selection, EpilogueIsTheFormulaFor1F1B) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 20; ++n) {
      const Schedule schedule = one_f_one_b(p, n);
      const GradientSends sends = select_gradient_sends(schedule, When::epilogue, {});
      ASSERT_EQ(sends.size(), index(p - 1));
      for (int edge = 0; edge < p - 1; ++edge)
        for (int k = 0; k < n; ++k)
          EXPECT_EQ(sends[index(edge)][index(k)], k >= n - std::min(p - 1 - edge, n))
              << p << " " << n << " " << edge << " " << k;
      if (n >= p - 1) {
        EXPECT_EQ(count(sends), p * (p - 1) / 2);
      }
      EXPECT_EQ(count(select_gradient_sends(schedule, When::always, {})), n * (p - 1));
      EXPECT_EQ(count(select_gradient_sends(schedule, When::never, {})), 0);
    }
}

TEST(Selection, AllGradientsOfGpipeAreItsEpilogue) {
  for (int p = 2; p <= 6; ++p)
    for (int n = 1; n <= 8; ++n)
      EXPECT_EQ(count(select_gradient_sends(lowered(all_forward_all_backward({p, p, n})),
                                            When::epilogue, {})),
                n * (p - 1));
}

TEST(Selection, ZeroBubbleHasTheEpilogueOf1F1B) {
  for (int p = 2; p <= 8; ++p)
    for (int n = 1; n <= 16; ++n)
      EXPECT_EQ(select_gradient_sends(lowered(zero_bubble({p, p, n})), When::epilogue, {}),
                select_gradient_sends(one_f_one_b(p, n), When::epilogue, {}))
          << p << " " << n;
}

// The definition said the other way round: after an encoded gradient its sender takes no activation
// from the one that it goes to, and after one that is not encoded it does.
TEST(Selection, WithChunksNoActivationTravelsAgainstTheEpilogue) {
  for (int p = 2; p <= 6; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int n = p; n <= 4 * p; n += p) {
        const Schedule schedule = lowered(interleaved({p, p * v, n}));
        const GradientSends sends = select_gradient_sends(schedule, When::epilogue, {});
        EXPECT_GT(count(sends), 0);
        for (const auto& actions : schedule.by_rank)
          for (auto send = actions.begin(); send != actions.end(); ++send) {
            if (send->op != Op::send_gradient) continue;
            const int peer = rank_of_stage(schedule, send->stage - 1);
            const bool meets_one = std::any_of(send, actions.end(), [&](const Action& a) {
              return a.op == Op::recv_activation && rank_of_stage(schedule, a.stage - 1) == peer;
            });
            EXPECT_EQ(sends[index(send->stage - 1)][index(send->microbatch)], !meets_one);
          }
      }
}

// Whatever is selected is a message: edges within a rank, and the edge that is not there before
// stage 0, have none.
TEST(Selection, SelectsOnlyWhatTravels) {
  for (const When when : {When::always, When::epilogue, When::critical}) {
    const Schedule alone = lowered(interleaved({1, 3, 2}));
    const GradientSends sends =
        select_gradient_sends(alone, when, engine(1, Exchange::asynchronous, true));
    EXPECT_EQ(sends.size(), 2u);
    EXPECT_EQ(count(sends), 0);
  }
}

TEST(Selection, EpilogueSavesAllThereIsUnderMegatronsExchange) {
  for (int p = 2; p <= 8; ++p)
    for (int n = p; n <= 20; ++n)
      for (const double c : {0.01, 0.3, 1.0}) {
        const Schedule schedule = one_f_one_b(p, n);
        const Costs costs = engine(c, Exchange::paired, true);
        const GradientSends epilogue = select_gradient_sends(schedule, When::epilogue, costs);
        GradientSends steady = epilogue;
        for (auto& edge : steady) edge.flip();
        const double base = makespan(schedule, costs, When::never);
        EXPECT_NEAR(base - makespan(schedule, costs, epilogue), (p - 1) * c, 1e-9);
        EXPECT_NEAR(base - makespan(schedule, costs, steady), 0, 1e-9);
        EXPECT_NEAR(base - makespan(schedule, costs, When::always), (p - 1) * c, 1e-9);
      }
}

double share_of_epilogue(int ranks, int microbatches, const Costs& costs) {
  const Schedule schedule = one_f_one_b(ranks, microbatches);
  const double base = makespan(schedule, costs, When::never);
  return (base - makespan(schedule, costs, When::epilogue)) /
         (base - makespan(schedule, costs, When::always));
}

// Shares that another simulator found for three engines, to the per cent they were given in:
// here exactly 1, 3/32, 7/36, 3/14, 7/20, 3/50.
TEST(Selection, EpiloguesShareOfTheGainDependsOnTheEngine) {
  struct Row {
    int ranks, microbatches;
    Exchange exchange;
    bool full_duplex;
    double share;
  };
  const Row rows[] = {
      {4, 16, Exchange::paired, true, 1.00},       {4, 16, Exchange::paired, false, 0.09},
      {8, 16, Exchange::paired, false, 0.19},      {4, 16, Exchange::asynchronous, true, 0.21},
      {8, 16, Exchange::asynchronous, true, 0.35}, {4, 64, Exchange::asynchronous, true, 0.06},
  };
  for (const Row& row : rows)
    EXPECT_NEAR(
        share_of_epilogue(row.ranks, row.microbatches, engine(0.1, row.exchange, row.full_duplex)),
        row.share, 0.005)
        << row.ranks << " " << row.microbatches << " " << row.share;
}

// --- critical

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> schedules;
  for (int p = 2; p <= 5; ++p)
    for (int n = 1; n <= 7; ++n) {
      schedules.push_back(one_f_one_b(p, n));
      schedules.push_back(lowered(all_forward_all_backward({p, p, n})));
      schedules.push_back(lowered(zero_bubble({p, p, n})));
      if (n % p == 0) schedules.push_back(lowered(interleaved({p, 2 * p, n})));
    }
  return schedules;
}

// Every engine whose wires keep their order, with costs that differ from stage to stage.
std::vector<Costs> engines_for(const PipelineShape& shape, std::mt19937& random) {
  std::uniform_int_distribution<int> tenths(0, 20);
  const auto seconds = [&] { return tenths(random) / 10.0; };
  std::vector<Costs> engines;
  for (const Exchange exchange : {Exchange::asynchronous, Exchange::paired})
    for (const Wiring wiring : {Wiring::pairs, Wiring::hosts}) {
      Costs costs = engine(0.5, exchange, true, 0.1);
      costs.wiring = wiring;
      costs.latency = 0.05;
      engines.push_back(costs);
      for (int stage = 0; stage < shape.stages; ++stage) {
        costs.stages.resize(index(shape.stages));
        costs.stages[index(stage)] = {seconds(), seconds() + 0.1, seconds(), seconds(), seconds()};
      }
      costs.edges.clear();
      for (int edge = 0; edge < edge_count(shape); ++edge)
        costs.edges.push_back({seconds(), seconds(), seconds() / 4});
      engines.push_back(costs);
    }
  return engines;
}

template <class Body>
void for_each_case(const Body& body) {
  std::mt19937 random(7);
  for (const Schedule& schedule : small_schedules())
    for (const Costs& costs : engines_for(schedule.shape, random))
      if (check(costs, schedule).empty()) body(schedule, costs);
}

// Encoding what is dearer encoded is no gain, so "all" leaves that out.
GradientSends all_that_are_cheaper(const Schedule& schedule, const Costs& costs) {
  GradientSends sends = select_gradient_sends(schedule, When::always, costs);
  for (std::size_t edge = 0; edge < sends.size(); ++edge) {
    const EdgeCost& cost = costs.edges[costs.edges.size() == 1 ? 0 : edge];
    if (cost.encoded_gradient >= cost.gradient) sends[edge].assign(sends[edge].size(), false);
  }
  return sends;
}

TEST(Selection, CriticalIsAsFastAsAll) {
  int cases = 0;
  for_each_case([&](const Schedule& schedule, const Costs& costs) {
    const double all = makespan(schedule, costs, all_that_are_cheaper(schedule, costs));
    EXPECT_NEAR(makespan(schedule, costs, When::critical), all, 4e-9 * all)
        << to_text(schedule) << static_cast<int>(costs.exchange);
    ++cases;
  });
  EXPECT_GT(cases, 400);
}

TEST(Selection, OfTheCriticalNoneCanBeSpared) {
  for_each_case([](const Schedule& schedule, const Costs& costs) {
    GradientSends sends = select_gradient_sends(schedule, When::critical, costs);
    const double best = makespan(schedule, costs, sends);
    for (auto& edge : sends)
      for (std::size_t k = 0; k < edge.size(); ++k) {
        if (!edge[k]) continue;
        edge[k] = false;
        EXPECT_GT(makespan(schedule, costs, sends), best * (1 + 1e-10)) << to_text(schedule);
        edge[k] = true;
      }
  });
}

// For few messages all selections can be tried: none is faster, and this one is among those that
// are as fast.
TEST(Selection, NoSelectionIsFasterThanCritical) {
  std::mt19937 random(11);
  for (const Schedule& schedule :
       {one_f_one_b(2, 5), one_f_one_b(3, 4), one_f_one_b(4, 3), lowered(zero_bubble({3, 3, 4}))})
    for (const Costs& costs : engines_for(schedule.shape, random)) {
      if (!check(costs, schedule).empty()) continue;
      const double critical = makespan(schedule, costs, When::critical);
      const std::size_t edges = index(edge_count(schedule.shape)),
                        microbatches = index(schedule.shape.microbatches);
      for (unsigned bits = 0; bits < 1U << (edges * microbatches); ++bits) {
        GradientSends sends(edges, std::vector<bool>(microbatches));
        for (std::size_t i = 0; i < edges * microbatches; ++i)
          sends[i / microbatches][i % microbatches] = (bits >> i & 1U) != 0;
        EXPECT_GE(makespan(schedule, costs, sends), critical * (1 - 4e-9));
      }
    }
}

// What the exchange hides need not be encoded: only messages of the epilogue are left.
TEST(Selection, UnderMegatronsExchangeCriticalIsPartOfTheEpilogue) {
  for (int p = 2; p <= 6; ++p)
    for (int n = p; n <= 16; ++n) {
      const Schedule schedule = one_f_one_b(p, n);
      const Costs costs = engine(0.2, Exchange::paired, true);
      const GradientSends critical = select_gradient_sends(schedule, When::critical, costs);
      const GradientSends epilogue = select_gradient_sends(schedule, When::epilogue, costs);
      EXPECT_GE(count(critical), p - 1);
      for (std::size_t edge = 0; edge < critical.size(); ++edge)
        for (std::size_t k = 0; k < critical[edge].size(); ++k)
          EXPECT_LE(critical[edge][k], epilogue[edge][k]) << p << " " << n << " " << edge << k;
    }
}

TEST(Selection, CriticalIsNeverSlowerThanNoneEvenWhereWiresChangeTheirOrder) {
  for (int p = 2; p <= 6; ++p)
    for (int n = 1; n <= 10; ++n)
      for (const Wiring wiring : {Wiring::pairs, Wiring::hosts}) {
        Costs costs = engine(0.7, Exchange::asynchronous, false, 0.1);
        costs.wiring = wiring;
        const Schedule schedule = one_f_one_b(p, n);
        EXPECT_LE(makespan(schedule, costs, When::critical),
                  makespan(schedule, costs, When::never) + 1e-9)
            << p << " " << n;
      }
}

TEST(Selection, FreeMessagesAreNotWorthEncoding) {
  Costs costs;
  costs.stages = {{1, 2, 1, 1}};
  EXPECT_EQ(count(select_gradient_sends(one_f_one_b(4, 8), When::critical, costs)), 0);
  costs.edges = {{1, 1, 1}};
  EXPECT_EQ(count(select_gradient_sends(one_f_one_b(4, 8), When::critical, costs)), 0);
}

// --- stages

TEST(Selection, LateRanksHaveTimeForTheirSums) {
  for (int p = 1; p <= 8; ++p)
    for (int n = 1; n <= 12; ++n) {
      Costs costs = engine(0.25, Exchange::asynchronous, true);
      costs.stages[0].reduction = 100;
      const std::vector<double> slack = slack_of_ranks(one_f_one_b(p, n), costs);
      for (int rank = 0; rank < p; ++rank)
        EXPECT_NEAR(slack[index(rank)], rank * (2 + 0.25), 1e-9) << p << " " << n;
    }
}

// Sums that hold up messages on a shared outlet would make the slack that they are to use.
TEST(Selection, SlackIsWhatItIsBeforeAnySum) {
  const Schedule schedule = lowered(interleaved({2, 4, 2}));
  Costs costs = engine(0.1, Exchange::asynchronous, true);
  costs.wiring = Wiring::hosts;
  const std::vector<double> slack = slack_of_ranks(schedule, costs);
  costs.stages[0].reduction = 50;
  EXPECT_EQ(slack_of_ranks(schedule, costs), slack);
  EXPECT_GT(estimate(schedule, costs).compute_end[0], 50);
}

double end_by_hand(const std::vector<double>& slack, const std::vector<double>& exact,
                   const std::vector<double>& encoded, int k) {
  double end = 0;
  for (int rank = 0; rank < static_cast<int>(slack.size()); ++rank)
    end = std::max(end, (rank < k ? encoded : exact)[index(rank)] - slack[index(rank)]);
  return end;
}

TEST(Selection, ThreeOfFourStagesAreWorthEncodingInTheExample) {
  const std::vector<double> slack = {0, 0.2, 0.4, 0.6}, exact(4, 0.49), encoded(4, 0.075);
  const double ends[] = {0.49, 0.29, 0.09, 0.075, 0.075};
  for (int k = 0; k <= 4; ++k) EXPECT_NEAR(end_by_hand(slack, exact, encoded, k), ends[k], 1e-12);
  EXPECT_EQ(ranks_worth_encoding(slack, exact, encoded), 3);
}

TEST(Selection, RanksWorthEncodingIsTheSmallestThatIsAsFast) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> tenths(0, 30);
  std::set<int> seen;
  for (int round = 0; round < 5000; ++round) {
    const int ranks = 1 + round % 8;
    std::vector<double> slack, exact, encoded;
    for (int rank = 0; rank < ranks; ++rank) {
      slack.push_back(rank == 0 ? 0 : tenths(random) / 10.0);
      exact.push_back(tenths(random) / 10.0);
      encoded.push_back(exact.back() * tenths(random) / 40.0);
    }
    const int k = ranks_worth_encoding(slack, exact, encoded);
    const double all = end_by_hand(slack, exact, encoded, ranks);
    EXPECT_NEAR(end_by_hand(slack, exact, encoded, k), all, 1e-8);
    for (int fewer = 0; fewer < k; ++fewer)
      EXPECT_GT(end_by_hand(slack, exact, encoded, fewer), all);
    seen.insert(k);
  }
  EXPECT_EQ(seen.size(), 9u) << "all answers from 0 to 8 have occurred";
}

TEST(Selection, WithoutSlackAllRanksAreWorthEncoding) {
  EXPECT_EQ(ranks_worth_encoding({0, 0, 0}, {3, 3, 3}, {1, 1, 1}), 3);
  EXPECT_EQ(ranks_worth_encoding({0, 0, 0}, {1, 1, 1}, {1, 1, 1}), 0);
}

}  // namespace
}  // namespace laconic
