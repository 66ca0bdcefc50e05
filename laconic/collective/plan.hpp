// collective/plan.hpp — a collective operation as plain data: for every member, a list of hops.
//
// A buffer is cut into chunks, as a rule one per member (its owner). At a member
// a chunk has `values`, its elements in the buffer, and while it travels a
// `message`, its frame. A hop is one small act on a chunk. Pure functions build
// plans, prove them, print them and count them; collective/run.hpp walks one
// member's list over an engine.
//
//   member 0:  e1 >1 e2 >2 | o <1 + <2 + = | r >1 >2 | <1 ! <2 !      direct all-reduce of 3
//
// What one could get wrong: between two members messages carry no number. The
// k-th receive from a peer takes the k-th message that the peer sends, so the
// order of sends to one peer is part of the plan. A member has one message and
// one sum at hand at a time; `add` and `store` use the message up, finish_sum the
// sum. And a value that several members share is always decoded from the same
// message, at its maker too: `encode_result` and `encode_for_all` replace the maker's own values
// by what the others will see. (Doubling is the exception: everybody computes the same sum in
// the same order, so nothing that travels in it may be rounded.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

enum class Act : std::uint8_t {
  encode,          // e  message = values, by the link to `peer` and its memory
  encode_result,   // r  message = values, by the owner's link; values = what the message says
  encode_for_all,  // a  the same of a contribution, by its maker's link to all and its memory
  send,            // >  message leaves for `peer`
  receive,         // <  message = what comes from `peer`
  store,           // !  values = what the message says
  add,             // +  sum = sum and what the message says; the first one sets the sum
  add_own,         // o  the same with the member's own values
  finish_sum,      // =  values = sum
};

inline constexpr int kNoChunk = -1;  // what the empty messages of a barrier carry

struct Hop {
  Act act = Act::send;
  int chunk = 0;
  int peer = 0;  // a member; for encode, send and receive, elsewhere 0
  bool operator==(const Hop&) const = default;
};

constexpr bool has_peer(Act act) {
  return act == Act::encode || act == Act::send || act == Act::receive;
}

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,  // member i ends with the sum of chunk i; the rest of its buffer is undefined
  all_gather,      // member i brings chunk i
  broadcast,       // member 0 brings all, which is one chunk
  all_to_all,      // chunk i * members + j goes from i to j
  barrier,         // no chunks
};
enum class Algorithm : std::uint8_t {
  direct,    // everything goes straight to its owner and from there to all: sums in member order
  ring,      // to the next member only: sums in an order that differs by chunk
  doubling,  // whole buffers to ever farther partners, for small ones: log2(n) rounds
  tree,      // broadcast
  gathered,  // whole buffers to all, each encoded once, and everybody adds: sums in member order
};

struct Plan {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int members = 1;
  int chunks = 1;
  std::vector<std::vector<Hop>> by_member;
  bool operator==(const Plan&) const = default;
};

// Requires: members >= 1, and an algorithm that the kind has (algorithms_of). With one member the
// lists are empty.
Plan make_plan(CollectiveKind kind, Algorithm algorithm, int members);
std::vector<Algorithm> algorithms_of(CollectiveKind kind);  // the usual one first
int chunks_of(CollectiveKind kind, Algorithm algorithm, int members);
std::string_view name_of(CollectiveKind kind);  // "all_reduce"
std::string_view name_of(Algorithm algorithm);  // "direct"
std::optional<Algorithm> algorithm_named(std::string_view name);

// The algorithm for so many bytes a member. A small sum is a matter of rounds: doubling, unless
// what travels is rounded. It adds in another order than direct does, but in the same on all
// members. Everything else goes direct, which adds in member order and has the fewest rounds at no
// more bytes than a ring; a broadcast goes by tree.
Algorithm choose(CollectiveKind kind, std::uint64_t bytes, int members, bool lossy);

// Every way in which the plan is not what its kind promises: a contribution that is missing or
// counted twice, a message that nobody takes, an order that cannot end, members that end with
// different results (that is, not decoded from the same messages), a direct or gathered sum that is
// not in member order. Where: "member 2, hop 7".
Problems check(const Plan& plan);

// What a member sends: chunks, by index, once per message. Counters must equal this exactly.
std::vector<int> chunks_sent(const Plan& plan, int member);
// Longest chain of messages that depend on each other. Requires: check(plan) is empty.
int rounds(const Plan& plan);

// A title and a line for each member, as above. Acts are signs with the peer behind; `|` stands
// between taking and giving. A chunk is named, as in ">1:2", where it is not the obvious one: the
// peer's for e and for < with !, the member's own for a, o, r and for < with +, and the one before
// for all the rest.
std::string to_text(const Plan& plan);

// Elements of a buffer, cut in `chunks` as evenly as boundaries at multiples of `grain` allow.
// Returns chunks + 1 offsets; chunks may be empty.
std::vector<std::uint64_t> cut(std::uint64_t elements, int chunks, std::uint64_t grain);

}  // namespace laconic
