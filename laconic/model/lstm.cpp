#include "laconic/model/lstm.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/linear.hpp"

namespace laconic {

namespace {

// Parameters of a block, as lstm_spec() lists them.
enum LstmLeaf : std::size_t { kInput, kState, kInputBias, kStateBias, kRecurrent, kOutput = 4 };
enum LstmHead : std::size_t { kSoftmax, kSoftmaxBias };

LstmWeights weights_of(const LstmShape& shape, const Weights& weights, std::int64_t block) {
  const auto leaf = [&](std::size_t at) { return weights.leaf(block, at); };
  return {.input = leaf(kInput),
          .state = leaf(kState),
          .input_bias = leaf(kInputBias),
          .state_bias = leaf(kStateBias),
          .projection =
              shape.projection == LstmProjection::recurrent ? leaf(kRecurrent) : at::Tensor()};
}

at::Tensor dropped(const LstmShape& shape, const BlockOps& ops, const at::Tensor& x) {
  const Dropout dropout = ops.stream_dropout(0, shape.width);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor projected(const LstmShape& shape, BlockOps& ops, const at::Tensor& h) {
  return shape.projection == LstmProjection::output ? ops.linear(h, {kOutput, kOutput + 1}) : h;
}

}  // namespace

Seam forward_block(const LstmShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t tokens = block == 0 ? batch["ids"].size(1) : in[0].size(1);
  LACONIC_ASSERT(tokens <= shape.context,
                 fmt::format("{} tokens, context {}", tokens, shape.context));
  BlockOps ops(weights, block, batch.samples(), tokens, pass);
  if (block == 0) return {ops.as_seam(dropped(shape, ops, ops.table_rows(0, batch["ids"])))};
  const at::Tensor x = in[0].view({-1, shape.width});
  if (block > shape.layers) return {ops.cross_entropy(x, kSoftmax, kSoftmaxBias, batch["targets"])};
  const at::Tensor h = lstm(x, weights_of(shape, weights, block),
                            {.samples = batch.samples(), .deferred = pass.deferred});
  return {ops.as_seam(dropped(shape, ops, projected(shape, ops, h)))};
}

at::Tensor logits_of(const LstmShape& shape, const Weights& weights, const Seam& seam) {
  const std::int64_t head = shape.layers + 1;
  return transposed_linear(seam[0].view({-1, shape.width}), weights.leaf(head, kSoftmax),
                           weights.leaf(head, kSoftmaxBias));
}

LstmCache make_text_cache(const LstmShape& shape, const at::TensorOptions&) {
  return {.context = shape.context,
          .states = std::vector<LstmState>(static_cast<std::size_t>(shape.layers))};
}

at::Tensor read_tokens(const LstmShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, LstmCache& cache) {
  const at::NoGradGuard no_grad;
  if (cache.length == 0) std::ranges::fill(cache.states, LstmState());
  const at::Tensor& table = weights.leaf(0, 0);
  const Pass pass;
  at::Tensor x;
  for (const std::int64_t id : ids) {
    x = table.narrow(0, id, 1);
    for (std::int64_t l = 0; l < shape.layers; ++l) {
      BlockOps ops(weights, l + 1, 1, 1, pass);
      const at::Tensor h = lstm_step(x, weights_of(shape, weights, l + 1),
                                     cache.states[static_cast<std::size_t>(l)]);
      x = projected(shape, ops, h);
    }
  }
  cache.length += static_cast<std::int64_t>(ids.size());
  return logits_of(shape, weights, {x}).view({-1});
}

std::vector<at::Tensor> constants_of(const LstmShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
