#include "laconic/model/llama.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <optional>

#include "laconic/architecture/llama_spec.hpp"
#include "laconic/base/error.hpp"
#include "laconic/model/boundary.hpp"
#include "laconic/model/layer_parts.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a layer where dropout acts; they choose different keys.
enum class LlamaSite : std::uint64_t { embedding, attention, attention_output, mlp_output };

std::uint64_t place(LlamaSite site) {
  return static_cast<std::uint64_t>(site);
}

// The parameters of a layer in the order of llama_spec(), which leaves out what a shape has not.
struct LlamaLayer {
  NormAt norm1;
  MapAt q, k, v;
  std::optional<NormAt> q_norm, k_norm;
  MapAt out;
  NormAt norm2;
  MapAt gate, up, down;
};

LlamaLayer layer_of(const LlamaShape& shape) {
  LeafReader leaves;
  const auto head_norm = [&]() -> std::optional<NormAt> {
    if (!shape.has_qk_norm) return std::nullopt;
    return NormAt{leaves.tensor(), {}};
  };
  // The order of initialisers in braces is that of evaluation.
  return {.norm1 = {leaves.tensor(), {}},
          .q = leaves.linear(shape.has_qkv_bias),
          .k = leaves.linear(shape.has_qkv_bias),
          .v = leaves.linear(shape.has_qkv_bias),
          .q_norm = head_norm(),
          .k_norm = head_norm(),
          .out = leaves.linear(false),
          .norm2 = {leaves.tensor(), {}},
          .gate = leaves.linear(false),
          .up = leaves.linear(false),
          .down = leaves.linear(false)};
}

at::Tensor norm_heads(const LlamaShape& shape, BlockOps& ops, const at::Tensor& x,
                      const std::optional<NormAt>& norm) {
  if (!norm) return x;
  return ops.norm(x.view({-1, shape.head_width}), *norm, shape.norm_epsilon).view(x.sizes());
}

// The two residual branches of a layer around whatever mixes the tokens, which gets queries and
// keys before they are rotated.
template <class Mix>
at::Tensor layer_with(const LlamaShape& shape, BlockOps& ops, const at::Tensor& x, const Mix& mix) {
  const LlamaLayer layer = layer_of(shape);
  const auto [x_beside, a] = ops.fork_norm(x, layer.norm1, shape.norm_epsilon);
  const Tensors qkv = ops.linears(a, {layer.q, layer.k, layer.v});
  const at::Tensor mixed = mix(norm_heads(shape, ops, qkv[0], layer.q_norm),
                               norm_heads(shape, ops, qkv[1], layer.k_norm), qkv[2]);
  const auto [y, m] =
      ops.add_norm(x_beside, ops.linear(mixed, layer.out),
                   ops.stream_dropout(place(LlamaSite::attention_output), shape.width), layer.norm2,
                   shape.norm_epsilon);
  const Tensors hidden = ops.linears(m, {layer.gate, layer.up});
  return dropout_add(y, ops.linear(swiglu(hidden[0], hidden[1]), layer.down),
                     ops.stream_dropout(place(LlamaSite::mlp_output), shape.width));
}

at::Tensor embed(const LlamaShape& shape, BlockOps& ops, const at::Tensor& ids) {
  LACONIC_ASSERT(ids.size(1) <= shape.context,
                 fmt::format("{} tokens, context {}", ids.size(1), shape.context));
  const at::Tensor x = ops.table_rows(0, ids);
  const Dropout dropout = ops.stream_dropout(place(LlamaSite::embedding), shape.width);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor layer(const LlamaShape& shape, const Weights& weights, BlockOps& ops,
                 const at::Tensor& x) {
  const at::Tensor &cosines = weights.constants[0], &sines = weights.constants[1];
  const std::int64_t samples = ops.samples(RowsAt::inner), heads = ops.heads(shape.heads),
                     key_heads = ops.heads(shape.key_heads);
  return layer_with(
      shape, ops, x, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        return attention(
            rotate(q, samples, heads, cosines, sines),
            rotate(k, samples, key_heads, cosines, sines), v,
            {.samples = samples, .heads = heads, .key_heads = key_heads, .is_causal = true}, {},
            ops.attention_dropout(place(LlamaSite::attention), shape.heads));
      });
}

// Norm and table of the head: llama_spec() lists the table behind the norm, or, tied, before it.
struct LlamaHead {
  NormAt norm;
  std::size_t table;
};

LlamaHead head_of(const LlamaShape& shape) {
  if (shape.is_tied) return {.norm = {1, {}}, .table = 0};
  return {.norm = {0, {}}, .table = 1};
}

}  // namespace

Seam forward_block(const LlamaShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t tokens = block == 0 ? batch["ids"].size(1) : in[0].size(1);
  BlockOps ops(weights, block, batch.samples(), tokens, pass);
  if (block == 0) return {ops.as_seam(embed(shape, ops, batch["ids"]))};
  const at::Tensor x = in[0].view({-1, ops.stream_width(shape.width)});
  if (block <= shape.layers) return {ops.as_seam(layer(shape, weights, ops, x))};
  const LlamaHead head = head_of(shape);
  return {ops.cross_entropy(ops.norm(x, head.norm, shape.norm_epsilon), head.table, {},
                            batch["targets"])};
}

at::Tensor logits_of(const LlamaShape& shape, BlockOps& ops, const at::Tensor& x) {
  const LlamaHead head = head_of(shape);
  return ops.logits(ops.norm(x, head.norm, shape.norm_epsilon), head.table);
}

KeyValueCache make_text_cache(const LlamaShape& shape, const Weights& weights, const Pass& pass) {
  const BlockOps ops(weights, 1, 1, 1, pass);
  return make_cache({.layers = shape.layers,
                     .heads = ops.heads(shape.heads),
                     .key_heads = ops.heads(shape.key_heads),
                     .context = ops.samples(RowsAt::inner) * shape.context,
                     .head_width = shape.head_width},
                    weights.compute_options());
}

at::Tensor read_tokens(const LlamaShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache, const Pass& pass) {
  const at::NoGradGuard no_grad;
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const at::Tensor words = one_text(ids, weights.device());
  const at::Tensor cosines = weights.constants[0].narrow(0, cache.length, tokens);
  const at::Tensor sines = weights.constants[1].narrow(0, cache.length, tokens);
  BlockOps first(weights, 0, 1, tokens, pass);
  at::Tensor x = embed(shape, first, words);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    BlockOps ops(weights, l + 1, 1, tokens, pass);
    const std::int64_t texts = ops.samples(RowsAt::inner);
    const auto mix = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attend(cache, l, rotate(q, texts, ops.heads(shape.heads), cosines, sines),
                    rotate(k, texts, ops.heads(shape.key_heads), cosines, sines), v);
    };
    x = layer_with(shape, ops, x, mix);
    x = cross_boundary(weights, l + 1, {x.unsqueeze(0), words, cache.length}).view_as(x);
  }
  cache.length += tokens;
  BlockOps head(weights, shape.layers + 1, 1, 1, pass);
  return logits_of(shape, head, last_rows(x, head.samples(RowsAt::stream), tokens)).view({-1});
}

std::vector<at::Tensor> constants_of(const LlamaShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like) {
  const at::Tensor positions = at::arange(tokens, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor angles =
      at::outer(positions, at::tensor(turns_of(shape.rope, shape.head_width)));
  return {angles.cos().to(like), angles.sin().to(like)};
}

}  // namespace laconic
