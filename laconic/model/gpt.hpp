// model/gpt.hpp — GPT-2 as functions on named tensors, cut in blocks.
//
//   block 0              embedding     ids            -> x
//   block 1 ... layers   layer         x              -> x
//   block layers + 1     head          x, targets     -> mean loss
//
// A block is the unit of pipelining, recomputation and gradient traffic: its
// input is a detached leaf, so autograd never reaches across a border. A rank
// of a pipeline holds the parameters of some blocks only.
//
// The head is tied: it uses wte.weight of the embedding. What it adds to that
// gradient is summed apart from what the embedding adds, over all microbatches,
// and folded in at the end of a step. A pipeline can do no other (the two ends
// hold copies), so this is how it is done everywhere: sums then have the same bits.
//
// Names and layouts of parameters are Hugging Face's GPT-2 ones (weights of
// linear maps are [in, out]), so a checkpoint is readable by others as it is.
//
// Shapes: b samples, t tokens, d width, v vocabulary; activations are [b * t, d].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

struct GptShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  double norm_epsilon = 1e-5;
  bool operator==(const GptShape&) const = default;
};

constexpr std::int64_t block_count(const GptShape& shape) {
  return shape.layers + 2;
}

// How a parameter begins. Every element is a pure function of (seed, name, index).
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> sizes;
  double mean = 0;
  double deviation = 0;
};

// All parameters, in the order in which blocks use them.
std::vector<ParameterSpec> parameter_specs(const GptShape& shape);

struct Parameter {
  std::string name;
  at::Tensor value;        // a leaf that requires a gradient
  std::size_t number = 0;  // in parameter_specs()
};

// Which blocks somebody holds, by block; empty: all.
using HeldBlocks = std::vector<bool>;

struct Gpt {
  GptShape shape;
  std::vector<Parameter> parameters;  // those of held blocks, as parameter_specs() lists them
  HeldBlocks held;
  std::vector<std::size_t> places;  // by number: in `parameters`, if it is there
  // wte.weight as the head sees it: where the embedding is held too another leaf on the same
  // memory, so that the two gradients stay apart.
  at::Tensor head_embedding;

  // Requires: parameter number `p` is held.
  const at::Tensor& value(std::size_t p) const { return parameters[places[p]].value; }
  bool holds(std::int64_t block) const {
    return held.empty() || held[static_cast<std::size_t>(block)];
  }
};

// `like` gives dtype and device.
Gpt make_gpt(const GptShape& shape, std::uint64_t seed, const at::TensorOptions& like,
             const HeldBlocks& held = {});
// The same without values: for reading a checkpoint into.
Gpt make_empty_gpt(const GptShape& shape, const at::TensorOptions& like,
                   const HeldBlocks& held = {});

std::int64_t parameter_count(const GptShape& shape);

// Whether blocks 0 and the last both use it: wte.weight.
constexpr bool is_tied(const Parameter& parameter) {
  return parameter.number == 0;
}
// Of several holders of a parameter the one with the embedding counts, in norms and in checkpoints.
inline bool is_copy(const Gpt& gpt, const Parameter& parameter) {
  return is_tied(parameter) && !gpt.holds(0);
}

// The first block that uses parameter number `p`, which is the one it belongs to.
std::int64_t first_block(const GptShape& shape, std::size_t p);

// The held block whose backward completes the gradient of a parameter: for the tied embedding that
// is block 0, though the head adds to it first, or the head, where that alone is held.
std::int64_t completing_block(const Gpt& gpt, const Parameter& parameter);

// Adds the head's share of the tied gradient to the embedding's, if both are held, and forgets it.
void fold_tied_gradient(const Gpt& gpt);

class DeferredWeights;  // model/deferred.hpp

// Part of a batch that goes through the model at once.
struct Microbatch {
  at::Tensor ids;      // [b, t] int64
  at::Tensor targets;  // [b, t] int64
  // For dropout: one key per sample, see dropout_keys(). Empty: no dropout.
  std::vector<Key> sample_keys;
  double dropout = 0;
  // Takes what backward leaves for later; null: nothing. Must live until then.
  DeferredWeights* deferred = nullptr;
};

// Keys of the samples with these ids at this step; without a step, those that a sample has at every
// step (model.dropout_by_sample).
std::vector<Key> dropout_keys(std::uint64_t seed, std::optional<std::int64_t> step,
                              const std::vector<std::int64_t>& sample_ids);

// One block. `input` is the output of the block before (undefined for block 0). The last block
// returns the mean loss, a scalar.
at::Tensor forward_block(const Gpt& gpt, std::int64_t block, const at::Tensor& input,
                         const Microbatch& microbatch);

// Mean loss without gradients.
double forward_loss(const Gpt& gpt, const Microbatch& microbatch);

// Logits [b * t, v] of all positions, without gradients.
at::Tensor forward_logits(const Gpt& gpt, const at::Tensor& ids);

// For decoding one text: runs `ids` at positions first, first + 1, ... through the model with the
// caller's attention (layer, qkv) -> [rows, d], and returns the logits [v] after the last one.
at::Tensor forward_rows(const Gpt& gpt, std::span<const std::int64_t> ids, std::int64_t first,
                        const std::function<at::Tensor(std::int64_t, const at::Tensor&)>& attend);

}  // namespace laconic
