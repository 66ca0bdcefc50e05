#include "laconic/model/additive_attention.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "laconic/model/kernel/lstm.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/own_backward.hpp"

namespace laconic {

using at::Tensor;

namespace composed {

Tensor additive_scores(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t samples) {
  const std::int64_t features = v.size(0);
  const Tensor sums = q.view({samples, -1, 1, features}).add(k.view({samples, 1, -1, features}));
  return sums.tanh().mul(v).sum(-1);
}

}  // namespace composed

namespace fused {

namespace {

struct ScoreTask {
  Tensor q, k, v;
  std::int64_t samples = 0, queries = 0, keys = 0, features = 0;
};

Tensor scores_of(const ScoreTask& t) {
  Tensor scores = t.q.new_empty({t.samples, t.queries, t.keys});
  AT_DISPATCH_FLOATING_TYPES(t.q.scalar_type(), "additive_scores", [&] {
    const auto *q = t.q.data_ptr<scalar_t>(), *k = t.k.data_ptr<scalar_t>(),
               *v = t.v.data_ptr<scalar_t>();
    auto* out = scores.data_ptr<scalar_t>();
    at::parallel_for(0, t.samples * t.queries, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t key = 0; key < t.keys; ++key)
          out[row * t.keys + key] = kernel::additive<scalar_t>().score(
              q + row * t.features, k + (row / t.queries * t.keys + key) * t.features, v,
              t.features);
    });
  });
  return scores;
}

// Sample by sample; v's gradient is summed in their order, whatever the number of threads.
Tensors gradients_of(const ScoreTask& t, const Tensor& d_scores) {
  const Tensor dq = t.q.new_zeros(t.q.sizes()), dk = t.k.new_zeros(t.k.sizes()),
               dv = t.v.new_zeros({t.samples, t.features});
  AT_DISPATCH_FLOATING_TYPES(t.q.scalar_type(), "additive_scores_backward", [&] {
    const auto *q = t.q.data_ptr<scalar_t>(), *k = t.k.data_ptr<scalar_t>(),
               *v = t.v.data_ptr<scalar_t>(), *d = d_scores.data_ptr<scalar_t>();
    auto *to_q = dq.data_ptr<scalar_t>(), *to_k = dk.data_ptr<scalar_t>(),
         *to_v = dv.data_ptr<scalar_t>();
    at::parallel_for(0, t.samples, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin * t.queries * t.keys; pair < end * t.queries * t.keys;
           ++pair) {
        const std::int64_t row = pair / t.keys, sample = row / t.queries;
        const std::int64_t key = sample * t.keys + pair % t.keys;
        if (d[pair] == 0) continue;  // padding
        kernel::additive<scalar_t>().backward(
            q + row * t.features, k + key * t.features, v, d[pair], to_q + row * t.features,
            to_k + key * t.features, to_v + sample * t.features, t.features);
      }
    });
  });
  return {dq, dk, dv.sum(0)};
}

}  // namespace

Tensor additive_scores(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t samples) {
  ScoreTask task;
  Tensor scores;
  {
    const at::NoGradGuard no_grad;
    task = {.q = q.contiguous(),
            .k = k.contiguous(),
            .v = v.contiguous(),
            .samples = samples,
            .queries = q.size(0) / samples,
            .keys = k.size(0) / samples,
            .features = v.size(0)};
    scores = scores_of(task);
  }
  return with_backward({scores}, {q, k, v}, [task](const Tensors& d) -> Tensors {
    if (!d[0].defined()) return {Tensor(), Tensor(), Tensor()};
    return gradients_of(task, d[0].contiguous());
  })[0];
}

}  // namespace fused

Tensor additive_scores(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t samples) {
  const bool can_fuse =
      q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble);
  return can_fuse
             ? fused::additive_scores(q, k, v, samples)
             : composed::additive_scores(full_length(q), full_length(k), full_length(v), samples)
                   .to(q.scalar_type());
}

Tensor mean_by_scores(const Tensor& scores, const Tensor& values, const Tensor& lengths) {
  const std::int64_t samples = scores.size(0), keys = scores.size(2), width = values.size(1);
  const Tensor is_padding =
      at::arange(keys, lengths.options()).ge(lengths.unsqueeze(1)).view({samples, 1, keys});
  // On the CPU products of bfloat16 are those of float32, rounded: some processors lack the others.
  const Tensor factor = values.is_cpu() ? full_length(values) : values;
  return full_length(scores)
      .masked_fill(is_padding, -std::numeric_limits<double>::infinity())
      .softmax(-1)
      .to(factor.scalar_type())
      .bmm(factor.view({samples, keys, width}))
      .view({-1, width})
      .to(values.scalar_type());
}

}  // namespace laconic
