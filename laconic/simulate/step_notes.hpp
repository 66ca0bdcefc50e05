// simulate/step_notes.hpp — what ranks tell each other of a step, as strands
// (update/step_reduction.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

class StepNotes {
 public:
  StepNotes(ProgramBuilder& builder, const SimulationRequest& request);

  // Who tells squares of norms beside its share: nobody, the first replica for all, or everybody.
  enum class Squares : std::uint8_t { none, first_replica, all };
  // Nothing, where there is nobody to tell: of one rank, or of replicas of one.
  ExchangeStrands among_all(Squares squares);
  ExchangeStrands in_replicas();
  // Of so many bytes each, whatever they say.
  ExchangeStrands among_all_of(std::uint64_t bytes);

 private:
  ExchangeStrands add_notes(const Group& group, Squares squares);
  std::uint64_t note_bytes(Rank rank, Squares squares);

  ProgramBuilder& builder_;
  const SimulationRequest& request_;
  const Mesh mesh_;
  std::map<std::pair<int, std::array<int, 3>>, std::optional<std::uint64_t>> spoken_for_;
};

}  // namespace laconic
