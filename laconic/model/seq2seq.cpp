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
#include <optional>

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
  BlockOps& ops;
  LeafReader leaves = {};

  Dropout dropout(Seq2SeqSite site) const {
    return ops.stream_dropout(static_cast<std::uint64_t>(site), shape.width);
  }
  Dropout attention_dropout(Seq2SeqSite site) const {
    return ops.attention_dropout(static_cast<std::uint64_t>(site), shape.heads);
  }
  at::Tensor dropped(const at::Tensor& x, Seq2SeqSite site) const {
    const Dropout here = dropout(site);
    return here.probability > 0 ? dropout_add(at::zeros_like(x), x, here) : x;
  }
  AttentionShape attention_shape(bool is_causal) const {
    const std::int64_t heads = ops.heads(shape.heads);
    return {.samples = ops.samples(RowsAt::inner),
            .heads = heads,
            .key_heads = heads,
            .is_causal = is_causal};
  }
};

// x + branch, with its norm before the branch or behind the sum. `norm` stands behind the leaves
// that the branch takes.
template <class Branch>
at::Tensor residual(Seq2SeqBlock& block, const at::Tensor& x, Seq2SeqSite site, const NormAt& norm,
                    const Branch& branch) {
  const double epsilon = block.shape.norm_epsilon;
  const bool is_pre = block.shape.norm == NormPlace::pre;
  const at::Tensor sum =
      dropout_add(x, branch(is_pre ? block.ops.norm(x, norm, epsilon) : x), block.dropout(site));
  return is_pre ? sum : block.ops.norm(sum, norm, epsilon);
}

struct AttentionLeaves {
  MapAt q, k, v, out;
  NormAt norm;
};

AttentionLeaves attention_leaves(LeafReader& leaves) {
  return {.q = leaves.linear(),
          .k = leaves.linear(),
          .v = leaves.linear(),
          .out = leaves.linear(),
          .norm = leaves.norm()};
}

at::Tensor self_attention(Seq2SeqBlock& block, const at::Tensor& x, bool is_causal,
                          const at::Tensor& lengths) {
  const AttentionLeaves leaves = attention_leaves(block.leaves);
  return residual(
      block, x, Seq2SeqSite::attention_output, leaves.norm, [&](const at::Tensor& from) {
        const Tensors qkv = block.ops.linears(from, {leaves.q, leaves.k, leaves.v});
        return block.ops.linear(attention(qkv[0], qkv[1], qkv[2], block.attention_shape(is_causal),
                                          lengths, block.attention_dropout(Seq2SeqSite::attention)),
                                leaves.out);
      });
}

at::Tensor cross_attention(Seq2SeqBlock& block, const at::Tensor& y, const at::Tensor& memory,
                           std::int64_t memory_tokens, const at::Tensor& lengths) {
  const AttentionLeaves leaves = attention_leaves(block.leaves);
  return residual(
      block, y, Seq2SeqSite::cross_attention_output, leaves.norm, [&](const at::Tensor& from) {
        const at::Tensor q = block.ops.linear(from, leaves.q);
        const Tensors kv = block.ops.memory_linears(memory, {leaves.k, leaves.v}, memory_tokens);
        return block.ops.linear(attention(q, kv[0], kv[1], block.attention_shape(false), lengths,
                                          block.attention_dropout(Seq2SeqSite::cross_attention)),
                                leaves.out);
      });
}

at::Tensor feed_forward(Seq2SeqBlock& block, const at::Tensor& x) {
  const MapAt up = block.leaves.linear(), down = block.leaves.linear();
  const NormAt norm = block.leaves.norm();
  return residual(block, x, Seq2SeqSite::feed_forward_output, norm, [&](const at::Tensor& from) {
    return block.ops.linear(at::relu(block.ops.linear(from, up)), down);
  });
}

// Rows of the table, as large as positions are, and the positions from `first` on. Takes the
// positions' leaf where they are learned.
at::Tensor embed(Seq2SeqBlock& block, std::size_t table, const at::Tensor& ids, std::int64_t most,
                 const Weights& weights, std::int64_t first = 0) {
  const std::int64_t tokens = ids.size(1), width = block.ops.stream_width(block.shape.width);
  LACONIC_ASSERT(first + tokens <= most,
                 fmt::format("{} + {} tokens, context {}", first, tokens, most));
  const at::Tensor positions = block.shape.positions == PositionKind::learned
                                   ? block.ops.vector(block.leaves.tensor())
                                   : block.ops.stream_columns(weights.constants[0]);
  const at::Tensor rows =
      block.ops.table_rows(table, ids).mul(std::sqrt(static_cast<double>(block.shape.width)));
  const at::Tensor x =
      rows.view({-1, tokens, width}).add(positions.narrow(0, first, tokens)).view({-1, width});
  return block.dropped(x, Seq2SeqSite::embedding);
}

// Norm, if there is one, and table of the head.
struct Seq2SeqHead {
  std::optional<NormAt> norm;
  std::size_t table = 0;
};

Seq2SeqHead head_of(const Seq2SeqShape& shape) {
  LeafReader leaves;
  Seq2SeqHead head;
  if (!has_output_table(shape.sharing)) head.table = leaves.tensor();
  if (shape.norm == NormPlace::pre) head.norm = leaves.norm();
  if (has_output_table(shape.sharing)) head.table = leaves.tensor();
  return head;
}

at::Tensor normed(const Seq2SeqShape& shape, const Seq2SeqHead& head, BlockOps& ops,
                  const at::Tensor& y) {
  return head.norm ? ops.norm(y, *head.norm, shape.norm_epsilon) : y;
}

// Returns memory and y.
Seam target_embedding(Seq2SeqBlock& block, const at::Tensor& x, const at::Tensor& ids,
                      const Weights& weights) {
  const Seq2SeqShape& shape = block.shape;
  std::size_t table = 0;
  if (is_input_shared(shape.sharing)) table = block.leaves.tensor();
  const at::Tensor memory = shape.norm == NormPlace::pre
                                ? block.ops.norm(x, block.leaves.norm(), shape.norm_epsilon)
                                : x.view_as(x);
  if (!is_input_shared(shape.sharing)) table = block.leaves.tensor();
  return {memory, embed(block, table, ids, shape.target_context, weights)};
}

}  // namespace

Seam forward_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t number,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t target = shape.layers + 1, head = target + shape.decoder_layers + 1;
  const std::int64_t source_tokens = batch["source"].size(1);
  // What the block's own activations have. Without a decoder's ids there is nothing behind it.
  const std::int64_t tokens = number < target ? source_tokens : batch["ids"].size(1);
  BlockOps ops(weights, number, batch.samples(), tokens, pass);
  Seq2SeqBlock block{shape, ops};
  const std::int64_t width = ops.stream_width(shape.width);
  const auto flat = [&](const at::Tensor& x) { return x.view({-1, width}); };
  const auto seam = [&](const at::Tensor& x, std::int64_t length) {
    return x.view({ops.samples(RowsAt::stream), length, width});
  };
  if (number == 0) {
    const std::size_t table = block.leaves.tensor();
    return {seam(embed(block, table, batch["source"], shape.context, weights), tokens)};
  }
  if (number == head) {
    const Seq2SeqHead leaves = head_of(shape);
    return {ops.cross_entropy(normed(shape, leaves, ops, flat(in[0])), leaves.table, {},
                              batch["targets"], pass.label_smoothing)};
  }
  const at::Tensor lengths = ops.rows_of(batch["source_length"], RowsAt::inner).flatten();
  if (number < target)
    return {seam(feed_forward(block, self_attention(block, flat(in[0]), false, lengths)), tokens)};
  if (number == target) {
    const Seam both = target_embedding(block, flat(in[0]), batch["ids"], weights);
    return {seam(both[0], source_tokens), seam(both[1], tokens)};
  }
  const at::Tensor memory = flat(in[0]);
  at::Tensor y = self_attention(block, flat(in[1]), true, {});
  y = feed_forward(block, cross_attention(block, y, memory, source_tokens, lengths));
  if (number + 1 == head) return {seam(y, tokens)};
  return {seam(memory, source_tokens), seam(y, tokens)};
}

at::Tensor logits_of(const Seq2SeqShape& shape, BlockOps& ops, const at::Tensor& x) {
  const Seq2SeqHead head = head_of(shape);
  return ops.logits(normed(shape, head, ops, x), head.table);
}

namespace {

// What a rank has of rows and heads of a cache.
struct HeldRows {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
};

HeldRows held_rows(const Seq2SeqShape& shape, const BlockOps& ops) {
  return {ops.samples(RowsAt::inner), ops.heads(shape.heads)};
}

// [rows * tokens, d] as [rows, heads, tokens, head width]. There may be no rows.
at::Tensor by_head(const at::Tensor& x, const HeldRows& held, std::int64_t tokens) {
  return x.view({held.rows, tokens, held.heads, x.size(1) / held.heads}).transpose(1, 2);
}

// One query a row and head; what is `hidden` is not seen.
at::Tensor attend_to(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                     const at::Tensor& hidden) {
  at::Tensor scores = by_head(q, {keys.size(0), keys.size(1)}, 1).matmul(keys.transpose(2, 3));
  scores = scores.div_(std::sqrt(static_cast<double>(keys.size(3))));
  if (hidden.defined())
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return scores.softmax(-1).matmul(values).transpose(1, 2).reshape(q.sizes());
}

}  // namespace

Seam encode_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t block,
                  const Seam& in, const Batch& batch, TargetCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const std::int64_t target = shape.layers + 1, head = target + shape.decoder_layers + 1;
  if (block <= target) return forward_block(shape, weights, block, in, batch, pass);
  if (block == head) return {};
  const std::int64_t tokens = batch["source"].size(1);
  const auto layer = static_cast<std::size_t>(block - target - 1);
  BlockOps ops(weights, block, batch.samples(), tokens, pass);
  const HeldRows held = held_rows(shape, ops);
  const at::Tensor memory = in[0].view({-1, ops.stream_width(shape.width)});
  LeafReader leaves;
  attention_leaves(leaves);  // of the decoder's own tokens
  const AttentionLeaves across = attention_leaves(leaves);
  const Tensors kv = ops.linears(memory, {across.k, across.v});
  cache.memory_keys[layer] = by_head(kv[0], held, tokens).contiguous();
  cache.memory_values[layer] = by_head(kv[1], held, tokens).contiguous();
  cache.keys[layer] = cache.values[layer] = cache.memory_keys[layer].narrow(2, 0, 0);
  return block + 1 == head ? Seam{in[1]} : in;
}

namespace {

// Embeddings [rows, d] of the next tokens, one for each row. What else the block has is passed
// over.
at::Tensor embed_next(Seq2SeqBlock& block, const Weights& weights, const at::Tensor& ids,
                      const TargetCache& cache) {
  const Seq2SeqShape& shape = block.shape;
  std::size_t table = 0;
  if (is_input_shared(shape.sharing)) table = block.leaves.tensor();
  if (shape.norm == NormPlace::pre) block.leaves.norm();
  if (!is_input_shared(shape.sharing)) table = block.leaves.tensor();
  return embed(block, table, ids.view({-1, 1}), shape.target_context, weights, cache.length);
}

// One decoder, y [rows, d].
at::Tensor decode_next(Seq2SeqBlock& block, at::Tensor y, std::size_t layer, TargetCache& cache) {
  const HeldRows held = held_rows(block.shape, block.ops);
  const AttentionLeaves own = attention_leaves(block.leaves);
  y = residual(block, y, Seq2SeqSite::attention_output, own.norm, [&](const at::Tensor& from) {
    const Tensors qkv = block.ops.linears(from, {own.q, own.k, own.v});
    at::Tensor &keys = cache.keys[layer], &values = cache.values[layer];
    keys = at::cat({keys, by_head(qkv[1], held, 1)}, 2);
    values = at::cat({values, by_head(qkv[2], held, 1)}, 2);
    return block.ops.linear(attend_to(qkv[0], keys, values, {}), own.out);
  });
  const AttentionLeaves across = attention_leaves(block.leaves);
  const at::Tensor padding = block.ops.rows_of(cache.padding, RowsAt::inner);
  y = residual(block, y, Seq2SeqSite::cross_attention_output, across.norm,
               [&](const at::Tensor& from) {
                 const at::Tensor mixed =
                     attend_to(block.ops.linear(from, across.q), cache.memory_keys[layer],
                               cache.memory_values[layer], padding);
                 return block.ops.linear(mixed, across.out);
               });
  return feed_forward(block, y);
}

}  // namespace

Seam read_block(const Seq2SeqShape& shape, const Weights& weights, std::int64_t number,
                const Seam& in, const at::Tensor& ids, TargetCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const std::int64_t target = shape.layers + 1, head = target + shape.decoder_layers + 1;
  BlockOps ops(weights, number, ids.size(0), 1, pass);
  Seq2SeqBlock block{shape, ops};
  const std::int64_t rows = ops.samples(RowsAt::stream), width = ops.stream_width(shape.width);
  const auto row_seam = [&](const at::Tensor& x) { return x.view({rows, 1, width}); };
  if (number <= target) {
    const at::Tensor nothing =
        in.empty() ? at::zeros({rows, 1, width}, weights.compute_options()) : in[0];
    if (number < target) return {nothing};
    return {nothing, row_seam(embed_next(block, weights, ids, cache))};
  }
  if (number == head) return {logits_of(shape, ops, in[0].view({rows, width}))};
  const at::Tensor y = row_seam(decode_next(block, in[1].view({rows, width}),
                                            static_cast<std::size_t>(number - target - 1), cache));
  return number + 1 == head ? Seam{y} : Seam{in[0], y};
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
