// schedule/estimate.hpp — the same walk with a clock instead of a network: how long, how much
// memory.
//
// What one could get wrong: `seconds` of a message is how long it occupies its
// wire (bytes / rate); `latency` comes on top and occupies nothing. A wire serves
// its messages in the order in which they are ready. Which messages share a wire
// is the wiring:
//
//   pairs   every ordered pair of ranks has its own (full duplex), or every pair one (half)
//   hosts   all that a rank sends goes through its one outlet; with half duplex also all
//           that it receives
//
// Sends never hold up the computation, unless exchange is `paired`: then a send
// and the receive that stands next to it with the same peer are one blocking
// operation that both ranks enter together and leave when both messages are
// through, as Megatron's steady state does; and all other messages block both
// sides, too.
#pragma once

#include <vector>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

enum class Wiring : std::uint8_t { pairs, hosts };
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
  double encoded_gradient = 0;  // of one that GradientSends selects
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

// When something happened: compute on a rank, a message on a wire, or a sum.
struct Span {
  Action action;  // of the rank that acts; for messages the send
  int rank = 0;
  double begin = 0;
  double end = 0;
};

struct Timing {
  double makespan = 0;                // of the whole step, reductions and `step` included
  std::vector<double> compute_end;    // per rank: its last compute action
  std::vector<double> busy;           // per rank: computing
  std::vector<double> idle;           // per rank: makespan - busy
  std::vector<int> live_activations;  // per rank, over its stages: the most at any time
  std::vector<Span> compute;          // by rank, then in order
  std::vector<Span> messages;         // in the order of their begin
  std::vector<Span> reductions;
};

// Requires: check(schedule) and check(costs, shape) are empty; `schedule` is lowered.
Timing estimate(const Schedule& schedule, const Costs& costs);

}  // namespace laconic
