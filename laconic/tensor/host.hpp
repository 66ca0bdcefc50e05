// tensor/host.hpp — tensors as bytes in host memory, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

Dtype dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(Dtype dtype);
TensorSpec spec_of(const at::Tensor& tensor);

// Returns the same numbers, contiguous on the CPU and without a graph: the tensor itself if it is
// that already.
at::Tensor on_host(const at::Tensor& tensor);

// Copies bytes into a contiguous tensor on the CPU. Requires: sizes fit.
at::Tensor tensor_from_bytes(ByteView bytes, Dtype dtype, const std::vector<std::int64_t>& sizes);
// Views a tensor as bytes, valid as long as `tensor`. Requires: on the CPU, contiguous.
ByteView bytes_of_tensor(const at::Tensor& tensor);

}  // namespace laconic
