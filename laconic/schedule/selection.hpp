// schedule/selection.hpp — which messages and stages are worth encoding.
//
// Pure functions of the schedule and the costs: both ends of an edge, and all
// ranks of a stage, come to the same answer by themselves.
#pragma once

#include "laconic/schedule/estimate.hpp"

namespace laconic {

enum class When : std::uint8_t {
  always,
  epilogue,  // those that the receiver takes after its last forward: no activation travels against
             // them
  critical,  // those on the critical path, as estimate() sees it
  never,
};
std::string_view name_of(When when);
When parse_when(std::string_view name);  // throws ConfigError

// [edge][microbatch]. `costs.encoded` is ignored; costs matter for `critical` alone.
//
// epilogue, without interleaving: microbatch k on the edge into stage e is encoded iff
// k >= N - min(P - 1 - e, N). With chunks: by position in the receiver's list, so that sender and
// receiver cannot disagree.
//
// critical: begins with none, encodes every gradient message without slack, estimates again, and
// ends when no message that travels whole is on the critical path, or none of them is cheaper
// encoded.
GradientSends select_gradient_sends(const Schedule& lowered, When when, const Costs& costs);

// How much later each rank's sums over other ranks could end without making the step longer, were
// they to begin when its gradients are complete and cost nothing: the last rank's end of compute
// minus its own.
std::vector<double> slack_of_ranks(const Schedule& lowered, const Costs& costs);

// Optimus-CC's selective stage compression: the smallest k such that encoding the sums of ranks
// 0 ... k - 1 ends the step no later than encoding all would. exact[r] and encoded[r]: seconds of
// rank r's sums.
int ranks_worth_encoding(const std::vector<double>& slack, const std::vector<double>& exact,
                         const std::vector<double>& encoded);

}  // namespace laconic
