#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/test_schedule.hpp"

namespace laconic {
namespace {

// --- the verdict of somebody else: a network of queues and ranks that act in random order, with
// tensors that are there or not. Nothing is looked up ahead; what goes wrong, goes wrong on the
// way.

class Simulation {
 public:
  Simulation(const Schedule& schedule, unsigned seed) : schedule_(schedule), random_(seed) {}

  bool ends_well() {
    std::vector<std::size_t> next(schedule_.by_rank.size(), 0);
    for (;;) {
      std::vector<std::size_t> ready;
      for (std::size_t rank = 0; rank < next.size(); ++rank)
        if (next[rank] < schedule_.by_rank[rank].size() &&
            !blocks(schedule_.by_rank[rank][next[rank]]))
          ready.push_back(rank);
      if (ready.empty()) break;
      const std::size_t rank = ready[random_() % ready.size()];
      if (!act(schedule_.by_rank[rank][next[rank]++])) return false;
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank)
      if (next[rank] < schedule_.by_rank[rank].size()) return false;
    for (const auto& [wire, queue] : wires_)
      if (!queue.empty()) return false;
    return all_done();
  }

 private:
  using Tensor = std::pair<int, int>;  // stage, microbatch

  static std::pair<char, int> wire_of(const Action& a) {
    switch (a.op) {
      case Op::send_activation: return {'a', a.stage + 1};
      case Op::recv_activation: return {'a', a.stage};
      case Op::send_gradient: return {'g', a.stage - 1};
      default: return {'g', a.stage};
    }
  }

  bool blocks(const Action& a) {
    const bool receives = a.op == Op::recv_activation || a.op == Op::recv_gradient;
    return receives && wires_[wire_of(a)].empty();
  }

  bool take(const Action& a, std::set<Tensor>& into) {
    auto& queue = wires_[wire_of(a)];
    if (queue.front() != a.microbatch) return false;
    queue.pop_front();
    return into.insert({a.stage, a.microbatch}).second;
  }

  bool act(const Action& a) {
    const Tensor here{a.stage, a.microbatch};
    switch (a.op) {
      case Op::recv_activation: return take(a, inputs_);
      case Op::recv_gradient: return take(a, output_gradients_);
      case Op::send_activation:
        wires_[wire_of(a)].push_back(a.microbatch);
        return outputs_.contains(here) && a.stage + 1 < schedule_.shape.stages;
      case Op::send_gradient:
        wires_[wire_of(a)].push_back(a.microbatch);
        return input_gradients_.contains(here) && a.stage > 0;
      case Op::forward: return forward(a, here);
      case Op::backward: return backward(a, here) && weight(here);
      case Op::backward_input: return backward(a, here);
      case Op::backward_weight: return weight(here);
      case Op::prefetch: return prefetched_.insert(rank_of_stage(schedule_, a.stage)).second;
    }
    return false;
  }

  bool forward(const Action& a, const Tensor& here) {
    const bool is_first = a.stage == 0;
    if (!is_first && !inputs_.contains(here)) return false;
    if (is_here(a.stage + 1, a)) inputs_.insert({a.stage + 1, a.microbatch});
    return outputs_.insert(here).second;
  }

  bool backward(const Action& a, const Tensor& here) {
    const bool is_last = a.stage + 1 == schedule_.shape.stages;
    if (!outputs_.contains(here) || (!is_last && !output_gradients_.contains(here))) return false;
    if (is_here(a.stage - 1, a)) output_gradients_.insert({a.stage - 1, a.microbatch});
    return input_gradients_.insert(here).second;
  }

  // Whether the same rank has that stage, so that no message comes.
  bool is_here(int stage, const Action& a) const {
    return stage >= 0 && stage < schedule_.shape.stages &&
           rank_of_stage(schedule_, stage) == rank_of_stage(schedule_, a.stage);
  }

  bool weight(const Tensor& here) {
    return input_gradients_.contains(here) && summed_.insert(here).second;
  }

  int microbatches() const { return schedule_.shape.microbatches; }
  bool all_done() const {
    const auto stages = static_cast<std::size_t>(schedule_.shape.stages);
    const std::size_t all = stages * static_cast<std::size_t>(microbatches());
    return outputs_.size() == all && input_gradients_.size() == all && summed_.size() == all;
  }

  const Schedule& schedule_;
  std::minstd_rand random_;
  std::map<std::pair<char, int>, std::deque<int>> wires_;
  std::set<Tensor> inputs_, outputs_, output_gradients_, input_gradients_, summed_;
  std::set<int> prefetched_;
};

struct Tally {
  int good = 0;
  int bad = 0;
  int cycles = 0;  // bad ones with nothing wrong but the waits
};

void count(const Problems& problems, Tally& tally) {
  ++(problems.empty() ? tally.good : tally.bad);
  const bool is_cycle = std::ranges::all_of(problems, [](const Problem& problem) {
    return problem.what.find("; that rank waits at") != std::string::npos;
  });
  if (is_cycle && !problems.empty()) ++tally.cycles;
}

void compare(const Schedule& schedule, Tally& tally) {
  const Problems problems = check(schedule);
  const bool is_good = problems.empty();
  count(problems, tally);
  for (const unsigned seed : {1u, 2u})
    ASSERT_EQ(Simulation(schedule, seed).ends_well(), is_good) << picture_of_fault(schedule);
}

// Every action of every list to every other place.
template <class Body>
void for_each_move(const Schedule& schedule, const Body& body) {
  Schedule changed = schedule;
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
    const auto& list = schedule.by_rank[rank];
    for (std::size_t from = 0; from < list.size(); ++from)
      for (std::size_t to = 0; to < list.size(); ++to) {
        if (from == to) continue;
        auto& moved = changed.by_rank[rank];
        moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(from));
        moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(to), list[from]);
        body(changed);
        moved = list;
      }
  }
}

TEST(ScheduleCheck, AgreesWithASimulationWhenAnyActionIsMovedAnywhere) {
  Tally tally;
  for_each_shape(3, 4, 2, [&](ScheduleKind kind, const PipelineShape& shape) {
    if (shape.stages * shape.microbatches > 18) return;
    for_each_move(lowered(build(kind, shape)),
                  [&](const Schedule& changed) { compare(changed, tally); });
  });
  EXPECT_GT(tally.good, 3000);
  EXPECT_GT(tally.bad, 15000);
  EXPECT_GT(tally.cycles, 500);
}

TEST(ScheduleCheck, AgreesWithASimulationWhenNeighboursAreSwapped) {
  Tally tally;
  for_each_shape(5, 9, 3, [&](ScheduleKind kind, const PipelineShape& shape) {
    Schedule changed = lowered(build(kind, shape));
    for (auto& list : changed.by_rank)
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        std::swap(list[i], list[i + 1]);
        compare(changed, tally);
        std::swap(list[i], list[i + 1]);
      }
  });
  EXPECT_GT(tally.good, 5000);
  EXPECT_GT(tally.bad, 7000);
}

TEST(ScheduleCheck, AgreesWithASimulationWhenListsAreShuffledABit) {
  Tally tally;
  std::minstd_rand random(7);
  for (int round = 0; round < 20000; ++round) {
    Schedule changed =
        lowered(build(kScheduleKinds[random() % 2], {2 + round % 3, 2 + round % 3, 2}));
    for (int swaps = 1 + round % 7; swaps > 0; --swaps) {
      auto& list = changed.by_rank[random() % changed.by_rank.size()];
      const std::size_t i = random() % (list.size() - 1);
      std::swap(list[i], list[i + 1]);
    }
    compare(changed, tally);
  }
  EXPECT_GT(tally.good, 2000);
  EXPECT_GT(tally.bad, 15000);
  EXPECT_GT(tally.cycles, 50);
}

TEST(ScheduleCheck, AgreesWithASimulationWhenAnActionIsMissingOrRepeated) {
  Tally tally;
  for_each_shape(3, 3, 2, [&](ScheduleKind kind, const PipelineShape& shape) {
    const Schedule schedule = lowered(build(kind, shape));
    for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
      const auto& list = schedule.by_rank[rank];
      for (std::size_t i = 0; i < list.size(); ++i) {
        Schedule changed = schedule;
        auto& changed_list = changed.by_rank[rank];
        changed_list.erase(changed_list.begin() + static_cast<std::ptrdiff_t>(i));
        // A P is left to lowered().
        EXPECT_EQ(check(changed).empty(), list[i].op == Op::prefetch) << to_text(list[i]);
        if (has_microbatch(list[i].op) && shape.microbatches > 1) compare(changed, tally);
        changed = schedule;
        changed.by_rank[rank].push_back(list[i]);
        EXPECT_FALSE(check(changed).empty()) << to_text(list[i], true);
      }
    }
  });
  EXPECT_EQ(tally.good, 0);
  EXPECT_GT(tally.bad, 100);
}

TEST(ScheduleCheck, JudgesComputeAloneAsItWillBeLowered) {
  Tally tally;
  for_each_shape(3, 4, 2, [&](ScheduleKind kind, const PipelineShape& shape) {
    for_each_move(build(kind, shape), [&](const Schedule& changed) {
      const bool is_good = check(changed).empty();
      count(check(changed), tally);
      ASSERT_EQ(is_good, check(lowered(changed)).empty()) << picture_of_fault(changed);
    });
  });
  EXPECT_GT(tally.good, 500);
  EXPECT_GT(tally.bad, 3000);
  EXPECT_GT(tally.cycles, 100);
}

// --- what is said

TEST(ScheduleCheck, NamesRankPlaceActionAndWhatItWaitsFor) {
  struct Case {
    const char* schedule;
    const char* problems;
  };
  const Case cases[] = {
      // A cycle of waits, in a file with messages and in one without.
      {"rank 0: <g0 F0 >a0 B0\nrank 1: <a0 F0 B0 >g0",
       "rank 0, action 0 (<g0): waits for rank 1, action 3 (>g0); that rank waits at action 0 "
       "(<a0)\n"
       "rank 1, action 0 (<a0): waits for rank 0, action 2 (>a0); that rank waits at action 0 "
       "(<g0)\n"},
      {"rank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1",
       "rank 0, action 1 (B0): waits for rank 1, action 2 (B0); that rank waits at action 1 (F1)\n"
       "rank 1, action 1 (F1): waits for rank 0, action 2 (F1); that rank waits at action 1 "
       "(B0)\n"},
      {"rank 0: F0 F1 B0 B1\nrank 1: F1 F0 B0 B1",
       "rank 1, action 0 (F1): is taken where >a0 comes, rank 0, action 0 (F0)\n"},
      {"rank 0: F0 >a0 F1 >a1 <g0 B0 <g1 B1\nrank 1: <a0 F0 <a1 F1 B1 >g1 B0 >g0",
       "rank 0, action 4 (<g0): is taken where >g1 comes, rank 1, action 5 (>g1)\n"},
      {"rank 0: F0 B0\nrank 1: B0 F0",
       "rank 1, action 0 (B0): comes before action 1 (F0), which it needs\n"},
      {"rank 0: F0 >a0 B0 <g0\nrank 1: <a0 F0 B0 >g0",
       "rank 0, action 2 (B0): comes before action 3 (<g0), which it needs\n"},
      {"rank 0: F0 >a0 <g0 B0\nrank 1: <a0 F0 B0",
       "rank 0, action 2 (<g0): waits for >g0, which rank 1 never sends\n"
       "rank 1: >g0 is missing\n"},
      {"rank 0: F0 F0 B0 I0",
       "rank 0, action 1 (F0): is there twice, first as action 0\n"
       "rank 0, action 3 (I0): action 2 (B0) is there as well\n"},
      {"rank 0: F0 I0 F1 W1 F4 B4",
       "rank 0: B2 ... B3 are missing\nrank 0: F2 ... F3 are missing\n"
       "rank 0: I1 is missing\nrank 0: W0 is missing\n"},
      {"rank 0: F0 B0 P P", "rank 0, action 3 (P): is there twice, first as action 2\n"},
      {"rank 0: 0F0 1F0 1P 0P 1B0 0B0",
       "rank 0, action 3 (0P): a rank has one P, which is action 2 already\n"},
      {"rank 0: 0F0 0>a0 1F0 1B0 0B0",
       "rank 0, action 1 (0>a0): no other rank has the stage after stage 0\n"},
      {"rank 0: <a0 F0 >a0 <g0 B0\nrank 1: <a0 F0 B0 >g0",
       "rank 0, action 0 (<a0): no other rank has the stage before stage 0\n"},
      {"rank 0: 1F0 0B0\nrank 1: 1B0 1F1", "rank 0, action 0 (1F0): stage 1 lives on rank 1\n"},
  };
  for (const Case& c : cases) {
    const std::string found = lines(check(parse_schedule(c.schedule)));
    EXPECT_EQ(found, c.problems) << c.schedule;
  }
}

TEST(ScheduleCheck, RefusesWhatIsNoSchedule) {
  const std::vector<Action> list = {{Op::forward, 0, 0}, {Op::backward, 0, 0}};
  EXPECT_EQ(lines(check(Schedule{{2, 2, 1}, {list}})), "schedule: 1 lists for 2 ranks\n");
  EXPECT_EQ(lines(check(Schedule{{0, 0, 1}, {}})), "schedule: 0 lists for 0 ranks\n");
  EXPECT_EQ(lines(check(Schedule{{2, 3, 1}, {list, list}})),
            "schedule: 3 stages are no multiple of 2 ranks\n");
  EXPECT_EQ(lines(check(Schedule{{1, 1, 0}, {list}})), "schedule: 0 microbatches\n");
  EXPECT_EQ(lines(check(Schedule{{1, 1, 1}, {{{Op::forward, 7, 0}, {Op::backward, 0, -1}}}})),
            "rank 0, action 0 (7F0): there is no stage 7 among 1\n"
            "rank 0, action 1 (0B-1): there is no microbatch -1 among 1\n");
  EXPECT_EQ(picture_of_fault(Schedule{{2, 2, 1}, {list}}), "rank 0:  F0 B0\n1 lists for 2 ranks\n");
}

TEST(ScheduleCheck, MarksFaultsUnderTheirActions) {
  EXPECT_EQ(picture_of_fault(parse_schedule("rank 0: F0 >a0 <g0 B0 F1 >a1 <g1 B1\n"
                                            "rank 1: <a0 F0 <a1 F1 B0 >g0 B1 >g1")),
            "rank 0:  F0 >a0 <g0 B0 F1 >a1 <g1 B1\n"
            "                ^^^ waits for rank 1, action 5 (>g0); that rank waits at action 2 "
            "(<a1)\n"
            "rank 1:  <a0 F0 <a1 F1 B0 >g0 B1 >g1\n"
            "                ^^^ waits for rank 0, action 5 (>a1); that rank waits at action 2 "
            "(<g0)\n");
  EXPECT_EQ(picture_of_fault(parse_schedule("rank 0: B0 F0 F1")),
            "rank 0:  B0 F0 F1\n"
            "         ^^ comes before action 1 (F0), which it needs\n"
            "         B1 is missing\n");
  const Schedule good = build(ScheduleKind::gpipe, {2, 2, 2});
  EXPECT_EQ(picture_of_fault(good), to_text(good));
}

}  // namespace
}  // namespace laconic
