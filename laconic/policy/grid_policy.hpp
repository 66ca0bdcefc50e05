// policy/grid_policy.hpp — how the messages of a tensor grid are encoded, by the configuration.
// Pure.
//
// A class of messages has a codec, and layers in which it is used. Embeddings, the head, norms and
// vectors travel raw: few bytes, or what every later number depends on. Activations have no
// memory: the next step has other samples, so what one lost is no part of the next. Gradients of
// weights may have feedback: they are of the same parameter every step.
#pragma once

#include <vector>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// One class in one direction.
struct GridClassPolicy {
  CodecSpec codec = Raw{};
  bool has_feedback = false;
  bool is_masked = false;    // gradients of a sparse codec are its own
  bool is_gathered = false;  // sums are in the all-gather form
  std::vector<bool> blocks;  // in which it is used
};

struct GridPolicy {
  GridClassPolicy activation, gradient, weight, weight_gradient;
};

// Requires: check(config) is empty, and it is the configuration's model.
GridPolicy grid_policy_of(const RunConfig& config, const ModelSpec& spec);

// Whether anything is encoded.
bool is_lossy(const GridPolicy& policy);

// Which class what moves is of: gradients of activations and of weights go back, everything that is
// gathered again is what it was.
const GridClassPolicy& class_of(const GridPolicy& policy, const GridTraffic& traffic);

// What its messages are encoded by in a block. Learned codes are numbers of a message already, and
// rounded at most.
CodecSpec message_codec(const GridClassPolicy& policy, std::size_t block);

// Whether this sum is in the all-gather form: each rank gets the whole of what every other brings.
bool is_gathered(const GridPolicy& policy, const GridTraffic& traffic);
// Elements that a rank receives by that: of g ranks g - 1 whole sums, where grid_traffic() counts
// 2 (g - 1) / g of one.
double received_elements(const GridPolicy& policy, const GridTraffic& traffic, const Mesh& mesh);

// Bytes of messages on the wire, by the codecs of their classes and layers: payloads, without
// frames. What a codec's size depends on (the shape) is taken as that of large matrices.
GridBytes grid_bytes_of(const RunConfig& config, const ModelSpec& spec);

}  // namespace laconic
