// simulate/collective_program.hpp — a collective as strands: the hops of its plan, lane by lane,
// with the messages that walk.cpp would send and what its codecs cost.
//
// Members that are ranks of their own walk the plan as it is (collective/plan.hpp). Where several
// members are of one class, all are taken to do the same at the same time, on chunks of mean size:
//
//   direct    one message to each class, of as many flows as there are members
//   ring      a message to oneself for each round; classes begin together
//   doubling  the same, for each round
//   tree      the same
#pragma once

#include <cstdint>
#include <map>

#include "laconic/collective/run.hpp"
#include "laconic/simulate/program_builder.hpp"

namespace laconic {

// By rank: the strand to start and to join.
using ExchangeStrands = std::map<int, int>;

ExchangeStrands add_collective(ProgramBuilder& builder, const CollectiveSpec& spec,
                               std::uint64_t key);

}  // namespace laconic
