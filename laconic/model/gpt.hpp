// model/gpt.hpp — GPT-2 as functions on named tensors, cut in blocks.
//
//   block 0              embedding     ids            -> x
//   block 1 ... layers   layer         x              -> x
//   block layers + 1     head          x, targets     -> mean loss
//
// A block is the unit of pipelining, recomputation and gradient traffic: its
// input is a detached leaf, so autograd never reaches across a border. The
// head is tied: it uses wte.weight of the embedding.
//
// Names and layouts of parameters are Hugging Face's GPT-2 ones (weights of
// linear maps are [in, out]), so a checkpoint is readable by others as it is.
//
// Shapes: b samples, t tokens, d width, v vocabulary; activations are [b * t, d].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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
  at::Tensor value;  // a leaf that requires a gradient
};

struct Gpt {
  GptShape shape;
  std::vector<Parameter> parameters;  // as parameter_specs() lists them
};

// `like` gives dtype and device.
Gpt make_gpt(const GptShape& shape, std::uint64_t seed, const at::TensorOptions& like);
// The same without values: for reading a checkpoint into.
Gpt make_empty_gpt(const GptShape& shape, const at::TensorOptions& like);

std::int64_t parameter_count(const GptShape& shape);

// The block whose backward completes the gradient of parameter number `p`: for the tied embedding
// that is block 0, though the head adds to it first.
std::int64_t completing_block(const GptShape& shape, std::size_t p);

// Part of a batch that goes through the model at once.
struct Microbatch {
  at::Tensor ids;      // [b, t] int64
  at::Tensor targets;  // [b, t] int64
  // For dropout: one key per sample, from (seed, step, sample id). Empty: no dropout.
  std::vector<Key> sample_keys;
  double dropout = 0;
};

// Keys of the samples with these ids at this step.
std::vector<Key> dropout_keys(std::uint64_t seed, std::int64_t step,
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
