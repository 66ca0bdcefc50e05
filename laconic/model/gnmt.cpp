#include "laconic/model/gnmt.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/additive_attention.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/lstm_layer.hpp"

namespace laconic {

namespace {

// Parameters of a block, as gnmt_spec() lists them: those of an LSTM layer come first.
struct GnmtLeaf {
  static constexpr std::size_t kReversed = 4;  // where those of the other direction begin
  enum Attention : std::size_t { kQuery = 4, kKey, kDirection, kLength, kBias };
  enum Head : std::size_t { kTable, kTableBias };
};

// Which block is what.
struct GnmtBlocks {
  explicit GnmtBlocks(const GnmtShape& shape)
      : target(shape.layers + 1), head(target + shape.decoder_layers + 1) {}
  std::int64_t target, head;
  std::int64_t encoder(std::int64_t block) const { return block - 1; }
  std::int64_t decoder(std::int64_t block) const { return block - target - 1; }
};

LstmWeights layer_at(const Weights& weights, std::int64_t block, std::size_t first = 0) {
  return {.input = weights.leaf(block, first),
          .state = weights.leaf(block, first + 1),
          .input_bias = weights.leaf(block, first + 2),
          .state_bias = weights.leaf(block, first + 3)};
}

at::Tensor dropped(const BlockOps& ops, const at::Tensor& x) {
  const Dropout dropout = ops.stream_dropout(0, x.size(1));
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor encode(std::int64_t layer, const Weights& weights, const BlockOps& ops,
                  const at::Tensor& x, const at::Tensor& lengths) {
  const std::int64_t block = layer + 1;
  LstmRun run{.samples = lengths.numel(), .lengths = lengths, .deferred = ops.pass().deferred};
  const at::Tensor from = dropped(ops, x);
  const at::Tensor h = lstm(from, layer_at(weights, block), run);
  if (layer >= 2) return x.add(h);
  if (layer == 1) return h;
  run.is_reversed = true;
  return at::cat({h, lstm(from, layer_at(weights, block, GnmtLeaf::kReversed), run)}, 1);
}

// v of the scores: a direction of unit length, times its length.
at::Tensor score_vector(const Weights& weights, std::int64_t block) {
  const at::Tensor direction = full_length(weights.leaf(block, GnmtLeaf::kDirection));
  return direction.div(direction.norm()).mul(full_length(weights.leaf(block, GnmtLeaf::kLength)));
}

// What the memory has for each row of y. `keys`: the memory, mapped.
at::Tensor look(const Weights& weights, std::int64_t block, BlockOps& ops, const at::Tensor& y,
                const at::Tensor& keys, const at::Tensor& memory, const at::Tensor& lengths) {
  const at::Tensor q =
      full_length(ops.linear(y, {GnmtLeaf::kQuery, {}}).add(weights.leaf(block, GnmtLeaf::kBias)));
  const at::Tensor scores =
      additive_scores(q, full_length(keys), score_vector(weights, block), lengths.numel());
  return mean_by_scores(scores, memory, lengths);
}

// A layer behind the first. `read` is the LSTM.
template <class Read>
at::Tensor decode(std::int64_t layer, const BlockOps& ops, const at::Tensor& found,
                  const at::Tensor& y, const Read& read) {
  const at::Tensor h = read(dropped(ops, at::cat({y, found}, 1)));
  return layer >= 2 ? y.add(h) : h;
}

}  // namespace

Seam forward_block(const GnmtShape& shape, const Weights& weights, std::int64_t number,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const GnmtBlocks blocks(shape);
  const std::int64_t samples = batch.samples(), source_tokens = batch["source"].size(1);
  const std::int64_t tokens = number < blocks.target ? source_tokens : batch["ids"].size(1);
  const std::int64_t most = number < blocks.target ? shape.context : shape.target_context;
  LACONIC_ASSERT(tokens <= most, fmt::format("{} tokens, context {}", tokens, most));
  BlockOps ops(weights, number, samples, tokens, pass);
  const auto flat = [](const at::Tensor& x) { return x.view({-1, x.size(2)}); };
  const auto seam = [&](const at::Tensor& x) { return x.view({samples, -1, x.size(1)}); };
  if (number == 0) return {seam(ops.table_rows(0, batch["source"]))};
  if (number == blocks.target) return {in[0].view_as(in[0]), seam(ops.table_rows(0, batch["ids"]))};
  if (number == blocks.head)
    return {ops.cross_entropy(flat(in[0]), GnmtLeaf::kTable, GnmtLeaf::kTableBias, batch["targets"],
                              pass.label_smoothing)};
  const at::Tensor lengths = batch["source_length"].flatten();
  if (number < blocks.target)
    return {seam(encode(blocks.encoder(number), weights, ops, flat(in[0]), lengths))};
  const auto read = [&](const at::Tensor& x) {
    return lstm(x, layer_at(weights, number), {.samples = samples, .deferred = pass.deferred});
  };
  if (number == blocks.target + 1) {
    const at::Tensor memory = flat(in[0]), y = read(dropped(ops, flat(in[1])));
    const at::Tensor keys = ops.linear(memory, {GnmtLeaf::kKey, {}});
    return {seam(look(weights, number, ops, y, keys, memory, lengths)), seam(y)};
  }
  const at::Tensor y = decode(blocks.decoder(number), ops, flat(in[0]), flat(in[1]), read);
  if (number + 1 == blocks.head) return {seam(y)};
  return {in[0].view_as(in[0]), seam(y)};
}

at::Tensor logits_of(const GnmtShape&, BlockOps& ops, const at::Tensor& x) {
  return ops.logits(x, GnmtLeaf::kTable, GnmtLeaf::kTableBias);
}

Seam encode_block(const GnmtShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const GnmtBlocks blocks(shape);
  if (block <= blocks.target) return forward_block(shape, weights, block, in, batch, pass);
  if (block == blocks.head) return {};
  if (block > blocks.target + 1) return block + 1 == blocks.head ? Seam{in[1]} : in;
  BlockOps ops(weights, block, batch.samples(), in[0].size(1), pass);
  cache.memory_values[0] = in[0];
  cache.memory_keys[0] =
      ops.linear(in[0].view({-1, shape.width}), {GnmtLeaf::kKey, {}}).view(in[0].sizes());
  return {in[1], in[1]};
}

Seam read_block(const GnmtShape& shape, const Weights& weights, std::int64_t number, const Seam& in,
                const at::Tensor& ids, TargetCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const GnmtBlocks blocks(shape);
  const std::int64_t rows = ids.size(0);
  const auto seam = [&](const at::Tensor& x) { return x.view({rows, 1, -1}); };
  if (number <= blocks.target) {
    const std::int64_t width = number == 1 ? 2 * shape.width : shape.width;
    const at::Tensor nothing = at::zeros({rows, 1, width}, weights.compute_options());
    if (number < blocks.target) return {nothing};
    return {nothing, seam(weights.leaf(number, 0).index_select(0, ids))};
  }
  BlockOps ops(weights, number, rows, 1, pass);
  if (number == blocks.head) return {logits_of(shape, ops, in[0].view({rows, -1}))};
  const auto layer = static_cast<std::size_t>(blocks.decoder(number));
  const auto read = [&](const at::Tensor& x) {
    LstmState state{cache.keys[layer], cache.values[layer]};
    const at::Tensor h = lstm_step(x, layer_at(weights, number), state);
    cache.keys[layer] = state.h;
    cache.values[layer] = state.cell;
    return h;
  };
  const at::Tensor before = in[1].view({rows, shape.width});
  if (layer == 0) {
    const auto matrix = [&](const at::Tensor& x) { return x.reshape({-1, shape.width}); };
    const at::Tensor lengths = cache.padding.logical_not().sum({1, 2, 3});
    const at::Tensor y = read(before);
    return {seam(look(weights, number, ops, y, matrix(cache.memory_keys[0]),
                      matrix(cache.memory_values[0]), lengths)),
            seam(y)};
  }
  const at::Tensor y =
      seam(decode(blocks.decoder(number), ops, in[0].view({rows, shape.width}), before, read));
  return number + 1 == blocks.head ? Seam{y} : Seam{in[0], y};
}

std::vector<at::Tensor> constants_of(const GnmtShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
