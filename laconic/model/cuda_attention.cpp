// Attention on a GPU by libtorch's flash kernels, whose parts for forward and backward are private
// there: each is called in one place here.
#include <ATen/Context.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>
#include <tuple>

#include "laconic/model/cuda_support.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::cuda {

namespace {

using at::Tensor;
using torch::autograd::variable_list;

// As _fused_sdp_choice() numbers them.
enum class Kernels : std::int64_t { none = 0, flash = 1, efficient = 2, cudnn = 3 };

// Backward of libtorch's attention gives the same bits every time only where anything else is an
// error.
class StrictlyDeterministic {
 public:
  StrictlyDeterministic()
      : is_on_(at::globalContext().deterministicAlgorithms()),
        is_lenient_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
    if (is_on_) at::globalContext().setDeterministicAlgorithms(true, false);
  }
  ~StrictlyDeterministic() {
    if (is_on_) at::globalContext().setDeterministicAlgorithms(true, is_lenient_);
  }
  StrictlyDeterministic(const StrictlyDeterministic&) = delete;
  StrictlyDeterministic& operator=(const StrictlyDeterministic&) = delete;

 private:
  bool is_on_, is_lenient_;
};

// q: [samples, heads, queries, head width], k and v likewise; bias: [samples, heads, queries, keys]
// or undefined.
struct AttentionKept {
  Kernels kernels;
  Tensor q, k, v, bias, out, log_sums, seed, offset, starts_q, starts_k;
  std::int64_t most_q = 0, most_k = 0;
  bool is_causal;
};

AttentionKept attend(Kernels kernels, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& bias, bool is_causal, bool is_trained) {
  AttentionKept kept{
      .kernels = kernels, .q = q, .k = k, .v = v, .bias = bias, .is_causal = is_causal};
  c10::SymInt most_q = 0, most_k = 0;
  Tensor debug;
  const std::optional<Tensor> optional_bias =
      bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  switch (kernels) {
    case Kernels::flash:
      std::tie(kept.out, kept.log_sums, kept.starts_q, kept.starts_k, most_q, most_k, kept.seed,
               kept.offset, debug) =
          at::_scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal, false);
      break;
    case Kernels::cudnn:
      std::tie(kept.out, kept.log_sums, kept.starts_q, kept.starts_k, most_q, most_k, kept.seed,
               kept.offset, debug) =
          at::_scaled_dot_product_cudnn_attention(q, k, v, optional_bias, is_trained, 0.0,
                                                  is_causal, false);
      break;
    case Kernels::efficient:
    case Kernels::none:
      std::tie(kept.out, kept.log_sums, kept.seed, kept.offset) =
          at::_scaled_dot_product_efficient_attention(q, k, v, optional_bias, is_trained, 0.0,
                                                      is_causal);
      break;
  }
  kept.most_q = most_q.guard_int(__FILE__, __LINE__);
  kept.most_k = most_k.guard_int(__FILE__, __LINE__);
  return kept;
}

std::tuple<Tensor, Tensor, Tensor> attend_back(const AttentionKept& kept, const Tensor& gradient) {
  const StrictlyDeterministic strict;
  switch (kept.kernels) {
    case Kernels::flash:
      return at::_scaled_dot_product_flash_attention_backward(
          gradient, kept.q, kept.k, kept.v, kept.out, kept.log_sums, kept.starts_q, kept.starts_k,
          kept.most_q, kept.most_k, 0.0, kept.is_causal, kept.seed, kept.offset);
    case Kernels::cudnn:
      return at::_scaled_dot_product_cudnn_attention_backward(
          gradient, kept.q, kept.k, kept.v, kept.out, kept.log_sums, kept.seed, kept.offset,
          kept.bias, kept.starts_q, kept.starts_k, kept.most_q, kept.most_k, 0.0, kept.is_causal);
    case Kernels::efficient:
    case Kernels::none: break;
  }
  auto [dq, dk, dv, of_bias] = at::_scaled_dot_product_efficient_attention_backward(
      gradient, kept.q, kept.k, kept.v, kept.bias, kept.out, kept.log_sums, kept.seed, kept.offset,
      0.0, {true, true, true, false}, kept.is_causal);
  return {dq, dk, dv};
}

// [samples * tokens, heads * head width] as [samples, heads, tokens, head width].
Tensor by_head(const Tensor& x, std::int64_t samples, std::int64_t heads) {
  return x.unflatten(1, {heads, -1}).unflatten(0, {samples, -1}).transpose(1, 2);
}
// And back; without a copy, if it lies so.
Tensor as_rows(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)});
}

// Requires: tensors with the history that they have, since some kernels are for inference alone.
Kernels choose(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
               bool is_causal) {
  const std::optional<Tensor> mask = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  const auto kernels =
      static_cast<Kernels>(at::_fused_sdp_choice(q, k, v, mask, 0.0, is_causal, std::nullopt,
                                                 /*enable_gqa=*/q.size(1) != k.size(1)));
  // libtorch pads other widths before it comes to flash 2, whose private part refuses them.
  const bool is_refused = kernels == Kernels::flash && q.size(3) % 8 != 0;
  return is_refused ? Kernels::none : kernels;
}

// 0 where a key is seen, and minus infinity where it is padding.
Tensor padding_bias(const Tensor& lengths, const Tensor& q, std::int64_t keys) {
  const Tensor is_padding = at::arange(keys, lengths.options()).ge(lengths.view({-1, 1}));
  return at::zeros(is_padding.sizes(), q.options().requires_grad(false))
      .masked_fill_(is_padding, -std::numeric_limits<double>::infinity())
      .view({-1, 1, 1, keys})
      .expand({-1, q.size(1), q.size(2), -1});
}

// Gradients come from kernels in the order of their queries' memory.
Tensor like_output(const Tensor& gradient, std::int64_t samples, std::int64_t heads) {
  return by_head(gradient.contiguous(), samples, heads);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape,
                 const Tensor& lengths, const Dropout& dropout) {
  const std::int64_t samples = shape.samples, keys = k.size(0) / samples;
  const auto compose = [&] { return composed::attention(q, k, v, shape, lengths, dropout); };
  if (dropout.probability > 0 || (lengths.defined() && (shape.is_causal || keys % 8 != 0)))
    return compose();
  const auto split = [&](const Tensor& any_q, const Tensor& any_k, const Tensor& any_v) {
    return std::tuple(by_head(any_q, samples, shape.heads),
                      by_head(any_k, samples, shape.key_heads),
                      by_head(any_v, samples, shape.key_heads));
  };
  const auto [q_before, k_before, v_before] = split(q, k, v);
  const Tensor bias = lengths.defined() ? padding_bias(lengths, q_before, keys) : Tensor();
  const Kernels kernels = choose(q_before, k_before, v_before, bias, shape.is_causal);
  const bool is_grouped = shape.heads != shape.key_heads;
  if (kernels == Kernels::none || (is_grouped && kernels == Kernels::efficient)) return compose();
  const bool is_trained = is_recorded({q, k, v});
  const at::NoGradGuard no_grad;
  const auto [qs, ks, vs] = split(q.detach(), k.detach(), v.detach());
  const AttentionKept kept = attend(kernels, qs, ks, vs, bias, shape.is_causal, is_trained);
  const Tensor out = as_rows(kept.out).detach();
  if (is_trained)
    record({q, k, v}, {out}, [kept, shape](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor(), Tensor(), Tensor()};
      const auto [dq, dk, dv] = attend_back(kept, like_output(g[0], shape.samples, shape.heads));
      return {as_rows(dq), as_rows(dk), as_rows(dv)};
    });
  return out;
}

Tensor causal_attention(const Tensor& any, std::int64_t samples, std::int64_t heads,
                        const Dropout& dropout) {
  const auto compose = [&] { return composed::causal_attention(any, samples, heads, dropout); };
  if (dropout.probability > 0) return compose();
  const auto split = [&](const Tensor& qkv) {
    const std::vector<Tensor> parts = qkv.chunk(3, 1);
    return std::tuple(by_head(parts[0], samples, heads), by_head(parts[1], samples, heads),
                      by_head(parts[2], samples, heads));
  };
  const auto [q_before, k_before, v_before] = split(any);
  const Kernels kernels = choose(q_before, k_before, v_before, {}, true);
  if (kernels == Kernels::none) return compose();
  const bool is_trained = is_recorded({any});
  const at::NoGradGuard no_grad;
  const auto [q, k, v] = split(any.detach());
  const AttentionKept kept = attend(kernels, q, k, v, {}, true, is_trained);
  const Tensor out = as_rows(kept.out).detach();
  if (is_trained)
    record({any}, {out}, [kept, samples, heads](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor()};
      const auto [dq, dk, dv] = attend_back(kept, like_output(g[0], samples, heads));
      return {at::cat({as_rows(dq), as_rows(dk), as_rows(dv)}, 1)};
    });
  return out;
}

}  // namespace laconic::cuda
