// Factors as they travel (codec/factor.hpp), and whether numbers are finite.
#include "laconic/codec/kernel/access.cuh"

namespace laconic::kernel {

namespace {

__global__ void __launch_bounds__(256)
    check_finite(const float* x, std::uint64_t count, std::uint32_t* is_unsound) {
  bool found = false;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    found |= !exact::is_finite(x[i]);
  if (found) *is_unsound = 1;
}

__global__ void tell_sound(const std::uint32_t* is_unsound, std::uint32_t* is_sound) {
  *is_sound = *is_unsound == 0 ? 1 : 0;
}

__device__ __forceinline__ bool is_unfit(Dtype dtype, const std::byte* values, std::uint64_t i) {
  if (dtype == Dtype::f32) return !exact::is_finite(reinterpret_cast<const float*>(values)[i]);
  const unsigned exponent = dtype == Dtype::f16 ? 0x7C00 : 0x7F80;
  return (reinterpret_cast<const std::uint16_t*>(values)[i] & exponent) == exponent;
}

__device__ __forceinline__ void put_nan(Dtype dtype, std::byte* values, std::uint64_t i) {
  if (dtype == Dtype::f32)
    reinterpret_cast<std::uint32_t*>(values)[i] = exact::kNan;
  else
    reinterpret_cast<std::uint16_t*>(values)[i] = dtype == Dtype::f16 ? 0x7E00 : 0x7FC0;
}

__global__ void __launch_bounds__(256)
    put_factors(Dtype dtype, const float* in, std::uint64_t count, std::byte* out,
                std::uint32_t* is_unsound) {
  bool found = false;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total()) {
    if (dtype == Dtype::f32)
      reinterpret_cast<float*>(out)[i] = in[i];
    else
      store_narrow(dtype, out, i, in[i]);
    found |= is_unfit(dtype, out, i);
  }
  if (found && is_unsound != nullptr) *is_unsound = 1;
}

__global__ void __launch_bounds__(256)
    get_factors(Dtype dtype, const std::byte* in, std::uint64_t count, float* out) {
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    out[i] = load_one(dtype, in, i);
}

__global__ void __launch_bounds__(256) spoil_factors(Dtype dtype, const std::uint32_t* is_unsound,
                                                     std::uint64_t count, std::byte* out) {
  if (*is_unsound == 0) return;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total()) put_nan(dtype, out, i);
}

__global__ void __launch_bounds__(256)
    settle_factors(Dtype dtype, std::uint64_t count, std::byte* values) {
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    if (is_unfit(dtype, values, i)) put_nan(dtype, values, i);
}

}  // namespace

void device_check_finite(const float* x, std::uint64_t count, std::uint32_t* is_unsound,
                         Stream stream) {
  launch_over(check_finite, parts_of(count, 256), 256, stream, x, count, is_unsound);
}

void device_tell_sound(const std::uint32_t* is_unsound, std::uint32_t* is_sound, Stream stream) {
  launch(tell_sound, 1, 1, stream, is_unsound, is_sound);
}

void device_put_factors(Dtype dtype, const float* in, std::uint64_t count, std::byte* out,
                        std::uint32_t* is_unsound, Stream stream) {
  launch_over(put_factors, parts_of(count, 256), 256, stream, dtype, in, count, out, is_unsound);
}

void device_get_factors(Dtype dtype, const std::byte* in, std::uint64_t count, float* out,
                        Stream stream) {
  launch_over(get_factors, parts_of(count, 256), 256, stream, dtype, in, count, out);
}

void device_spoil_factors(Dtype dtype, const std::uint32_t* is_unsound, std::uint64_t count,
                          std::byte* out, Stream stream) {
  launch_over(spoil_factors, parts_of(count, 256), 256, stream, dtype, is_unsound, count, out);
}

void device_settle_factors(Dtype dtype, std::uint64_t count, std::byte* values, Stream stream) {
  launch_over(settle_factors, parts_of(count, 256), 256, stream, dtype, count, values);
}

}  // namespace laconic::kernel
