// model/additive_attention.hpp — Bahdanau's attention: what is sought and what is there are added.
//
//   score(q, k) = sum over features of v tanh(q + k)
//
// `fused` (float and double on the CPU) keeps no tanh: backward computes it again. `composed` holds
// one for each query, key and feature; it runs on any device. The plain name chooses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace laconic {

// q: [samples * queries, features], k: [samples * keys, features], v: [features]; returns [samples,
// queries, keys].
at::Tensor additive_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::int64_t samples);

namespace fused {
at::Tensor additive_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::int64_t samples);
}
namespace composed {
at::Tensor additive_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::int64_t samples);
}

// The mean of `values`, [samples * keys, width], by the softmax of scores over keys that are no
// padding: keys at and beyond a sample's length [samples], each at least 1. Returns [samples *
// queries, width]. Requires: padding is finite.
at::Tensor mean_by_scores(const at::Tensor& scores, const at::Tensor& values,
                          const at::Tensor& lengths);

}  // namespace laconic
