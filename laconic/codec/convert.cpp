#include "laconic/codec/convert.hpp"

#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/conversion.hpp"

namespace laconic {

namespace {

[[noreturn]] void refuse(Dtype dtype) {
  LACONIC_ASSERT(false, std::string(name_of(dtype)) + " cannot be converted");
  __builtin_unreachable();
}

kernel::Convert widening(Dtype from) {
  const kernel::Conversion& table = kernel::conversion();
  switch (from) {
    case Dtype::f32: return table.copy_f32;
    case Dtype::f16: return table.widen_f16;
    case Dtype::bf16: return table.widen_bf16;
    case Dtype::f64: return table.widen_f64;
    default: refuse(from);
  }
}

kernel::Convert narrowing(Dtype to) {
  const kernel::Conversion& table = kernel::conversion();
  switch (to) {
    case Dtype::f32: return table.copy_f32;
    case Dtype::f16: return table.narrow_f16;
    case Dtype::bf16: return table.narrow_bf16;
    case Dtype::f64: return table.narrow_f64;
    default: refuse(to);
  }
}

kernel::FindNan nan_finder(Dtype of) {
  const kernel::Conversion& table = kernel::conversion();
  switch (of) {
    case Dtype::f32: return table.find_odd_nan_f32;
    case Dtype::f16: return table.find_odd_nan_f16;
    case Dtype::bf16: return table.find_odd_nan_bf16;
    default: refuse(of);
  }
}

const std::uint8_t* raw(const void* in) {
  return static_cast<const std::uint8_t*>(in);
}
std::uint8_t* raw(void* out) {
  return static_cast<std::uint8_t*>(out);
}

}  // namespace

void widen(Dtype from, const void* in, std::size_t count, float* out) {
  widening(from)(raw(in), count, raw(out));
}

void narrow(Dtype to, const float* in, std::size_t count, void* out) {
  narrowing(to)(raw(in), count, raw(out));
}

void widen_bytes(Dtype from, const std::byte* in, std::size_t count, float* out) {
  widen(from, in, count, out);
}

void narrow_bytes(Dtype to, const float* in, std::size_t count, std::byte* out) {
  narrow(to, in, count, out);
}

std::size_t find_odd_nan(Dtype of, const std::byte* in, std::size_t count) {
  return nan_finder(of)(raw(in), count);
}

}  // namespace laconic
