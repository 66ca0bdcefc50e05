// model/layer_parts.hpp — a block's parameters in groups, and what they compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "laconic/model/weights.hpp"

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

struct LinearLeaves {
  at::Tensor weight, bias;  // [out, in], [out]
};
struct NormLeaves {
  at::Tensor weight, bias;
};

// Hands out the parameters of a block one after the other, as BlockSpec::uses lists them.
class LeafReader {
 public:
  LeafReader(const Weights& weights, std::int64_t block) : weights_(&weights), block_(block) {}

  const at::Tensor& tensor() { return weights_->leaf(block_, next_++); }
  LinearLeaves linear() {
    const at::Tensor& weight = tensor();
    return {weight, tensor()};
  }
  NormLeaves norm() {
    const at::Tensor& weight = tensor();
    return {weight, tensor()};
  }

 private:
  const Weights* weights_;
  std::int64_t block_;
  std::size_t next_ = 0;
};

at::Tensor apply(const LinearLeaves& map, const at::Tensor& x, DeferredWeights* deferred);
at::Tensor apply(const NormLeaves& norm, const at::Tensor& x, double epsilon);

}  // namespace laconic
