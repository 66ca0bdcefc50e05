#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/hadamard.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "laconic/codec/kernel/hadamard.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using TagU = hn::RebindToUnsigned<Tag>;
using Vec = hn::Vec<Tag>;
using VecU = hn::Vec<TagU>;
static constexpr std::uint32_t kSignBit = 0x80000000;
static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The f32 nearest to size^(-1/2). Requires: size is a power of two.
HWY_INLINE float norm_of(std::size_t size) {
  const int k = std::countr_zero(size);
  const double root = k % 2 == 0 ? 1.0 : 0.70710678118654752440;
  return static_cast<float>(std::ldexp(root, -(k / 2)));
}

// The sign bits of a vector's elements. Requires: they lie in one word.
HWY_INLINE VecU signs_at(SignBits signs) {
  const TagU d;
  const std::uint32_t bits = signs.words[signs.first / 32] >> (signs.first % 32);
  const VecU to_top = hn::Sub(hn::Set(d, 31u), hn::Iota(d, 0u));
  return hn::And(hn::Shl(hn::Set(d, bits), to_top), hn::Set(d, kSignBit));
}

HWY_INLINE float with_sign(float value, SignBits signs) {
  const std::uint32_t bit = signs.words[signs.first / 32] >> (signs.first % 32) << 31;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ bit);
}

HWY_INLINE SignBits later(SignBits signs, std::size_t by) {
  return {signs.words, signs.first + by};
}

// One stage within a vector: lane i and lane i ^ h become their sum, and in the upper one of the
// two their difference, lower minus upper. (a - b is a + (-b), zeros included.)
template <class Indices>
HWY_INLINE Vec butterfly(Vec v, Indices partner, VecU upper_sign) {
  const Tag d;
  const TagU du;
  const Vec turned = hn::BitCast(d, hn::Xor(hn::BitCast(du, v), upper_sign));
  return hn::Add(hn::TableLookupLanes(v, partner), turned);
}

HWY_INLINE auto partner_of(std::uint32_t h) {
  const TagU d;
  return hn::IndicesFromVec(Tag(), hn::Xor(hn::Iota(d, 0u), hn::Set(d, h)));
}

HWY_INLINE VecU upper_sign_of(std::uint32_t h) {
  const TagU d;
  const VecU bit = hn::And(hn::Iota(d, 0u), hn::Set(d, h));
  return hn::IfThenElseZero(hn::Ne(bit, hn::Zero(d)), hn::Set(d, kSignBit));
}

// Stages h = 1 ... lanes / 2, with the signs first where kSigns.
template <bool kSigns>
HWY_INLINE void stages_within(const float* in, std::size_t size, SignBits signs, float* out) {
  const Tag d;
  const TagU du;
  const std::size_t lanes = hn::Lanes(d);
  const auto stage = [&](std::uint32_t h) { return h < lanes ? h : 0; };
  const auto partner1 = partner_of(stage(1)), partner2 = partner_of(stage(2));
  const auto partner4 = partner_of(stage(4)), partner8 = partner_of(stage(8));
  const VecU upper1 = upper_sign_of(1), upper2 = upper_sign_of(2);
  const VecU upper4 = upper_sign_of(4), upper8 = upper_sign_of(8);
  for (std::size_t i = 0; i < size; i += lanes) {
    Vec v = hn::LoadU(d, in + i);
    if constexpr (kSigns)
      v = hn::BitCast(d, hn::Xor(hn::BitCast(du, v), signs_at(later(signs, i))));
    if (lanes > 1) v = butterfly(v, partner1, upper1);
    if (lanes > 2) v = butterfly(v, partner2, upper2);
    if (lanes > 4) v = butterfly(v, partner4, upper4);
    if (lanes > 8) v = butterfly(v, partner8, upper8);
    hn::StoreU(v, d, out + i);
  }
}

// The stages h and 2 h at once. Requires: 4 h <= size, h is a multiple of the lanes.
HWY_INLINE void two_stages(float* values, std::size_t size, std::size_t h) {
  const Tag d;
  for (std::size_t run = 0; run < size; run += 4 * h)
    for (std::size_t i = run; i < run + h; i += hn::Lanes(d)) {
      float* at = values + i;
      const Vec a = hn::LoadU(d, at), b = hn::LoadU(d, at + h);
      const Vec e = hn::LoadU(d, at + 2 * h), f = hn::LoadU(d, at + 3 * h);
      const Vec a1 = hn::Add(a, b), b1 = hn::Sub(a, b);
      const Vec e1 = hn::Add(e, f), f1 = hn::Sub(e, f);
      hn::StoreU(hn::Add(a1, e1), d, at);
      hn::StoreU(hn::Add(b1, f1), d, at + h);
      hn::StoreU(hn::Sub(a1, e1), d, at + 2 * h);
      hn::StoreU(hn::Sub(b1, f1), d, at + 3 * h);
    }
}

HWY_INLINE void last_stage(float* values, std::size_t size) {
  const Tag d;
  const std::size_t h = size / 2;
  for (std::size_t i = 0; i < h; i += hn::Lanes(d)) {
    const Vec a = hn::LoadU(d, values + i), b = hn::LoadU(d, values + i + h);
    hn::StoreU(hn::Add(a, b), d, values + i);
    hn::StoreU(hn::Sub(a, b), d, values + i + h);
  }
}

// Stages h = lanes ... size / 2.
HWY_INLINE void stages_across(float* values, std::size_t size) {
  std::size_t h = hn::Lanes(Tag());
  for (; 4 * h <= size; h *= 4) two_stages(values, size, h);
  if (h < size) last_stage(values, size);
}

HWY_INLINE void plain_stages(float* values, std::size_t size) {
  for (std::size_t h = 1; h < size; h *= 2)
    for (std::size_t i = 0; i < size; ++i) {
      if ((i & h) != 0) continue;
      const float a = values[i], b = values[i + h];
      values[i] = a + b;
      values[i + h] = a - b;
    }
}

HWY_INLINE float canonical(float value) {
  return value != value ? kNan : value;
}

void rotate_power(const float* in, std::size_t size, SignBits signs, float* out) {
  const Tag d;
  const float norm = norm_of(size);
  if (size < hn::Lanes(d)) {
    for (std::size_t i = 0; i < size; ++i) out[i] = with_sign(in[i], later(signs, i));
    plain_stages(out, size);
    for (std::size_t i = 0; i < size; ++i) out[i] *= norm;
    return;
  }
  stages_within<true>(in, size, signs, out);
  stages_across(out, size);
  for (std::size_t i = 0; i < size; i += hn::Lanes(d))
    hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, norm)), d, out + i);
}

void unrotate_power(float* values, std::size_t size, SignBits signs) {
  const Tag d;
  const TagU du;
  const float norm = norm_of(size);
  if (size < hn::Lanes(d)) {
    plain_stages(values, size);
    for (std::size_t i = 0; i < size; ++i)
      values[i] = canonical(with_sign(values[i] * norm, later(signs, i)));
    return;
  }
  stages_within<false>(values, size, signs, values);
  stages_across(values, size);
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    const Vec v = hn::Mul(hn::LoadU(d, values + i), hn::Set(d, norm));
    const Vec turned = hn::BitCast(d, hn::Xor(hn::BitCast(du, v), signs_at(later(signs, i))));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan), turned), d, values + i);
  }
}

void rotate(const float* in, std::size_t size, SignBits signs, float* out) {
  for (std::size_t i = 0; i < size;) {
    const std::size_t power = std::bit_floor(size - i);
    rotate_power(in + i, power, later(signs, i), out + i);
    i += power;
  }
}

void unrotate(float* values, std::size_t size, SignBits signs) {
  for (std::size_t i = 0; i < size;) {
    const std::size_t power = std::bit_floor(size - i);
    unrotate_power(values + i, power, later(signs, i));
    i += power;
  }
}

const Hadamard* hadamard_table() {
  static constexpr Hadamard kTable = {rotate, unrotate};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(hadamard_table);

const Hadamard& hadamard() {
  return *HWY_DYNAMIC_DISPATCH(hadamard_table)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
