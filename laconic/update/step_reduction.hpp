// update/step_reduction.hpp — what ranks tell each other about a step, in one exchange.
//
// The norm of a gradient whose parts lie on several ranks must not depend on how
// they are spread. So it is not partial sums that travel but the squares of single
// parameters, with their numbers, and everybody adds them in the order of these:
// the same bits as one process that has the whole model (norm_of()).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/model/weights.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

struct StepShare {
  double loss = 0;    // this rank's share
  double square = 0;  // of the norm of this rank's own gradient
  std::int64_t skipped = 0;
  std::int64_t in_a_row = 0;
  std::int64_t signal = 0;
};

struct NumberedSquare {
  std::uint64_t number = 0;  // of the parameter
  double square = 0;         // of the norm of its gradient, or of a part of it
};
// Leaves out parameters that another rank speaks for.
std::vector<NumberedSquare> squares_of(const Weights& weights);

struct ReducedStep {
  double loss = 0;  // summed in rank order
  double square = 0;
  double norm = 0;  // of all numbered squares
  std::int64_t skipped = 0;
  std::int64_t in_a_row = std::numeric_limits<std::int64_t>::max();  // least of all ranks
  int signal = 0;
};

// A note as it travels, and what comes of those of several ranks. A number that comes twice is that
// of a parameter in parts.
Bytes pack(const StepShare& note, const std::vector<NumberedSquare>& squares);
ReducedStep combine(const std::vector<Bytes>& notes);

// What a rank that waits for nobody tells now, and hears of all ranks later.
void post_step(World& world, const StepShare& mine, const std::vector<NumberedSquare>& squares);
ReducedStep take_step(World& world);

// Collective: over all ranks, or over those of each replica by itself.
ReducedStep reduce_step(World& world, const StepShare& mine,
                        const std::vector<NumberedSquare>& squares = {});
ReducedStep reduce_in_replica(World& world, const StepShare& mine,
                              const std::vector<NumberedSquare>& squares);

}  // namespace laconic
