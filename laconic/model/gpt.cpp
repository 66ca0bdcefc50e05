#include "laconic/model/gpt.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/model/linear.hpp"

namespace laconic {

namespace {

// Places in a layer where dropout acts; they choose different keys.
enum class Site : std::uint64_t { embedding, attention, attention_output, mlp_output };

constexpr std::size_t kPerLayer = 12;

std::string layer_name(std::int64_t layer, const char* leaf) {
  return fmt::format("h.{}.{}", layer, leaf);
}

Dropout dropout_at(const Microbatch& microbatch, std::int64_t block, Site site) {
  if (microbatch.dropout == 0 || microbatch.sample_keys.empty()) return {};
  Dropout dropout{microbatch.dropout, {}};
  for (const Key key : microbatch.sample_keys)
    dropout.sample_keys.push_back(
        derive(key, static_cast<std::uint64_t>(block), static_cast<std::uint64_t>(site)));
  return dropout;
}

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

// The parameters of one layer, by position in parameter_specs().
struct LayerView {
  const Parameter* first;
  const at::Tensor& operator[](std::size_t i) const { return first[i].value; }
};

LayerView layer_view(const Gpt& gpt, std::int64_t layer) {
  return {gpt.parameters.data() + gpt.places[2 + kPerLayer * static_cast<std::size_t>(layer)]};
}

at::Tensor embed(const Gpt& gpt, const Microbatch& microbatch) {
  const std::int64_t tokens = microbatch.ids.size(1);
  LACONIC_ASSERT(tokens <= gpt.shape.context,
                 fmt::format("{} tokens, context {}", tokens, gpt.shape.context));
  const at::Tensor rows = gpt.value(0).index_select(0, microbatch.ids.flatten());
  const at::Tensor positions = gpt.value(1).narrow(0, 0, tokens);
  const at::Tensor x =
      rows.view({-1, tokens, gpt.shape.width}).add(positions).view({-1, gpt.shape.width});
  const Dropout dropout = dropout_at(microbatch, 0, Site::embedding);
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

// What training adds to a layer.
struct Branches {
  Dropout attention, mlp;  // of the branches' outputs
  DeferredWeights* deferred = nullptr;
};

// The two residual branches of a layer around whatever mixes the tokens.
template <class Attend>
at::Tensor layer_with(const Gpt& gpt, std::int64_t layer, const at::Tensor& x, const Attend& attend,
                      const Branches& branches = {}) {
  const LayerView p = layer_view(gpt, layer);
  const double epsilon = gpt.shape.norm_epsilon;
  const auto map = [&](const at::Tensor& from, std::size_t i) {
    return linear(from, p[i], p[i + 1], branches.deferred);
  };
  const at::Tensor qkv = map(norm(x, p[0], p[1], epsilon), 2);  // [b * t, 3 d]
  const at::Tensor y = dropout_add(x, map(attend(qkv), 4), branches.attention);
  const at::Tensor hidden = laconic::gelu(map(norm(y, p[6], p[7], epsilon), 8));  // [b * t, 4 d]
  return dropout_add(y, map(hidden, 10), branches.mlp);
}

at::Tensor layer(const Gpt& gpt, std::int64_t block, const at::Tensor& x,
                 const Microbatch& microbatch) {
  const auto attend = [&](const at::Tensor& qkv) {
    return causal_attention(qkv, microbatch.ids.size(0), gpt.shape.heads,
                            dropout_at(microbatch, block, Site::attention));
  };
  return layer_with(gpt, block - 1, x, attend,
                    {.attention = dropout_at(microbatch, block, Site::attention_output),
                     .mlp = dropout_at(microbatch, block, Site::mlp_output),
                     .deferred = microbatch.deferred});
}

at::Tensor final_norm(const Gpt& gpt, const at::Tensor& x) {
  const std::size_t last = gpt.places.size();
  return norm(x, gpt.value(last - 2), gpt.value(last - 1), gpt.shape.norm_epsilon);
}

at::Tensor head(const Gpt& gpt, const at::Tensor& x, const Microbatch& microbatch) {
  return cross_entropy(final_norm(gpt, x), gpt.head_embedding, microbatch.targets.flatten(),
                       microbatch.deferred);
}

void fill(const ParameterSpec& spec, std::uint64_t seed, at::Tensor& value) {
  if (spec.deviation == 0) {
    value.fill_(spec.mean);
    return;
  }
  const Key key = derive(derive(key_of(seed), "parameter"), spec.name);
  const auto draw = [&](auto* data) {
    at::parallel_for(0, value.numel(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      fill_normal(key, static_cast<std::uint64_t>(begin), spec.mean, spec.deviation,
                  std::span(data + begin, static_cast<std::size_t>(end - begin)));
    });
  };
  if (value.scalar_type() == at::kDouble)
    draw(value.data_ptr<double>());
  else
    draw(value.data_ptr<float>());
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const GptShape& s) {
  const double usual = 0.02;
  // Branches add up in the residual stream, two a layer: GPT-2 shrinks what they begin with.
  const double branch = usual / std::sqrt(2.0 * static_cast<double>(s.layers));
  std::vector<ParameterSpec> specs = {{"wte.weight", {s.vocabulary, s.width}, 0, usual},
                                      {"wpe.weight", {s.context, s.width}, 0, usual}};
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto add = [&](const char* leaf, std::vector<std::int64_t> sizes, double mean,
                         double deviation) {
      specs.push_back({layer_name(i, leaf), std::move(sizes), mean, deviation});
    };
    add("ln_1.weight", {s.width}, 1, 0);
    add("ln_1.bias", {s.width}, 0, 0);
    add("attn.c_attn.weight", {s.width, 3 * s.width}, 0, usual);
    add("attn.c_attn.bias", {3 * s.width}, 0, 0);
    add("attn.c_proj.weight", {s.width, s.width}, 0, branch);
    add("attn.c_proj.bias", {s.width}, 0, 0);
    add("ln_2.weight", {s.width}, 1, 0);
    add("ln_2.bias", {s.width}, 0, 0);
    add("mlp.c_fc.weight", {s.width, 4 * s.width}, 0, usual);
    add("mlp.c_fc.bias", {4 * s.width}, 0, 0);
    add("mlp.c_proj.weight", {4 * s.width, s.width}, 0, branch);
    add("mlp.c_proj.bias", {s.width}, 0, 0);
  }
  specs.push_back({"ln_f.weight", {s.width}, 1, 0});
  specs.push_back({"ln_f.bias", {s.width}, 0, 0});
  return specs;
}

std::int64_t first_block(const GptShape& shape, std::size_t p) {
  if (p < 2) return 0;  // wte, wpe
  const auto layer = static_cast<std::int64_t>((p - 2) / kPerLayer);
  return std::min(layer, shape.layers) + 1;
}

std::int64_t completing_block(const Gpt& gpt, const Parameter& parameter) {
  if (is_copy(gpt, parameter)) return block_count(gpt.shape) - 1;
  return first_block(gpt.shape, parameter.number);
}

void fold_tied_gradient(const Gpt& gpt) {
  if (!gpt.holds(0) || !gpt.head_embedding.defined() || !gpt.head_embedding.grad().defined())
    return;
  const at::NoGradGuard no_grad;
  at::Tensor head = gpt.head_embedding, embedding = gpt.value(0);
  if (embedding.grad().defined())
    embedding.mutable_grad().add_(head.grad());
  else
    embedding.mutable_grad() = head.grad();
  head.mutable_grad().reset();
}

std::int64_t parameter_count(const GptShape& shape) {
  std::int64_t total = 0;
  for (const ParameterSpec& spec : parameter_specs(shape)) {
    std::int64_t elements = 1;
    for (const std::int64_t size : spec.sizes) elements *= size;
    total += elements;
  }
  return total;
}

Gpt make_empty_gpt(const GptShape& shape, const at::TensorOptions& like, const HeldBlocks& held) {
  Gpt gpt{.shape = shape, .parameters = {}, .held = held, .places = {}, .head_embedding = {}};
  const std::int64_t head = block_count(shape) - 1;
  const std::vector<ParameterSpec> specs = parameter_specs(shape);
  for (std::size_t p = 0; p < specs.size(); ++p) {
    gpt.places.push_back(gpt.parameters.size());
    if (gpt.holds(first_block(shape, p)) || (p == 0 && gpt.holds(head)))
      gpt.parameters.push_back(
          {specs[p].name, at::empty(specs[p].sizes, like).requires_grad_(true), p});
  }
  if (gpt.holds(head))
    gpt.head_embedding = gpt.holds(0) ? gpt.value(0).detach().requires_grad_(true) : gpt.value(0);
  return gpt;
}

Gpt make_gpt(const GptShape& shape, std::uint64_t seed, const at::TensorOptions& like,
             const HeldBlocks& held) {
  Gpt gpt = make_empty_gpt(shape, like, held);
  const at::NoGradGuard no_grad;
  const std::vector<ParameterSpec> specs = parameter_specs(shape);
  for (Parameter& parameter : gpt.parameters) {
    const ParameterSpec& spec = specs[parameter.number];
    at::Tensor host = at::empty(spec.sizes, like.device(at::kCPU));
    fill(spec, seed, host);
    parameter.value.copy_(host);
  }
  return gpt;
}

std::vector<Key> dropout_keys(std::uint64_t seed, std::optional<std::int64_t> step,
                              const std::vector<std::int64_t>& sample_ids) {
  const Key root = derive(key_of(seed), step ? "dropout" : "dropout by sample");
  const auto when = static_cast<std::uint64_t>(step.value_or(0));
  std::vector<Key> keys;
  for (const std::int64_t id : sample_ids)
    keys.push_back(derive(root, when, static_cast<std::uint64_t>(id)));
  return keys;
}

at::Tensor forward_block(const Gpt& gpt, std::int64_t block, const at::Tensor& input,
                         const Microbatch& microbatch) {
  if (block == 0) return embed(gpt, microbatch);
  if (block <= gpt.shape.layers) return layer(gpt, block, input, microbatch);
  return head(gpt, input, microbatch);
}

double forward_loss(const Gpt& gpt, const Microbatch& microbatch) {
  const at::NoGradGuard no_grad;
  at::Tensor x;
  for (std::int64_t b = 0; b < block_count(gpt.shape); ++b)
    x = forward_block(gpt, b, x, microbatch);
  return x.item<double>();
}

at::Tensor forward_logits(const Gpt& gpt, const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const Microbatch microbatch{.ids = ids, .targets = {}, .sample_keys = {}};
  at::Tensor x;
  for (std::int64_t b = 0; b <= gpt.shape.layers; ++b) x = forward_block(gpt, b, x, microbatch);
  return final_norm(gpt, x).mm(gpt.value(0).t());
}

at::Tensor forward_rows(const Gpt& gpt, std::span<const std::int64_t> ids, std::int64_t first,
                        const std::function<at::Tensor(std::int64_t, const at::Tensor&)>& attend) {
  const at::NoGradGuard no_grad;
  const auto rows = static_cast<std::int64_t>(ids.size());
  const at::Tensor& table = gpt.value(0);
  const at::Tensor host = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()));
  at::Tensor x =
      table.index_select(0, host.to(table.device())).add(gpt.value(1).narrow(0, first, rows));
  for (std::int64_t l = 0; l < gpt.shape.layers; ++l)
    x = layer_with(gpt, l, x, [&](const at::Tensor& qkv) { return attend(l, qkv); });
  return table.mv(final_norm(gpt, x.narrow(0, rows - 1, 1)).view({-1}));
}

}  // namespace laconic
