// simulate/simulator.hpp — runs the clock over a RunProgram: when everything happens.
//
//   computing   a worker does one thing at a time, the smallest key first. Workers of a processor
//               share its cores evenly, none using more than one.
//   sending     the sender's handler is busy first; then the message waits in the outbox of its
//               pair, where the smallest key leaves first, and between two segments a smaller one
//               overtakes. One message of a pair flows at a time.
//   arriving    latency after its last byte has left; then the receiver's handler is busy, and it
//   is
//               there.
//
// Pure and deterministic: what happens at one time happens in the order of numbers.
#pragma once

#include <array>
#include <vector>

#include "laconic/simulate/run_program.hpp"

namespace laconic {

// One rank, in seconds. What its main worker did: these and `exposed`, `bubble` and `idle` add up
// to the whole time.
struct RankSpent {
  std::array<double, kWorkKinds> work = {};          // longer than the work, where cores are shared
  std::array<double, kTrafficClasses> exposed = {};  // waited for what was under way
  double bubble = 0;  // waited for a message that nobody had sent yet
  double idle = 0;    // was done, others were not
};

struct TimeSpan {
  double begin = 0, end = 0;
};

struct RunTimes {
  double seconds = 0;
  std::vector<RankSpent> ranks;
  std::vector<TimeSpan> spans;     // as RunProgram::spans
  std::vector<TimeSpan> messages;  // from the first byte on a link until it is there
  std::vector<double> link_bytes;  // by link
};

// Throws std::logic_error naming what waits, where a program cannot end.
RunTimes simulate(const RunProgram& program);

}  // namespace laconic
