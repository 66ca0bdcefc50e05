#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/sign_pass.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "laconic/codec/kernel/sign_pass.hpp"
#include "laconic/codec/kernel/store-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {

static constexpr std::size_t kLanes = 16;  // of the format, not of the processor
static constexpr std::size_t kPiece = 4096;

using SignF32 = hn::CappedTag<float, kLanes>;
using SignI32 = hn::RebindToSigned<SignF32>;
using SignU32 = hn::RebindToUnsigned<SignF32>;
using SignVec = hn::Vec<SignF32>;

// Sixteen sums in as many vectors as that takes; those not needed are never touched.
struct Lanes16 {
  SignVec v0, v1, v2, v3;

  HWY_INLINE Lanes16() { v0 = v1 = v2 = v3 = hn::Zero(SignF32()); }
  static HWY_INLINE SignVec magnitude(const float* x) { return hn::Abs(hn::LoadU(SignF32(), x)); }
  HWY_INLINE void add(const float* x) {
    const std::size_t lanes = hn::Lanes(SignF32());
    v0 = hn::Add(v0, magnitude(x));
    if (lanes < 16) v1 = hn::Add(v1, magnitude(x + lanes));
    if (lanes < 8) v2 = hn::Add(v2, magnitude(x + 2 * lanes));
    if (lanes < 8) v3 = hn::Add(v3, magnitude(x + 3 * lanes));
  }
  HWY_INLINE void store(float* to) const {
    const SignF32 d;
    const std::size_t lanes = hn::Lanes(d);
    hn::StoreU(v0, d, to);
    if (lanes < 16) hn::StoreU(v1, d, to + lanes);
    if (lanes < 8) hn::StoreU(v2, d, to + 2 * lanes);
    if (lanes < 8) hn::StoreU(v3, d, to + 3 * lanes);
  }
};

// Requires: count <= kPiece.
HWY_INLINE float sum_of_piece(const float* x, std::size_t count) {
  Lanes16 lanes;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes.add(x + i);
  if (i < count) {
    float rest[kLanes] = {};  // zeros change no sum
    std::copy(x + i, x + count, rest);
    lanes.add(rest);
  }
  float sums[kLanes];
  lanes.store(sums);
  for (std::size_t h = kLanes / 2; h > 0; h /= 2)
    for (std::size_t j = 0; j < h; ++j) sums[j] += sums[j + h];
  return sums[0];
}

// Any element that is not finite makes the total so.
HWY_INLINE float scale_of(double total, std::size_t count) {
  const double mean = total / static_cast<double>(count);
  if (!std::isfinite(mean)) return std::bit_cast<float>(0x7FC00000u);
  return mean < 0x1p-126 ? 0.0f : static_cast<float>(mean);
}

HWY_INLINE std::uint32_t signs_of_vector(const float* x) {
  const SignI32 d;
  const auto v = hn::BitCast(d, hn::LoadU(SignF32(), x));
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, hn::Lt(v, hn::Zero(d)), bytes);
  std::uint32_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

HWY_INLINE void store_signs(const float* x, std::uint8_t* to) {
  const std::size_t lanes = hn::Lanes(SignF32());
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kLanes; i += lanes) bits |= signs_of_vector(x + i) << i;
  to[0] = static_cast<std::uint8_t>(bits);
  to[1] = static_cast<std::uint8_t>(bits >> 8);
}

// Signs of whole sixteens in [first, last). Returns where it stopped.
HWY_INLINE std::size_t store_signs(const float* x, std::size_t first, std::size_t last,
                                   std::uint8_t* signs) {
  for (; first + kLanes <= last; first += kLanes) store_signs(x + first, signs + first / 8);
  return first;
}

HWY_INLINE void store_last_signs(const float* x, std::size_t count, std::uint8_t* to) {
  if (count == 0) return;
  float rest[kLanes] = {};
  std::uint8_t bits[2];
  std::copy(x, x + count, rest);
  store_signs(rest, bits);
  std::memcpy(to, bits, (count + 7) / 8);
}

// The signs follow the sums while the piece is still in the first cache.
void encode(const float* x, std::size_t count, std::size_t block, std::uint8_t* scales,
            std::uint8_t* signs) {
  std::size_t signed_until = 0;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t end = begin + std::min(block, count - begin);
    double total = 0;
    for (std::size_t piece = begin; piece < end; piece += kPiece) {
      const std::size_t size = std::min(kPiece, end - piece);
      total += static_cast<double>(sum_of_piece(x + piece, size));
      signed_until = store_signs(x, signed_until, piece + size, signs);
    }
    const float scale = scale_of(total, end - begin);
    std::memcpy(scales, &scale, sizeof scale);
    scales += sizeof scale;
  }
  store_last_signs(x + signed_until, count - signed_until, signs + signed_until / 8);
}

// Signs of elements i ... i + 15, all of which exist.
HWY_INLINE std::uint32_t sixteen_signs(const std::uint8_t* signs, std::size_t i) {
  const std::uint8_t* at = signs + i / 8;
  std::uint32_t bits = at[0] | std::uint32_t{at[1]} << 8;
  if (i % 8 != 0) bits |= std::uint32_t{at[2]} << 16;
  return bits >> i % 8;
}

// `scale` with the signs of the lowest bits.
HWY_INLINE SignVec with_signs(SignVec scale, std::uint32_t bits) {
  const SignU32 d;
  HWY_ALIGN static constexpr std::uint32_t kBit[kLanes] = {
      1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  const auto is_negative = hn::TestBit(hn::Set(d, bits), hn::Load(d, kBit));
  const auto flip = hn::IfThenElseZero(is_negative, hn::Set(d, 0x80000000u));
  return hn::Xor(scale, hn::BitCast(SignF32(), flip));
}

HWY_INLINE void decode_few(const std::uint8_t* signs, std::size_t i, std::size_t end, float scale,
                           float* out) {
  const auto magnitude = std::bit_cast<std::uint32_t>(scale);
  for (; i < end; ++i)
    out[i] = std::bit_cast<float>(magnitude ^ (signs[i / 8] >> i % 8 & 1u) << 31);
}

// [i, end), a part of one block. With StreamStore i is where that may begin.
template <class Store>
HWY_INLINE void decode_run(const std::uint8_t* signs, std::size_t i, std::size_t end, float scale,
                           float* out) {
  const SignF32 d;
  const std::size_t lanes = hn::Lanes(d);
  const SignVec all = hn::Set(d, scale);
  for (; i + kLanes <= end; i += kLanes) {
    const std::uint32_t bits = sixteen_signs(signs, i);
    for (std::size_t j = 0; j < kLanes; j += lanes)
      Store::put(with_signs(all, bits >> j), d, reinterpret_cast<std::uint8_t*>(out + i + j));
  }
  decode_few(signs, i, end, scale, out);
}

// The first element from i on that a vector may be streamed to.
HWY_INLINE std::size_t next_aligned(const float* out, std::size_t i) {
  const std::size_t lanes = hn::Lanes(SignF32());
  const std::size_t past = reinterpret_cast<std::uintptr_t>(out + i) / sizeof(float) % lanes;
  return past == 0 ? i : i + lanes - past;
}

void decode(const std::uint8_t* scales, const std::uint8_t* signs, std::size_t count,
            std::size_t block, float* out) {
  const bool is_streamed = count * sizeof(float) > kStreamedBytes && block >= 4 * kLanes;
  for (std::size_t begin = 0; begin < count; begin += block, scales += sizeof(float)) {
    const std::size_t end = begin + std::min(block, count - begin);
    float scale;
    std::memcpy(&scale, scales, sizeof scale);
    if (!is_streamed) {
      decode_run<PlainStore>(signs, begin, end, scale, out);
      continue;
    }
    const std::size_t aligned = std::min(next_aligned(out, begin), end);
    decode_few(signs, begin, aligned, scale, out);
    decode_run<StreamStore>(signs, aligned, end, scale, out);
  }
  if (is_streamed) hwy::FlushStream();
}

const SignPass* sign_table() {
  static constexpr SignPass kTable = {encode, decode};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(sign_table);

const SignPass& sign_pass() {
  return *HWY_DYNAMIC_DISPATCH(sign_table)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
