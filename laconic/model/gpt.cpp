#include "laconic/model/gpt.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/linear.hpp"
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

Dropout dropout_at(const Pass& pass, std::int64_t block, Site site) {
  return dropout_at(pass, block, static_cast<std::uint64_t>(site));
}

// Layer norm by the weight that the block lists at `i`, and the bias behind it.
at::Tensor norm(const GptShape& shape, const Weights& weights, std::int64_t block, std::size_t i,
                const at::Tensor& x) {
  return layer_norm(x, weights.leaf(block, i), weights.leaf(block, i + 1), shape.norm_epsilon);
}

at::Tensor embed(const GptShape& shape, const Weights& weights, const Batch& batch,
                 const Pass& pass) {
  const at::Tensor& ids = batch["ids"];
  const std::int64_t tokens = ids.size(1);
  LACONIC_ASSERT(tokens <= shape.context,
                 fmt::format("{} tokens, context {}", tokens, shape.context));
  const at::Tensor rows = table_rows(weights.leaf(0, kTokens), ids.flatten());
  const at::Tensor positions = weights.leaf(0, kPositions).narrow(0, 0, tokens);
  const at::Tensor x = rows.view({-1, tokens, shape.width}).add(positions).view({-1, shape.width});
  const Dropout dropout = dropout_at(pass, 0, Site::embedding);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

// What training adds to a layer.
struct Branches {
  Dropout attention, mlp;  // of the branches' outputs
  DeferredWeights* deferred = nullptr;
};

// The two residual branches of a layer around whatever mixes the tokens.
template <class Attend>
at::Tensor layer_with(const GptShape& shape, const Weights& weights, std::int64_t block,
                      const at::Tensor& x, const Attend& mix, const Branches& branches = {}) {
  const auto map = [&](const at::Tensor& from, std::size_t i) {
    return linear(from, weights.leaf(block, i), weights.leaf(block, i + 1), branches.deferred);
  };
  const Forked a = fork_layer_norm(x, weights.leaf(block, kNorm1), weights.leaf(block, kNorm1 + 1),
                                   shape.norm_epsilon);
  const at::Tensor qkv = map(a.normed, kAttention);  // [b * t, 3 d]
  const Forked m = add_layer_norm(a.beside, map(mix(qkv), kProjection), branches.attention,
                                  weights.leaf(block, kNorm2), weights.leaf(block, kNorm2 + 1),
                                  shape.norm_epsilon);
  const at::Tensor hidden = gelu_linear(m.normed, weights.leaf(block, kUp),
                                        weights.leaf(block, kUp + 1), branches.deferred);
  return dropout_add(m.beside, map(hidden, kDown), branches.mlp);  // hidden: [b * t, 4 d]
}

at::Tensor layer(const GptShape& shape, const Weights& weights, std::int64_t block,
                 const at::Tensor& x, std::int64_t samples, const Pass& pass) {
  const auto mix = [&](const at::Tensor& qkv) {
    return causal_attention(qkv, samples, shape.heads, dropout_at(pass, block, Site::attention));
  };
  return layer_with(shape, weights, block, x, mix,
                    {.attention = dropout_at(pass, block, Site::attention_output),
                     .mlp = dropout_at(pass, block, Site::mlp_output),
                     .deferred = pass.deferred});
}

}  // namespace

Seam forward_block(const GptShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const std::int64_t samples = batch.samples();
  const auto seam = [&](const at::Tensor& x) { return Seam{x.view({samples, -1, shape.width})}; };
  if (block == 0) return seam(embed(shape, weights, batch, pass));
  const at::Tensor x = in[0].view({-1, shape.width});
  if (block <= shape.layers) return seam(layer(shape, weights, block, x, samples, pass));
  const at::Tensor& table = weights.leaf(block, kTable);
  return {cross_entropy(norm(shape, weights, block, kNorm, x), table, batch["targets"].flatten(),
                        pass.deferred, 0, weights.room(block, table))};
}

at::Tensor logits_of(const GptShape& shape, const Weights& weights, const Seam& seam) {
  const std::int64_t head = shape.layers + 1;
  const at::Tensor x = seam[0].view({-1, shape.width});
  return norm(shape, weights, head, kNorm, x).mm(weights.leaf(head, kTable).t());
}

CacheShape cache_shape(const GptShape& shape) {
  return {.layers = shape.layers,
          .heads = shape.heads,
          .key_heads = shape.heads,
          .context = shape.context,
          .head_width = shape.width / shape.heads};
}

at::Tensor read_tokens(const GptShape& shape, const Weights& weights,
                       std::span<const std::int64_t> ids, KeyValueCache& cache) {
  const at::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(ids.size());
  const at::Tensor& table = weights.leaf(0, kTokens);
  const at::Tensor host = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()));
  at::Tensor x = table.index_select(0, host.to(table.device()))
                     .add(weights.leaf(0, kPositions).narrow(0, cache.length, rows));
  for (std::int64_t l = 0; l < shape.layers; ++l)
    x = layer_with(shape, weights, l + 1, x, [&](const at::Tensor& qkv) {
      const std::vector<at::Tensor> parts = qkv.chunk(3, 1);
      return attend(cache, l, parts[0], parts[1], parts[2]);
    });
  cache.length += rows;
  const std::int64_t head = shape.layers + 1;
  return table.mv(norm(shape, weights, head, kNorm, x.narrow(0, rows - 1, 1)).view({-1}));
}

std::vector<at::Tensor> constants_of(const GptShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
