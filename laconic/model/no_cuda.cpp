// What stands for the GPU's kernels in a program that was built without CUDA: they take nothing.
#include <ATen/core/Tensor.h>

#include "laconic/base/error.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::cuda {

namespace {

[[noreturn]] void refuse() {
  LACONIC_ASSERT(false, "this program was built without CUDA");
  throw ConfigError("this program was built without CUDA");
}

}  // namespace

using at::Tensor;

bool takes(const Tensor&) {
  return false;
}

bool takes_norm(const Tensor&) {
  return false;
}
bool takes_drop(const Tensor&) {
  return false;
}

void prepare(bool) {}

Tensor gelu_of(const Tensor&, Gelu) {
  refuse();
}
void add_product(const Tensor&, const Tensor&, Tensor&) {
  refuse();
}
void add_rows(const Tensor&, Tensor&) {
  refuse();
}
Tensor gelu_backward(const Tensor&, const Tensor&, Gelu, Tensor&) {
  refuse();
}

Tensor gelu(const Tensor&) {
  refuse();
}
Tensor exact_gelu(const Tensor&) {
  refuse();
}
Tensor swiglu(const Tensor&, const Tensor&) {
  refuse();
}
Forked fork_layer_norm(const Tensor&, const Tensor&, const Tensor&, double) {
  refuse();
}
Forked fork_rms_norm(const Tensor&, const Tensor&, double) {
  refuse();
}
Forked add_layer_norm(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double) {
  refuse();
}
Forked add_rms_norm(const Tensor&, const Tensor&, const Tensor&, double) {
  refuse();
}
Tensor table_rows(const Tensor&, const Tensor&) {
  refuse();
}
Tensor rotate(const Tensor&, std::int64_t, std::int64_t, const Tensor&, const Tensor&) {
  refuse();
}
Tensor dropout_add(const Tensor&, const Tensor&, const Dropout&) {
  refuse();
}
Tensor drop(const Tensor&, const Dropout&) {
  refuse();
}
Tensor attention(const Tensor&, const Tensor&, const Tensor&, const AttentionShape&, const Tensor&,
                 const Dropout&) {
  refuse();
}
Tensor causal_attention(const Tensor&, std::int64_t, std::int64_t, const Dropout&) {
  refuse();
}
Tensor cross_entropy(const Tensor&, const Tensor&, const Tensor&, const Tensor&, DeferredWeights*,
                     double, std::int64_t) {
  refuse();
}

}  // namespace laconic::cuda
