#include "laconic/model/gpt.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/boundary.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a layer where dropout acts; they choose different keys.
enum class Site : std::uint64_t { embedding, attention, attention_output, mlp_output };

// Parameters of a block, as gpt_spec() lists them.
enum Embedding : std::size_t { kTokens, kPositions };
enum Layer : std::size_t {
  kNorm1 = 0,  // each is a weight; its bias follows
  kAttention = 2,
  kProjection = 4,
  kNorm2 = 6,
  kUp = 8,
  kDown = 10
};
enum Head : std::size_t { kTable, kNorm };

std::uint64_t place(Site site) {
  return static_cast<std::uint64_t>(site);
}

// A weight and the bias behind it.
MapAt map_at(std::size_t weight) {
  return {weight, weight + 1};
}
NormAt norm_at(std::size_t weight) {
  return {weight, weight + 1};
}

// `first` is the position of the first token.
at::Tensor embed(const GptShape& shape, BlockOps& ops, const at::Tensor& ids,
                 std::int64_t first = 0) {
  const std::int64_t tokens = ids.size(1), width = ops.stream_width(shape.width);
  LACONIC_ASSERT(first + tokens <= shape.context,
                 fmt::format("{} + {} tokens, context {}", first, tokens, shape.context));
  const at::Tensor rows = ops.table_rows(kTokens, ids);
  const at::Tensor positions = ops.vector(kPositions).narrow(0, first, tokens);
  const at::Tensor x = rows.view({-1, tokens, width}).add(positions).view({-1, width});
  const Dropout dropout = ops.stream_dropout(place(Site::embedding), shape.width);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

// The two residual branches of a layer around whatever mixes the tokens.
template <class Attend>
at::Tensor layer_with(const GptShape& shape, BlockOps& ops, const at::Tensor& x,
                      const Attend& mix) {
  const Forked a = ops.fork_norm(x, norm_at(kNorm1), shape.norm_epsilon);
  const at::Tensor qkv = ops.linear(a.normed, map_at(kAttention));  // [b * t, 3 d]
  const at::Tensor mixed = ops.linear(mix(qkv), map_at(kProjection));
  const Forked m =
      ops.add_norm(a.beside, mixed, ops.stream_dropout(place(Site::attention_output), shape.width),
                   norm_at(kNorm2), shape.norm_epsilon);
  const at::Tensor hidden = ops.gelu_linear(m.normed, map_at(kUp));  // [b * t, 4 d]
  return dropout_add(m.beside, ops.linear(hidden, map_at(kDown)),
                     ops.stream_dropout(place(Site::mlp_output), shape.width));
}

at::Tensor layer(const GptShape& shape, BlockOps& ops, const at::Tensor& x) {
  return layer_with(shape, ops, x, [&](const at::Tensor& qkv) {
    return causal_attention(qkv, ops.samples(RowsAt::inner), ops.heads(shape.heads),
                            ops.attention_dropout(place(Site::attention), shape.heads));
  });
}

}  // namespace

Seam forward_block(const GptShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t tokens = block == 0 ? batch["ids"].size(1) : in[0].size(1);
  BlockOps ops(weights, block, batch.samples(), tokens, pass);
  if (block == 0) return {ops.as_seam(embed(shape, ops, batch["ids"]))};
  const at::Tensor x = in[0].view({-1, ops.stream_width(shape.width)});
  if (block <= shape.layers) return {ops.as_seam(layer(shape, ops, x))};
  return {ops.cross_entropy(ops.norm(x, norm_at(kNorm), shape.norm_epsilon), kTable, {},
                            batch["targets"])};
}

at::Tensor logits_of(const GptShape& shape, BlockOps& ops, const at::Tensor& x) {
  return ops.logits(ops.norm(x, norm_at(kNorm), shape.norm_epsilon), kTable);
}

KeyValueCache make_text_cache(const GptShape& shape, const Weights& weights, const Pass& pass) {
  const BlockOps ops(weights, 1, 1, 1, pass);
  return make_cache({.layers = shape.layers,
                     .heads = ops.heads(shape.heads),
                     .key_heads = ops.heads(shape.heads),
                     .context = ops.samples(RowsAt::inner) * shape.context,
                     .head_width = shape.width / shape.heads},
                    weights.compute_options());
}

at::Tensor read_tokens(const GptShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const at::Tensor words = one_text(ids, weights.device());
  BlockOps first(weights, 0, 1, tokens, pass);
  at::Tensor x = embed(shape, first, words, cache.length);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    BlockOps ops(weights, l + 1, 1, tokens, pass);
    x = layer_with(shape, ops, x, [&](const at::Tensor& qkv) {
      const std::vector<at::Tensor> parts = qkv.chunk(3, 1);
      return attend(cache, l, parts[0], parts[1], parts[2]);
    });
    x = cross_boundary(weights, l + 1, {x.unsqueeze(0), words, cache.length}).view_as(x);
  }
  cache.length += tokens;
  BlockOps head(weights, shape.layers + 1, 1, 1, pass);
  return logits_of(shape, head, last_rows(x, head.samples(RowsAt::stream), tokens)).view({-1});
}

std::vector<at::Tensor> constants_of(const GptShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
