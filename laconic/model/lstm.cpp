#include "laconic/model/lstm.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "laconic/base/error.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/sampled_softmax.hpp"

namespace laconic {

namespace {

// Parameters of a block, as lstm_spec() lists them.
struct LstmLeaf {
  enum Layer : std::size_t { kInput, kState, kInputBias, kStateBias, kRecurrent, kOutput = 4 };
  enum Head : std::size_t { kSoftmax, kSoftmaxBias };
};

constexpr std::int64_t kMostLogits = 1 << 26;  // at once, without gradients

LstmWeights weights_of(const LstmShape& shape, const Weights& weights, std::int64_t block) {
  const auto leaf = [&](std::size_t at) { return weights.leaf(block, at); };
  return {.input = leaf(LstmLeaf::kInput),
          .state = leaf(LstmLeaf::kState),
          .input_bias = leaf(LstmLeaf::kInputBias),
          .state_bias = leaf(LstmLeaf::kStateBias),
          .projection = shape.projection == LstmProjection::recurrent ? leaf(LstmLeaf::kRecurrent)
                                                                      : at::Tensor()};
}

at::Tensor dropped(const LstmShape& shape, const BlockOps& ops, const at::Tensor& x) {
  const Dropout dropout = ops.stream_dropout(0, shape.width);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor projected(const LstmShape& shape, BlockOps& ops, const at::Tensor& h) {
  return shape.projection == LstmProjection::output
             ? ops.linear(h, {LstmLeaf::kOutput, LstmLeaf::kOutput + 1})
             : h;
}

// Mean loss of some rows.
using LossOfRows = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& targets)>;

// Who only asks for the loss never has the logits of more than some rows.
at::Tensor loss_by_rows(const LstmShape& shape, const at::Tensor& x, const at::Tensor& targets,
                        const LossOfRows& loss) {
  const std::int64_t rows = x.size(0), most = 1 + kMostLogits / shape.vocabulary;
  if (at::GradMode::is_enabled() || rows <= most) return loss(x, targets);
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (std::int64_t r = 0; r < rows; r += most) {
    const std::int64_t count = std::min(most, rows - r);
    const at::Tensor mean = loss(x.narrow(0, r, count), targets.narrow(0, r, count));
    sum.add_(mean.to(at::kCPU, at::kDouble), static_cast<double>(count));
  }
  return sum.div(static_cast<double>(rows));
}

// The whole softmax of a table that lies elsewhere. One tile is computed with as the table would be
// if it were here, so that it gives the same bits.
at::Tensor loss_by_tiles(const LstmShape& shape, BlockOps& ops, const at::Tensor& bias,
                         const at::Tensor& x, const at::Tensor& targets) {
  const std::int64_t tile = tile_rows(shape.width);
  const auto table = [&](const at::Tensor& ids) { return ops.table_rows(LstmLeaf::kSoftmax, ids); };
  if (shape.vocabulary > tile)
    return tiled_cross_entropy(x, table, bias, targets, {.tile = tile, .most_logits = kMostLogits});
  const at::Tensor whole = table(at::arange(shape.vocabulary, at::kLong));
  return loss_by_rows(shape, x, targets, [&](const at::Tensor& some, const at::Tensor& wanted) {
    return cross_entropy(some, whole, bias, wanted);
  });
}

// Over words that are drawn, where the pass says by what; else over all.
at::Tensor loss_of(const LstmShape& shape, const Weights& weights, BlockOps& ops,
                   const at::Tensor& x, const at::Tensor& targets) {
  const at::Tensor& bias = weights.leaf(shape.layers + 1, LstmLeaf::kSoftmaxBias);
  if (shape.sampled > 0 && ops.pass().negatives)
    return sampled_cross_entropy(
        x, [&](const at::Tensor& ids) { return ops.table_rows(LstmLeaf::kSoftmax, ids); }, bias,
        targets, draw_negatives(shape.vocabulary, shape.sampled, *ops.pass().negatives));
  if (ops.is_elsewhere(LstmLeaf::kSoftmax)) return loss_by_tiles(shape, ops, bias, x, targets);
  return loss_by_rows(shape, x, targets, [&](const at::Tensor& some, const at::Tensor& wanted) {
    return ops.cross_entropy(some, LstmLeaf::kSoftmax, LstmLeaf::kSoftmaxBias, wanted);
  });
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
  if (block > shape.layers) return {loss_of(shape, weights, ops, x, batch["targets"].flatten())};
  const at::Tensor h = lstm(x, weights_of(shape, weights, block),
                            {.samples = batch.samples(), .deferred = pass.deferred});
  return {ops.as_seam(dropped(shape, ops, projected(shape, ops, h)))};
}

at::Tensor logits_of(const LstmShape&, BlockOps& ops, const at::Tensor& x) {
  return ops.logits(x, LstmLeaf::kSoftmax, LstmLeaf::kSoftmaxBias);
}

LstmCache make_text_cache(const LstmShape& shape, const Weights&, const Pass&) {
  return {.context = shape.context,
          .states = std::vector<LstmState>(static_cast<std::size_t>(shape.layers))};
}

at::Tensor read_tokens(const LstmShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, LstmCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  if (cache.length == 0) std::ranges::fill(cache.states, LstmState());
  const at::Tensor& table = weights.leaf(0, 0);
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
  BlockOps ops(weights, shape.layers + 1, 1, 1, pass);
  return logits_of(shape, ops, x).view({-1});
}

std::vector<at::Tensor> constants_of(const LstmShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
