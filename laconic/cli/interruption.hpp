// cli/interruption.hpp — how a worker that trains is stopped, and what it says then.
//
// The first SIGINT, SIGTERM or SIGHUP asks the run to finish its step and save; the next one ends
// it as it always would. Standard output that nobody reads any more (`train ... | head`) asks for
// the same, instead of killing the process by SIGPIPE.
#pragma once

#include <cstdint>

namespace laconic {

struct InterruptionOptions {
  bool speaks = true;            // says on standard error what happens next; one rank does
  std::int64_t steps = 0;        // of the whole run
  std::int64_t round_steps = 1;  // ranks stop together at multiples of it (local.steps)
};
void catch_interruptions(const InterruptionOptions& options);

// For TrainOptions.
int pending_interruption();         // the signal; 0: none
void note_step(std::int64_t step);  // that begins; 0: none does any more

}  // namespace laconic
