#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/conversion.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "laconic/codec/kernel/conversion.hpp"
#include "laconic/codec/kernel/store-inl.hpp"

// Where the processor converts f16 itself it rounds as we want and minds no flushing of denormals.
// Highway's own code for the other targets cuts off instead of rounding and knows no infinity, so
// there we compute.
#undef LACONIC_HARDWARE_F16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
#define LACONIC_HARDWARE_F16 1
#else
#define LACONIC_HARDWARE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using HalfU16 = hn::Rebind<std::uint16_t, F32>;
using F64 = hn::Repartition<double, F32>;
using HalfF32 = hn::Rebind<float, F64>;

HWY_INLINE VI bits_of(VF v) {
  return hn::BitCast(I32(), v);
}

template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  using Bits = hn::TFromD<decltype(du)>;
  constexpr Bits kNan = sizeof(Bits) == 4 ? Bits{0x7FC00000} : static_cast<Bits>(0x7FF8ull << 48);
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, kNan)), v);
}

// The 16 low bits of every lane, as a half-filled vector.
HWY_INLINE hn::Vec<HalfU16> pack(VI low) {
  return hn::DemoteTo(HalfU16(), low);
}

#if LACONIC_HARDWARE_F16

HWY_INLINE hn::Vec<HalfU16> f16_of(VF v) {
  const hn::Rebind<hwy::float16_t, F32> df16;
  return hn::BitCast(HalfU16(), hn::DemoteTo(df16, canonical(F32(), v)));
}

HWY_INLINE VF f32_of_f16(hn::Vec<HalfU16> h) {
  const hn::Rebind<hwy::float16_t, F32> df16;
  return canonical(F32(), hn::PromoteTo(F32(), hn::BitCast(df16, h)));
}

#else

// Three ranges. Normal: the exponent moves from bias 127 to 15, and half an ulp less one plus the
// lowest kept bit is added before the cut, which rounds to even. Denormal: adding 0.5, whose ulp is
// the smallest f16, makes the processor round. Too large: infinity.
HWY_INLINE hn::Vec<HalfU16> f16_of(VF v) {
  const I32 d;
  const VI all = bits_of(v);
  const VI magnitude = hn::And(all, hn::Set(d, 0x7FFFFFFF));
  const VI sign = hn::And(hn::ShiftRight<16>(all), hn::Set(d, 0x8000));
  const VI lowest = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const VI normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(d, 0xFFF - (112 << 23))), lowest));
  const VF sum = hn::Add(hn::BitCast(F32(), magnitude), hn::Set(F32(), 0.5f));
  const VI denormal = hn::Sub(bits_of(sum), hn::Set(d, 0x3F000000));
  VI result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 113 << 23)), denormal, normal);
  result =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, (143 << 23) - 1)), hn::Set(d, 0x7C00), result);
  const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7F800000));
  return pack(hn::IfThenElse(is_nan, hn::Set(d, 0x7E00), hn::Or(result, sign)));
}

// A denormal becomes the fraction of 2^-14 with its bits; subtracting 2^-14 normalises it exactly.
HWY_INLINE VF f32_of_f16(hn::Vec<HalfU16> h) {
  const I32 d;
  const VI all = hn::PromoteTo(d, h);
  const VI magnitude = hn::And(all, hn::Set(d, 0x7FFF));
  const VI sign = hn::ShiftLeft<16>(hn::And(all, hn::Set(d, 0x8000)));
  const VI shifted = hn::ShiftLeft<13>(magnitude);
  const VI normal = hn::Add(shifted, hn::Set(d, 112 << 23));
  const VF above = hn::BitCast(F32(), hn::Add(shifted, hn::Set(d, 113 << 23)));
  const VI denormal = bits_of(hn::Sub(above, hn::Set(F32(), 0x1p-14f)));
  VI result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x400)), denormal, normal);
  const auto is_special = hn::Gt(magnitude, hn::Set(d, 0x7BFF));
  result = hn::IfThenElse(is_special, hn::Or(shifted, hn::Set(d, 0x7F800000)), result);
  return canonical(F32(), hn::BitCast(F32(), hn::Or(result, sign)));
}

#endif

HWY_INLINE hn::Vec<HalfU16> bf16_of(VF v) {
  const U32 d;
  const hn::Vec<U32> all = hn::BitCast(d, canonical(F32(), v));
  const hn::Vec<U32> lowest = hn::And(hn::ShiftRight<16>(all), hn::Set(d, 1u));
  const hn::Vec<U32> rounded = hn::Add(hn::Add(all, hn::Set(d, 0x7FFFu)), lowest);
  return pack(hn::BitCast(I32(), hn::ShiftRight<16>(rounded)));
}

HWY_INLINE VF f32_of_bf16(hn::Vec<HalfU16> h) {
  const hn::Vec<U32> wide = hn::ShiftLeft<16>(hn::PromoteTo(U32(), h));
  return canonical(F32(), hn::BitCast(F32(), wide));
}

// Below the smallest normal f32 the result would depend on the flushing of denormals: zero.
HWY_INLINE hn::Vec<HalfF32> f32_of_f64(hn::Vec<F64> v) {
  const F64 d;
  const auto is_tiny = hn::Lt(hn::Abs(v), hn::Set(d, 0x1p-126));
  const auto zero = hn::And(v, hn::SignBit(d));
  const auto narrow = hn::DemoteTo(HalfF32(), hn::IfThenElse(is_tiny, zero, v));
  return canonical(HalfF32(), narrow);
}

HWY_INLINE hn::Vec<F64> f64_of(hn::Vec<HalfF32> v) {
  const HalfF32 d;
  const hn::RebindToUnsigned<HalfF32> du;
  const auto exponent = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7F800000u));
  const auto is_tiny = hn::RebindMask(d, hn::Eq(exponent, hn::Zero(du)));
  const auto zero = hn::And(v, hn::SignBit(d));
  return canonical(F64(), hn::PromoteTo(F64(), hn::IfThenElse(is_tiny, zero, v)));
}

// Each step of a conversion reads or writes one whole vector of the narrower type; kIn and kOut are
// the bytes of an element.
template <hn::Vec<HalfU16> (*kConvert)(VF)>
struct Narrow16 {
  static constexpr std::size_t kIn = 4, kOut = 2;
  template <class Store>
  static HWY_INLINE void step(const std::uint8_t* in, std::uint8_t* out) {
    const F32 d;
    const auto low = kConvert(load_bytes(d, in));
    const auto high = kConvert(load_bytes(d, in + 4 * hn::Lanes(d)));
    Store::put(hn::Combine(U16(), high, low), U16(), out);
  }
};

template <VF (*kConvert)(hn::Vec<HalfU16>)>
struct Widen16 {
  static constexpr std::size_t kIn = 2, kOut = 4;
  template <class Store>
  static HWY_INLINE void step(const std::uint8_t* in, std::uint8_t* out) {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    Store::put(kConvert(load_bytes(HalfU16(), in)), d, out);
    Store::put(kConvert(load_bytes(HalfU16(), in + 2 * lanes)), d, out + 4 * lanes);
  }
};

struct Widen64 {
  static constexpr std::size_t kIn = 8, kOut = 4;
  template <class Store>
  static HWY_INLINE void step(const std::uint8_t* in, std::uint8_t* out) {
    const F64 d;
    const auto low = f32_of_f64(load_bytes(d, in));
    const auto high = f32_of_f64(load_bytes(d, in + 8 * hn::Lanes(d)));
    Store::put(hn::Combine(F32(), high, low), F32(), out);
  }
};

struct Narrow64 {
  static constexpr std::size_t kIn = 4, kOut = 8;
  template <class Store>
  static HWY_INLINE void step(const std::uint8_t* in, std::uint8_t* out) {
    const F64 d;
    const std::size_t lanes = hn::Lanes(d);
    Store::put(f64_of(load_bytes(HalfF32(), in)), d, out);
    Store::put(f64_of(load_bytes(HalfF32(), in + 4 * lanes)), d, out + 8 * lanes);
  }
};

struct Copy32 {
  static constexpr std::size_t kIn = 4, kOut = 4;
  template <class Store>
  static HWY_INLINE void step(const std::uint8_t* in, std::uint8_t* out) {
    Store::put(canonical(F32(), load_bytes(F32(), in)), F32(), out);
  }
};

template <class Step>
HWY_INLINE std::size_t elements_per_step() {
  return hn::Lanes(hn::ScalableTag<std::uint8_t>()) / std::min(Step::kIn, Step::kOut);
}

// Fewer elements than a step takes, through buffers.
template <class Step>
HWY_INLINE void convert_rest(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  if (count == 0) return;
  HWY_ALIGN std::uint8_t from[2 * HWY_MAX_BYTES] = {};
  HWY_ALIGN std::uint8_t to[2 * HWY_MAX_BYTES];
  std::memcpy(from, in, count * Step::kIn);
  Step::template step<PlainStore>(from, to);
  std::memcpy(out, to, count * Step::kOut);
}

template <class Step, class Store>
HWY_INLINE std::size_t convert_steps(const std::uint8_t* in, std::size_t i, std::size_t count,
                                     std::uint8_t* out) {
  const std::size_t step = elements_per_step<Step>();
  for (; i + step <= count; i += step)
    Step::template step<Store>(in + i * Step::kIn, out + i * Step::kOut);
  return i;
}

template <class Step>
void convert(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  const std::size_t head = before_stream(out, count, Step::kOut);
  std::size_t i = 0;
  if (head < count) {
    i = convert_steps<Step, PlainStore>(in, 0, head, out);
    convert_rest<Step>(in + i * Step::kIn, head - i, out + i * Step::kOut);
    i = convert_steps<Step, StreamStore>(in, head, count, out);
    hwy::FlushStream();
  } else {
    i = convert_steps<Step, PlainStore>(in, 0, count, out);
  }
  convert_rest<Step>(in + i * Step::kIn, count - i, out + i * Step::kOut);
}

template <class T, T kInfinity, T kNan>
HWY_INLINE bool is_odd_nan(T bits) {
  return (bits & std::numeric_limits<T>::max()) > kInfinity && bits != kNan;
}

// T is signed, so that magnitudes compare as integers do.
template <class T, T kInfinity, T kNan>
std::size_t find_odd_nan(const std::uint8_t* in, std::size_t count) {
  const hn::Repartition<T, F32> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = load_bytes(d, in + i * sizeof(T));
    const auto magnitude = hn::And(v, hn::Set(d, std::numeric_limits<T>::max()));
    const auto odd = hn::AndNot(hn::VecFromMask(d, hn::Eq(v, hn::Set(d, kNan))),
                                hn::VecFromMask(d, hn::Gt(magnitude, hn::Set(d, kInfinity))));
    if (!hn::AllFalse(d, hn::MaskFromVec(odd))) break;
  }
  for (; i < count; ++i) {
    T bits;
    std::memcpy(&bits, in + i * sizeof(T), sizeof(T));
    if (is_odd_nan<T, kInfinity, kNan>(bits)) break;
  }
  return i;
}

void add(float* sum, const float* addend, std::size_t count) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(canonical(d, hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, addend + i))), d, sum + i);
  for (; i < count; ++i) {
    const float value = sum[i] + addend[i];
    sum[i] = value == value ? value : std::numeric_limits<float>::quiet_NaN();
  }
}

const Conversion* conversion_table() {
  static constexpr Conversion kTable = {convert<Widen16<f32_of_f16>>,
                                        convert<Widen16<f32_of_bf16>>,
                                        convert<Widen64>,
                                        convert<Narrow16<f16_of>>,
                                        convert<Narrow16<bf16_of>>,
                                        convert<Narrow64>,
                                        convert<Copy32>,
                                        find_odd_nan<std::int16_t, 0x7C00, 0x7E00>,
                                        find_odd_nan<std::int16_t, 0x7F80, 0x7FC0>,
                                        find_odd_nan<std::int32_t, 0x7F800000, 0x7FC00000>,
                                        add};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(conversion_table);

const Conversion& conversion() {
  return *HWY_DYNAMIC_DISPATCH(conversion_table)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
