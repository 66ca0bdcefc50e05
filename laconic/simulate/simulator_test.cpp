#include "laconic/simulate/simulator.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "laconic/base/index.hpp"

namespace laconic {
namespace {

constexpr double kExact = 1e-9;

// Ranks on hosts of their own, with a full duplex card of 100 bytes per second each; strand i is
// the main one of rank i, handlers come behind.
RunProgram hosts_program(int ranks, double latency = 0) {
  RunProgram program{.ranks = ranks, .segment_bytes = 100};
  for (int rank = 0; rank < ranks; ++rank) {
    program.workers.push_back({.rank = rank, .is_main = true});
    program.strands.push_back({.worker = rank, .starts_alone = true, .acts = {}});
    program.network.host_of_rank.push_back(rank);
    program.network.group_of_host.push_back(0);
    program.network.hosts.push_back({2 * rank, 2 * rank + 1, latency / 2});
    program.network.inside.push_back({});
    for (int way = 0; way < 2; ++way) program.network.bytes_per_second.push_back(100);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    program.handlers.push_back(static_cast<int>(program.workers.size()));
    program.workers.push_back({.rank = rank});
  }
  program.network.groups.push_back({});
  return program;
}

void add(RunProgram& program, int strand, StrandOp op, int index_or_seconds) {
  const bool is_compute = op == StrandOp::compute;
  program.strands[index(strand)].acts.push_back(
      {op, WorkKind::forward, is_compute ? 0 : index_or_seconds,
       is_compute ? static_cast<double>(index_or_seconds) : 0});
}

int add_message(RunProgram& program, int from, int to, double bytes, std::uint64_t key = 0) {
  program.messages.push_back(
      {.from = from, .to = to, .traffic = Traffic::pp_activation, .key = key, .bytes = bytes});
  return static_cast<int>(program.messages.size()) - 1;
}

TEST(Simulator, AMessageTakesItsBytesAndItsLatency) {
  RunProgram program = hosts_program(2, 0.25);
  const int message = add_message(program, 0, 1, 300);
  program.messages[0].send_seconds = 0.5;
  program.messages[0].receive_seconds = 0.125;
  add(program, 0, StrandOp::compute, 2);
  add(program, 0, StrandOp::send, message);
  add(program, 1, StrandOp::wait, message);
  const RunTimes times = simulate(program);
  EXPECT_NEAR(times.seconds, 2 + 0.5 + 3 + 0.25 + 0.125, kExact);
  EXPECT_NEAR(times.ranks[1].bubble, 2, kExact);
  EXPECT_NEAR(times.ranks[1].exposed[index(static_cast<int>(Traffic::pp_activation))], 3.875,
              kExact);
  EXPECT_NEAR(times.ranks[0].work[0], 2, kExact);
  EXPECT_NEAR(times.ranks[0].idle, 3.875, kExact);
  EXPECT_EQ(times.link_bytes, (std::vector<double>{300, 0, 0, 300}));
}

TEST(Simulator, MessagesOfDifferentPairsShareAnOutlet) {
  RunProgram program = hosts_program(3);
  for (int to = 1; to <= 2; ++to) {
    add(program, 0, StrandOp::send, add_message(program, 0, to, to == 1 ? 100 : 300));
    add(program, to, StrandOp::wait, to - 1);
  }
  const RunTimes times = simulate(program);
  EXPECT_NEAR(times.messages[0].end, 2, kExact);
  EXPECT_NEAR(times.messages[1].end, 4, kExact);
}

TEST(Simulator, OfOnePairTheMoreUrgentLeavesFirstButNotWithinASegment) {
  RunProgram program = hosts_program(2);
  const int late = add_message(program, 0, 1, 300, 9), soon = add_message(program, 0, 1, 50, 1);
  add(program, 0, StrandOp::send, late);
  add(program, 0, StrandOp::compute, 1);  // the first segment has just left
  program.strands[0].acts.back().seconds = 1.5;
  add(program, 0, StrandOp::send, soon);
  add(program, 1, StrandOp::wait, soon);
  add(program, 1, StrandOp::wait, late);
  const RunTimes times = simulate(program);
  EXPECT_NEAR(times.messages[1].end, 2.5, kExact);
  EXPECT_NEAR(times.messages[0].end, 3.5, kExact);
  EXPECT_NEAR(times.messages[0].begin, 0, kExact);
  EXPECT_EQ(times.link_bytes[0], 350);
}

TEST(Simulator, FourWorkersOnTwoCoresTakeTwiceAsLong) {
  RunProgram program = hosts_program(4);
  program.cores = {2};
  for (int rank = 0; rank < 4; ++rank) {
    program.workers[index(rank)].processor = 0;
    add(program, rank, StrandOp::compute, rank < 3 ? 1 : 3);
  }
  const RunTimes times = simulate(program);
  EXPECT_NEAR(times.seconds, 2 + 2, kExact);  // alone from 2 s on, with 2 s of work left
  EXPECT_NEAR(times.ranks[0].work[0], 2, kExact);
  EXPECT_NEAR(times.ranks[3].work[0], 4, kExact);
}

TEST(Simulator, StrandsOfOneWorkerTakeTurnsByKey) {
  RunProgram program = hosts_program(1);
  for (int strand = 0; strand < 3; ++strand) {
    program.strands.push_back({.worker = 1,
                               .key = strand == 2 ? 0ULL : 5ULL,
                               .traffic = Traffic::dp_gradient,
                               .acts = {}});
    add(program, 1 + strand, StrandOp::compute, 1);
    program.spans.push_back({});
    add(program, 1 + strand, StrandOp::end, strand);
    add(program, 0, StrandOp::start, 1 + strand);
  }
  for (int strand = 1; strand <= 3; ++strand) add(program, 0, StrandOp::join, strand);
  const RunTimes times = simulate(program);
  EXPECT_NEAR(times.spans[0].end, 1, kExact);  // had begun already
  EXPECT_NEAR(times.spans[2].end, 2, kExact);
  EXPECT_NEAR(times.spans[1].end, 3, kExact);
  EXPECT_NEAR(times.ranks[0].exposed[index(static_cast<int>(Traffic::dp_gradient))], 3, kExact);
}

TEST(Simulator, WhatLeavesAGroupTakesItsUplink) {
  RunProgram program = hosts_program(4);
  program.network.group_of_host = {0, 0, 1, 1};
  program.network.groups = {{8, 9, 0.5}, {10, 11, 0.25}};
  for (int link = 0; link < 4; ++link) program.network.bytes_per_second.push_back(50);
  for (int rank = 0; rank < 2; ++rank) {
    add(program, rank, StrandOp::send, add_message(program, rank, rank + 2, 100));
    add(program, rank + 2, StrandOp::wait, rank);
  }
  EXPECT_NEAR(simulate(program).seconds, 200.0 / 50 + 0.75, kExact);
}

TEST(Simulator, RanksOfOneHostNeedNoLink) {
  RunProgram program = hosts_program(2, 3);
  program.network.host_of_rank = {0, 0};
  add(program, 0, StrandOp::send, add_message(program, 0, 1, 100));
  add(program, 1, StrandOp::wait, 0);
  EXPECT_NEAR(simulate(program).seconds, 0, kExact);
}

TEST(Simulator, AProgramThatNeverEndsIsRefusedWithWhatWaits) {
  RunProgram program = hosts_program(2);
  add_message(program, 0, 1, 100);
  add(program, 1, StrandOp::wait, 0);
  try {
    simulate(program);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("strand 1 of rank 1 waits at act 0 (message 0)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace laconic
