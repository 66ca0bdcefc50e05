#include "laconic/model/seq2seq.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/model/layer_parts.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a block where dropout acts; they choose different keys.
enum class Seq2SeqSite : std::uint64_t {
  embedding,
  attention,
  attention_output,
  cross_attention,
  cross_attention_output,
  feed_forward_output
};

// One block as it runs.
struct Seq2SeqBlock {
  const Seq2SeqShape& shape;
  std::int64_t number;
  const Batch& batch;
  const Pass& pass;
  LeafReader leaves;

  at::Tensor map(const at::Tensor& x) { return apply(leaves.linear(), x, pass.deferred); }
  Dropout dropout(Seq2SeqSite site) const {
    return dropout_at(pass, number, static_cast<std::uint64_t>(site));
  }
  at::Tensor dropped(const at::Tensor& x, Seq2SeqSite site) const {
    const Dropout here = dropout(site);
    return here.probability > 0 ? dropout_add(at::zeros_like(x), x, here) : x;
  }
};

// x + branch, with its norm before the branch or behind the sum. `branch` takes the leaves that
// stand before the norm's.
template <class Branch>
at::Tensor residual(Seq2SeqBlock& block, const at::Tensor& x, Seq2SeqSite site, std::size_t before,
                    const Branch& branch) {
  LeafReader behind = block.leaves;
  for (std::size_t i = 0; i < before; ++i) behind.tensor();
  const NormLeaves norm = behind.norm();
  const double epsilon = block.shape.norm_epsilon;
  const bool is_pre = block.shape.norm == NormPlace::pre;
  const at::Tensor sum =
      dropout_add(x, branch(is_pre ? apply(norm, x, epsilon) : x), block.dropout(site));
  block.leaves = behind;
  return is_pre ? sum : apply(norm, sum, epsilon);
}

constexpr std::size_t kAttentionLeaves = 8, kFeedForwardLeaves = 4;  // before the norm's

at::Tensor self_attention(Seq2SeqBlock& block, const at::Tensor& x, bool is_causal,
                          const at::Tensor& lengths) {
  return residual(
      block, x, Seq2SeqSite::attention_output, kAttentionLeaves, [&](const at::Tensor& from) {
        const at::Tensor q = block.map(from), k = block.map(from), v = block.map(from);
        const AttentionShape shape{.samples = block.batch.samples(),
                                   .heads = block.shape.heads,
                                   .key_heads = block.shape.heads,
                                   .is_causal = is_causal};
        return block.map(attention(q, k, v, shape, lengths, block.dropout(Seq2SeqSite::attention)));
      });
}

at::Tensor cross_attention(Seq2SeqBlock& block, const at::Tensor& y, const at::Tensor& memory,
                           const at::Tensor& lengths) {
  return residual(
      block, y, Seq2SeqSite::cross_attention_output, kAttentionLeaves, [&](const at::Tensor& from) {
        const at::Tensor q = block.map(from), k = block.map(memory), v = block.map(memory);
        const AttentionShape shape{.samples = block.batch.samples(),
                                   .heads = block.shape.heads,
                                   .key_heads = block.shape.heads};
        return block.map(
            attention(q, k, v, shape, lengths, block.dropout(Seq2SeqSite::cross_attention)));
      });
}

at::Tensor feed_forward(Seq2SeqBlock& block, const at::Tensor& x) {
  return residual(block, x, Seq2SeqSite::feed_forward_output, kFeedForwardLeaves,
                  [&](const at::Tensor& from) { return block.map(at::relu(block.map(from))); });
}

// Rows of the table, as large as positions are, and the positions. Takes the positions' leaf where
// they are learned.
at::Tensor embed(Seq2SeqBlock& block, const at::Tensor& table, const at::Tensor& ids,
                 std::int64_t most, const Weights& weights) {
  const std::int64_t tokens = ids.size(1), width = block.shape.width;
  LACONIC_ASSERT(tokens <= most, fmt::format("{} tokens, context {}", tokens, most));
  const at::Tensor& positions =
      block.shape.positions == PositionKind::learned ? block.leaves.tensor() : weights.constants[0];
  const at::Tensor rows =
      table_rows(table, ids.flatten()).mul(std::sqrt(static_cast<double>(width)));
  const at::Tensor x =
      rows.view({-1, tokens, width}).add(positions.narrow(0, 0, tokens)).view({-1, width});
  return block.dropped(x, Seq2SeqSite::embedding);
}

// Norm, if there is one, and table of the head.
struct Seq2SeqHead {
  NormLeaves norm;
  at::Tensor table;
};

Seq2SeqHead head_of(const Seq2SeqShape& shape, const Weights& weights) {
  LeafReader leaves(weights, block_count(weights.spec) - 1);
  Seq2SeqHead head;
  if (shape.sharing != TableSharing::none) head.table = leaves.tensor();
  if (shape.norm == NormPlace::pre) head.norm = leaves.norm();
  if (shape.sharing == TableSharing::none) head.table = leaves.tensor();
  return head;
}

at::Tensor normed(const Seq2SeqShape& shape, const Seq2SeqHead& head, const at::Tensor& y) {
  return shape.norm == NormPlace::pre ? apply(head.norm, y, shape.norm_epsilon) : y;
}

Seam target_embedding(Seq2SeqBlock& block, const at::Tensor& x, const Weights& weights) {
  const Seq2SeqShape& shape = block.shape;
  at::Tensor table;
  if (shape.sharing == TableSharing::all) table = block.leaves.tensor();
  const at::Tensor memory = shape.norm == NormPlace::pre
                                ? apply(block.leaves.norm(), x, shape.norm_epsilon)
                                : x.view_as(x);
  if (shape.sharing != TableSharing::all) table = block.leaves.tensor();
  return {memory, embed(block, table, block.batch["ids"], shape.target_context, weights)};
}

}  // namespace

Seam forward_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t number,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  Seq2SeqBlock block{shape, number, batch, pass, LeafReader(weights, number)};
  const auto flat = [&](const at::Tensor& x) { return x.view({-1, shape.width}); };
  const auto seam = [&](Seam tensors) {
    for (at::Tensor& x : tensors) x = x.view({batch.samples(), -1, shape.width});
    return tensors;
  };
  const std::int64_t target = shape.layers + 1, head = target + shape.decoder_layers + 1;
  if (number == 0) {
    const at::Tensor& table = block.leaves.tensor();
    return seam({embed(block, table, batch["source"], shape.context, weights)});
  }
  if (number == head) {
    const Seq2SeqHead leaves = head_of(shape, weights);
    return {cross_entropy(normed(shape, leaves, flat(in[0])), leaves.table, {},
                          batch["targets"].flatten(), pass.deferred, pass.label_smoothing,
                          weights.room(number, leaves.table))};
  }
  const at::Tensor lengths = batch["source_length"].flatten();
  if (number < target)
    return seam({feed_forward(block, self_attention(block, flat(in[0]), false, lengths))});
  if (number == target) return seam(target_embedding(block, flat(in[0]), weights));
  const at::Tensor memory = flat(in[0]);
  at::Tensor y = self_attention(block, flat(in[1]), true, {});
  y = feed_forward(block, cross_attention(block, y, memory, lengths));
  return number + 1 == head ? seam({y}) : seam({memory, y});
}

at::Tensor logits_of(const Seq2SeqShape& shape, const Weights& weights, const Seam& seam) {
  const Seq2SeqHead head = head_of(shape, weights);
  return normed(shape, head, seam[0].view({-1, shape.width})).mm(head.table.t());
}

namespace {

// [rows * tokens, d] as [rows, heads, tokens, head width].
at::Tensor by_head(const at::Tensor& x, std::int64_t rows, std::int64_t heads) {
  return x.view({rows, -1, heads, x.size(1) / heads}).transpose(1, 2);
}

// One query a row and head; what is `hidden` is not seen.
at::Tensor attend_to(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                     const at::Tensor& hidden) {
  const std::int64_t rows = keys.size(0), heads = keys.size(1);
  at::Tensor scores = by_head(q, rows, heads).matmul(keys.transpose(2, 3));
  scores = scores.div_(std::sqrt(static_cast<double>(keys.size(3))));
  if (hidden.defined())
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return scores.softmax(-1).matmul(values).transpose(1, 2).reshape(q.sizes());
}

}  // namespace

TargetCache make_target_cache(const Seq2SeqShape& shape, const at::Tensor& source,
                              const at::Tensor& lengths) {
  TargetCache cache;
  cache.padding = at::arange(source.size(1), source.options())
                      .unsqueeze(0)
                      .ge(lengths.view({-1, 1}))
                      .view({source.size(0), 1, 1, -1});
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values, &cache.keys, &cache.values})
    tensors->resize(static_cast<std::size_t>(shape.decoder_layers));
  return cache;
}

Seam encode_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache) {
  const at::NoGradGuard no_grad;
  const std::int64_t target = shape.layers + 1, head = target + shape.decoder_layers + 1;
  if (block <= target) return forward_block(shape, weights, block, in, batch, {});
  if (block == head) return {};
  const std::int64_t rows = batch.samples();
  const at::Tensor memory = in[0].view({-1, shape.width});
  const auto layer = static_cast<std::size_t>(block - target - 1);
  LeafReader leaves(weights, block);
  for (std::size_t i = 0; i < kAttentionLeaves + 2 + 2; ++i) leaves.tensor();  // and q of the next
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values})
    (*tensors)[layer] =
        by_head(apply(leaves.linear(), memory, nullptr), rows, shape.heads).contiguous();
  cache.keys[layer] = cache.values[layer] = cache.memory_keys[layer].narrow(2, 0, 0);
  return block + 1 == head ? Seam{in[1]} : in;
}

TargetCache encode_sources(const Seq2SeqShape& shape, const Weights& weights,
                           const at::Tensor& source, const at::Tensor& lengths) {
  const Batch batch{{"source", source},
                    {"source_length", lengths.view({-1, 1})},
                    {"ids", at::zeros({source.size(0), 1}, source.options())}};
  TargetCache cache = make_target_cache(shape, source, lengths);
  Seam seam;
  for (std::int64_t b = 0; b < block_count(weights.spec); ++b)
    seam = encode_block(shape, weights, b, seam, batch, cache);
  return cache;
}

void select_rows(TargetCache& cache, const at::Tensor& rows) {
  const at::NoGradGuard no_grad;
  cache.padding = cache.padding.index_select(0, rows);
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values, &cache.keys, &cache.values})
    for (at::Tensor& tensor : *tensors)
      if (tensor.defined()) tensor = tensor.index_select(0, rows);
}

namespace {

// Embeddings [rows, d] of the next tokens.
at::Tensor embed_next(const Seq2SeqShape& shape, const Weights& weights, const at::Tensor& ids,
                      const TargetCache& cache) {
  LACONIC_ASSERT(cache.length < shape.target_context,
                 fmt::format("{} tokens, context {}", cache.length, shape.target_context));
  LeafReader embedding(weights, shape.layers + 1);
  at::Tensor table, positions;
  if (shape.sharing == TableSharing::all) table = embedding.tensor();
  if (shape.norm == NormPlace::pre) embedding.norm();
  if (shape.sharing != TableSharing::all) table = embedding.tensor();
  positions = shape.positions == PositionKind::learned ? embedding.tensor() : weights.constants[0];
  return table.index_select(0, ids)
      .mul(std::sqrt(static_cast<double>(shape.width)))
      .add(positions[cache.length]);
}

// One decoder, y [rows, d].
at::Tensor decode_next(Seq2SeqBlock& block, at::Tensor y, std::size_t layer, TargetCache& cache) {
  const std::int64_t rows = y.size(0), heads = block.shape.heads;
  y = residual(block, y, Seq2SeqSite::attention_output, kAttentionLeaves,
               [&](const at::Tensor& from) {
                 const at::Tensor q = block.map(from), k = block.map(from), v = block.map(from);
                 at::Tensor &keys = cache.keys[layer], &values = cache.values[layer];
                 keys = at::cat({keys, by_head(k, rows, heads)}, 2);
                 values = at::cat({values, by_head(v, rows, heads)}, 2);
                 return block.map(attend_to(q, keys, values, {}));
               });
  y = residual(
      block, y, Seq2SeqSite::cross_attention_output, kAttentionLeaves, [&](const at::Tensor& from) {
        const at::Tensor q = block.map(from);
        block.leaves.linear(), block.leaves.linear();  // those of keys and values
        return block.map(
            attend_to(q, cache.memory_keys[layer], cache.memory_values[layer], cache.padding));
      });
  return feed_forward(block, y);
}

}  // namespace

Seam read_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t number,
                const Seam& in, const at::Tensor& ids, TargetCache& cache) {
  const at::NoGradGuard no_grad;
  const std::int64_t rows = ids.size(0), target = shape.layers + 1;
  const std::int64_t head = target + shape.decoder_layers + 1;
  const auto row_seam = [&](const at::Tensor& x) { return x.view({rows, 1, shape.width}); };
  if (number == head) return {logits_of(shape, weights, in)};
  if (number <= target) {
    const at::Tensor nothing =
        in.empty() ? at::zeros({rows, 1, shape.width}, weights.compute_options()) : in[0];
    if (number < target) return {nothing};
    return {nothing, row_seam(embed_next(shape, weights, ids, cache))};
  }
  const Batch none{{"ids", ids}};
  Seq2SeqBlock block{shape, number, none, {}, LeafReader(weights, number)};
  const at::Tensor y = row_seam(decode_next(block, in[1].view({rows, shape.width}),
                                            static_cast<std::size_t>(number - target - 1), cache));
  return number + 1 == head ? Seam{y} : Seam{in[0], y};
}

at::Tensor read_targets(const Seq2SeqShape& shape, const Weights& weights, const at::Tensor& ids,
                        TargetCache& cache) {
  Seam seam;
  for (std::int64_t b = shape.layers + 1; b < block_count(weights.spec); ++b)
    seam = read_block(shape, weights, b, seam, ids, cache);
  ++cache.length;
  return seam[0];
}

std::vector<at::Tensor> constants_of(const Seq2SeqShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like) {
  if (shape.positions == PositionKind::learned) return {};
  const auto real = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor position = at::arange(std::max(tokens, shape.target_context), real);
  const at::Tensor pair = at::arange(shape.width / 2, real);
  const at::Tensor turn =
      pair.mul(-2.0 * std::log(10000.0) / static_cast<double>(shape.width)).exp();
  const at::Tensor angle = at::outer(position, turn);  // sine and cosine of a pair are neighbours
  return {at::stack({angle.sin(), angle.cos()}, -1).view({-1, shape.width}).to(like)};
}

}  // namespace laconic
