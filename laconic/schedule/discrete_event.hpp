// schedule/discrete_event.hpp — the discrete-event simulation behind estimate.hpp and
// selection.hpp: what took how long, and who waited for whom.
//
// Two acts, so that a selection can time one schedule often: compile() numbers
// what takes time (events) and finds who sends what to whom; walk() runs the
// clock. It records each wait, "this begins no earlier than that ends": an event
// begins at the latest of its waits. So the waits are the graph of the schedule,
// with the order in which wires served their messages, and slack is one pass over
// it from the end.
//
// What one could get wrong: a message ends here when its wire is free again. It
// arrives `latency` later, which is the lag of a wait for it.
#pragma once

#include <array>
#include <vector>

#include "laconic/schedule/estimate.hpp"

namespace laconic::part {

inline constexpr int kNone = -1;

enum class EventKind : std::uint8_t { compute, message, reduction };

struct Event {
  EventKind kind = EventKind::compute;
  Action action;  // for messages the send, for reductions what they begin after
  int rank = 0;   // that acts
  // For messages alone:
  int peer = kNone;  // that receives
  int wire = kNone;  // a number for each ordered pair; 2 i and 2 i + 1 are opposite
};

// A blocking message, or two that are exchanged: both ranks enter it together and leave it
// together. Messages stand by rank of the sender, which is the order on a half duplex wire.
struct PairedExchange {
  std::array<int, 2> ranks = {kNone, kNone};
  std::vector<int> messages;  // events
};

enum class StepKind : std::uint8_t { compute, send, receive, meet, reduce };

struct Step {
  StepKind kind = StepKind::compute;
  int index = 0;   // which event or meeting
  int action = 0;  // where in the rank's list
};

struct EventProgram {
  PipelineShape shape;
  std::vector<std::vector<Step>> by_rank;
  std::vector<Event> events;  // compute by rank and in its order; then messages, then reductions
  std::vector<PairedExchange> meetings;
  int wires = 0;
};

// Requires: check(lowered) is empty.
EventProgram compile(const Schedule& lowered, Exchange exchange);

struct Wait {  // begin of `later` >= end of `earlier` + lag
  int earlier = 0;
  int later = 0;
  double lag = 0;
};

struct Walk {
  std::vector<double> seconds, begin, end;  // by event
  std::vector<Wait> waits;                  // by `later`, in the order in which those began
  std::vector<int> stuck_at;                // by rank: the step that it never left, or kNone
  double last_end = 0;  // when all is over, arrivals included; without Costs::step
};

// Requires: check(costs, program.shape) is empty.
Walk walk(const EventProgram& program, const Costs& costs);
// The same for Wiring::switched, and records no waits. Requires: exchange is asynchronous.
Walk flow(const EventProgram& program, const Costs& costs);

// Says for each event how much later it could end without moving last_end, if wires served messages
// in the same order.
std::vector<double> slack_of_events(const EventProgram& program, const Walk& walk,
                                    const Costs& costs);

const StageCost& cost_of_stage(const Costs& costs, int stage);
double seconds_of_event(const Costs& costs, const Event& event);

}  // namespace laconic::part
