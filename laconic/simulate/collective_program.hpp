// simulate/collective_program.hpp — a collective as strands: the hops of its plan, lane by lane,
// with the messages that walk.cpp would send and what its codecs cost.
//
// Members that are ranks of their own walk the plan as it is (collective/plan.hpp). Where several
// members are of one class, all of these do the same at the same time, on chunks of mean size. What
// the members of one class send those of another in a round is a message for each way between them
// (rank_class.hpp), and a class goes on when all that come to it are there:
//
//   direct    to all others, twice in an all-reduce
//   ring      to the next member, who may be of another class, for each round. What comes from
//             another class holds up this one as many rounds later as it has members before its
//             last
//   doubling  to the partner, for each round
//   gathered  to all others, once
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
