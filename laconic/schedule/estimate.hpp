// schedule/estimate.hpp — times a schedule: how long it takes, how much memory it needs.
//
// What one could get wrong: `seconds` of a message is how long it occupies its
// wire (bytes / rate); `latency` comes on top and occupies nothing. A wire serves
// its messages in the order in which they are ready. Which messages share a wire
// is the wiring:
//
//   pairs     every ordered pair of ranks has its own (full duplex), or every pair one (half)
//   hosts     all that a rank sends goes through its one outlet; with half duplex also all
//             that it receives
//   switched  the same with an inlet for all that it receives, and messages of different
//             pairs do not queue but share both evenly, as TCP does over a switch. Nearest to
//             what is measured, but without slack: select_gradient_sends() takes it as hosts
//
// Sends never hold up the computation, unless exchange is `paired`: then a send
// and the receive that stands next to it with the same peer, in the lists of
// both, are one blocking operation that both ranks enter together and leave when
// both messages are through, as Megatron's steady state does; and all other
// messages block both sides, too. Not every schedule can be run that way: where W
// or another chunk stands between send and receive, two ranks may end up sending
// to each other, each waiting for the other to receive.
//
// Left out: the time that encoding takes (add it to the stage that does it), and everything that is
// not the same in each step.
#pragma once

#include <vector>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

enum class Wiring : std::uint8_t { pairs, hosts, switched };
enum class Exchange : std::uint8_t { asynchronous, paired };

struct StageCost {
  double forward = 1;
  double backward = 2;         // both halves at once
  double backward_input = 1;   // alone
  double backward_weight = 1;  // alone
  double reduction = 0;        // how long the stage's sums over other ranks occupy the outlet
};

struct EdgeCost {
  double activation = 0;  // seconds of a message
  double gradient = 0;
  double encoded_gradient = 0;  // a gradient that GradientSends selects
};

// Which gradient messages are encoded: [edge][microbatch]. Empty: none.
using GradientSends = std::vector<std::vector<bool>>;

struct Costs {
  std::vector<StageCost> stages;  // by stage, or one for all
  std::vector<EdgeCost> edges;    // by edge, or one for all; empty: messages cost nothing
  double latency = 0;
  double step = 0;  // after everything: update and agreement
  Wiring wiring = Wiring::pairs;
  bool full_duplex = true;
  Exchange exchange = Exchange::asynchronous;
  GradientSends encoded;
};
// Every reason why they do not fit the shape.
Problems check(const Costs& costs, const PipelineShape& shape);
// The same, and where a paired exchange would never end. Requires: check(lowered) is empty.
Problems check(const Costs& costs, const Schedule& lowered);

// When something happened: compute on a rank, or a message on a wire.
struct Span {
  Action action;  // for messages the send
  int rank = 0;
  double begin = 0;  // for messages: the first byte is on the wire
  double end = 0;    // for messages: the receiver has it, so latency is included
};

// When a stage's sums over other ranks occupied the outlet of its rank. They begin when the last B
// or W of the stage ends, or when the outlet is free; a gradient that this B sends goes before.
struct Reduction {
  int stage = 0;
  int rank = 0;
  double begin = 0;
  double end = 0;
};

struct Timing {
  double makespan = 0;                // the whole step, reductions and `step` included
  std::vector<double> compute_end;    // per rank: its last compute action
  std::vector<double> busy;           // per rank: computing
  std::vector<double> idle;           // per rank: makespan - busy
  std::vector<int> live_activations;  // per rank, over its stages: the most at any time
  std::vector<Span> compute;          // by rank, then in order
  std::vector<Span> messages;         // in the order of their begin
  std::vector<Reduction> reductions;  // by rank, then in order
};

// Requires: check(schedule) and check(costs, schedule) are empty; `schedule` is lowered. Throws
// ConfigError where a paired exchange never ends.
Timing estimate(const Schedule& schedule, const Costs& costs);

}  // namespace laconic
