// schedule/selection.hpp — which messages and stages are worth encoding.
//
// Pure functions of the schedule and the costs: both ends of an edge, and all
// ranks of a stage, come to the same answer by themselves.
#pragma once

#include <string_view>
#include <vector>

#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/when.hpp"

namespace laconic {

std::string_view name_of(When when);
When parse_when(std::string_view name);  // throws ConfigError

// [edge][microbatch]. `costs.encoded` is ignored; costs matter for `critical` alone. Edges within
// a rank have no messages, and none is selected.
//
// epilogue: those that their sender sends after the last activation that it takes from the same
// rank, on whatever edge. In 1F1B microbatch k on the edge into stage e is encoded iff k >= N -
// min(P - 1 - e, N), in GPipe all are. It is the sender's list that says it: in the receiver's, the
// last activation out and the gradient that it is exchanged with stand in an order that means
// nothing.
//
// critical: begins with none, encodes every gradient message without slack, estimates again, and
// ends when no message that travels raw is on the critical path, or none of them is cheaper
// encoded. Then takes back, early microbatches first, what is not needed for that time: a gradient
// that is exchanged with an activation of the same length is on the critical path, and encoding it
// brings nothing. What is left makes the step as short as encoding all would, and no single one
// of it can be spared. (Not so with half duplex and asynchronous sends: there the order on a wire
// depends on what is encoded, and encoding more may even be slower.)
//
// Requires: check(lowered) and check(costs, lowered) are empty.
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
