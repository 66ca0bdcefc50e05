#include "laconic/tensor/host.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"

namespace laconic {

Dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return Dtype::f64;
    case at::kFloat: return Dtype::f32;
    case at::kHalf: return Dtype::f16;
    case at::kBFloat16: return Dtype::bf16;
    case at::kLong: return Dtype::i64;
    case at::kInt: return Dtype::i32;
    case at::kShort: return Dtype::i16;
    case at::kChar: return Dtype::i8;
    case at::kByte: return Dtype::u8;
    case at::kBool: return Dtype::boolean;
    default: break;
  }
  LACONIC_ASSERT(false, fmt::format("no dtype for scalar type {}", static_cast<int>(type)));
}

at::ScalarType scalar_type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return at::kDouble;
    case Dtype::f32: return at::kFloat;
    case Dtype::f16: return at::kHalf;
    case Dtype::bf16: return at::kBFloat16;
    case Dtype::i64: return at::kLong;
    case Dtype::i32: return at::kInt;
    case Dtype::i16: return at::kShort;
    case Dtype::i8: return at::kChar;
    case Dtype::u8: return at::kByte;
    case Dtype::boolean: return at::kBool;
  }
  LACONIC_ASSERT(false, fmt::format("unknown dtype {}", static_cast<int>(dtype)));
}

at::Tensor tensor_from_bytes(ByteView bytes, Dtype dtype, const std::vector<std::int64_t>& sizes) {
  at::Tensor tensor = at::empty(sizes, scalar_type_of(dtype));
  LACONIC_ASSERT(tensor.nbytes() == bytes.size(),
                 fmt::format("{} of {} bytes", tensor.nbytes(), bytes.size()));
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

ByteView bytes_of_tensor(const at::Tensor& tensor) {
  LACONIC_ASSERT(tensor.is_cpu() && tensor.is_contiguous(), "needs a contiguous tensor on the CPU");
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

TensorSpec spec_of(const at::Tensor& tensor) {
  return {dtype_of(tensor.scalar_type()), tensor.sizes().vec()};
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).contiguous();
}

}  // namespace laconic
