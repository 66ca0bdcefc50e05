// simulate/seam_program.hpp — what crosses the boundaries between stages, as messages that one rank
// sends and another waits for.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "laconic/schedule/schedule.hpp"
#include "laconic/simulate/program_builder.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

// One tensor of a seam on its way between two ranks, for one microbatch.
struct SeamMessage {
  double bytes = 0;     // of the message
  double elements = 0;  // that are encoded and decoded,
  CodecSpec codec;      // by this
};

// `is_raw`: the plan does not encode this one. With a delta memory bytes are a mean: some frames
// have a hash, by sample.
std::vector<SeamMessage> seam_messages(const SimulationRequest& request, Rank rank, int edge,
                                       bool is_activation, bool is_raw);

class SeamProgram {
 public:
  // Requires: all of it outlives it.
  SeamProgram(ProgramBuilder& builder, const SimulationRequest& request, const Schedule& schedule);

  // Messages from here on are those of another step.
  void begin(std::uint64_t step);
  // Encodes and sends, or waits and decodes: acts of a rank, on its strand.
  void send(int rank, int strand, const Action& action);
  void receive(int rank, int strand, const Action& action);

 private:
  struct Edge {
    int from;  // the class of the sender
    int edge;
    bool is_activation;
    auto operator<=>(const Edge&) const = default;
  };
  struct Crossing {
    const std::vector<SeamMessage>& costs;
    const std::vector<int>& messages;
  };
  int neighbour_class(int rank, int stage) const;
  // Whichever end comes first makes the messages.
  Crossing crossing(const Edge& edge, int to, int microbatch);

  ProgramBuilder& builder_;
  const SimulationRequest& r_;
  const Schedule& schedule_;
  std::uint64_t step_ = 0;
  std::map<std::pair<Edge, bool>, std::vector<SeamMessage>> costs_;  // also by whether it is raw
  std::map<std::pair<Edge, int>, std::vector<int>> messages_;        // also by microbatch
};

}  // namespace laconic
