#include "laconic/model/llama.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/architecture/llama_spec.hpp"
#include "laconic/base/error.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a layer where dropout acts; they choose different keys.
enum class LlamaSite : std::uint64_t { embedding, attention, attention_output, mlp_output };

Dropout dropout_at(const Pass& pass, std::int64_t block, LlamaSite site) {
  return dropout_at(pass, block, static_cast<std::uint64_t>(site));
}

// The parameters of a layer in the order of llama_spec(), which leaves out what a shape has not.
struct LlamaLayer {
  at::Tensor norm1, q, q_bias, k, k_bias, v, v_bias, q_norm, k_norm, out, norm2, gate, up, down;
};

LlamaLayer layer_of(const LlamaShape& shape, const Weights& weights, std::int64_t block) {
  std::size_t next = 0;
  const auto take = [&](bool is_there = true) {
    return is_there ? weights.leaf(block, next++) : at::Tensor();
  };
  // The order of initialisers in braces is that of evaluation.
  return {.norm1 = take(),
          .q = take(),
          .q_bias = take(shape.has_qkv_bias),
          .k = take(),
          .k_bias = take(shape.has_qkv_bias),
          .v = take(),
          .v_bias = take(shape.has_qkv_bias),
          .q_norm = take(shape.has_qk_norm),
          .k_norm = take(shape.has_qk_norm),
          .out = take(),
          .norm2 = take(),
          .gate = take(),
          .up = take(),
          .down = take()};
}

at::Tensor norm_heads(const LlamaShape& shape, const at::Tensor& x, const at::Tensor& weight) {
  if (!weight.defined()) return x;
  return rms_norm(x.view({-1, shape.head_width}), weight, shape.norm_epsilon).view(x.sizes());
}

// What training adds to a layer.
struct LlamaBranches {
  Dropout attention, mlp;  // of the branches' outputs
  DeferredWeights* deferred = nullptr;
};

// The two residual branches of a layer around whatever mixes the tokens, which gets queries and
// keys before they are rotated.
template <class Mix>
at::Tensor layer_with(const LlamaShape& shape, const LlamaLayer& layer, const at::Tensor& x,
                      const Mix& mix, const LlamaBranches& branches = {}) {
  const auto map = [&](const at::Tensor& from, const at::Tensor& weight, const at::Tensor& bias) {
    return transposed_linear(from, weight, bias, branches.deferred);
  };
  const auto [x_beside, a] = fork_rms_norm(x, layer.norm1, shape.norm_epsilon);
  const at::Tensor mixed = mix(norm_heads(shape, map(a, layer.q, layer.q_bias), layer.q_norm),
                               norm_heads(shape, map(a, layer.k, layer.k_bias), layer.k_norm),
                               map(a, layer.v, layer.v_bias));
  const auto [y, m] = add_rms_norm(x_beside, map(mixed, layer.out, {}), branches.attention,
                                   layer.norm2, shape.norm_epsilon);
  const at::Tensor hidden = swiglu(map(m, layer.gate, {}), map(m, layer.up, {}));
  return dropout_add(y, map(hidden, layer.down, {}), branches.mlp);
}

at::Tensor embed(const LlamaShape& shape, const Weights& weights, const Batch& batch,
                 const Pass& pass) {
  const at::Tensor& ids = batch["ids"];
  LACONIC_ASSERT(ids.size(1) <= shape.context,
                 fmt::format("{} tokens, context {}", ids.size(1), shape.context));
  const at::Tensor x = table_rows(weights.leaf(0, 0), ids.flatten());
  const Dropout dropout = dropout_at(pass, 0, LlamaSite::embedding);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor layer(const LlamaShape& shape, const Weights& weights, std::int64_t block,
                 const at::Tensor& x, std::int64_t samples, const Pass& pass) {
  const at::Tensor &cosines = weights.constants[0], &sines = weights.constants[1];
  const auto mix = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return attention(
        rotate(q, samples, shape.heads, cosines, sines),
        rotate(k, samples, shape.key_heads, cosines, sines), v,
        {.samples = samples, .heads = shape.heads, .key_heads = shape.key_heads, .is_causal = true},
        {}, dropout_at(pass, block, LlamaSite::attention));
  };
  return layer_with(shape, layer_of(shape, weights, block), x, mix,
                    {.attention = dropout_at(pass, block, LlamaSite::attention_output),
                     .mlp = dropout_at(pass, block, LlamaSite::mlp_output),
                     .deferred = pass.deferred});
}

// Norm and table of the head: llama_spec() lists the table behind the norm, or, tied, before it.
struct LlamaHead {
  at::Tensor norm, table;
};

LlamaHead head_of(const LlamaShape& shape, const Weights& weights) {
  const std::int64_t head = shape.layers + 1;
  return {weights.leaf(head, shape.is_tied ? 1 : 0), weights.leaf(head, shape.is_tied ? 0 : 1)};
}

}  // namespace

Seam forward_block(const LlamaShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t samples = batch.samples();
  const auto seam = [&](const at::Tensor& x) { return Seam{x.view({samples, -1, shape.width})}; };
  if (block == 0) return seam(embed(shape, weights, batch, pass));
  const at::Tensor x = in[0].view({-1, shape.width});
  if (block <= shape.layers) return seam(layer(shape, weights, block, x, samples, pass));
  const LlamaHead head = head_of(shape, weights);
  return {cross_entropy(rms_norm(x, head.norm, shape.norm_epsilon), head.table, {},
                        batch["targets"].flatten(), pass.deferred, 0,
                        weights.room(block, head.table))};
}

at::Tensor logits_of(const LlamaShape& shape, const Weights& weights, const Seam& seam) {
  const LlamaHead head = head_of(shape, weights);
  const at::Tensor x = seam[0].view({-1, shape.width});
  return rms_norm(x, head.norm, shape.norm_epsilon).mm(head.table.t());
}

CacheShape cache_shape(const LlamaShape& shape) {
  return {.layers = shape.layers,
          .heads = shape.heads,
          .key_heads = shape.key_heads,
          .context = shape.context,
          .head_width = shape.head_width};
}

at::Tensor read_tokens(const LlamaShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache) {
  const at::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(ids.size());
  const at::Tensor& table = weights.leaf(0, 0);
  const at::Tensor host = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()));
  const at::Tensor cosines = weights.constants[0].narrow(0, cache.length, rows);
  const at::Tensor sines = weights.constants[1].narrow(0, cache.length, rows);
  at::Tensor x = table.index_select(0, host.to(table.device()));
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const auto mix = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attend(cache, l, rotate(q, 1, shape.heads, cosines, sines),
                    rotate(k, 1, shape.key_heads, cosines, sines), v);
    };
    x = layer_with(shape, layer_of(shape, weights, l + 1), x, mix);
  }
  cache.length += rows;
  const LlamaHead head = head_of(shape, weights);
  return head.table.mv(
      rms_norm(x.narrow(0, rows - 1, 1), head.norm, shape.norm_epsilon).view({-1}));
}

std::vector<at::Tensor> constants_of(const LlamaShape& shape, std::int64_t tokens,
                                     const at::TensorOptions& like) {
  const at::Tensor positions = at::arange(tokens, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor angles =
      at::outer(positions, at::tensor(turns_of(shape.rope, shape.head_width)));
  return {angles.cos().to(like), angles.sin().to(like)};
}

}  // namespace laconic
