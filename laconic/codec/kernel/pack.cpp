#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/pack.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "laconic/codec/kernel/pack.hpp"

// Eight codes are the bytes of a u64. Three steps join neighbours: bytes to pairs of `bits` bits in
// u16, those to fours in u32, those to eight in u64, the first code uppermost each time. Of the
// eight bytes `bits` are then in use, and one shuffle puts them in the order of the stream, for two
// u64 at once. Stores of 16 bytes overlap: the next one overwrites what this one has too many.

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes16 = hn::Full128<std::uint8_t>;
using VecBytes = hn::Vec<Bytes16>;
static constexpr std::size_t kCodes = 16;  // at a time

template <int kBits>
struct Stream {
  static constexpr std::size_t kUsed = 2 * kBits;  // bytes that 16 codes need

  // Byte k of the stream is byte kBits - 1 - k of the first u64, then those of the second.
  static HWY_INLINE VecBytes joined_order() {
    alignas(16) std::uint8_t from[16];
    for (int k = 0; k < 16; ++k)
      from[k] = static_cast<std::uint8_t>(k < kBits       ? kBits - 1 - k
                                          : k < 2 * kBits ? 8 + 2 * kBits - 1 - k
                                                          : 0x80);
    return hn::Load(Bytes16(), from);
  }
  static HWY_INLINE VecBytes split_order() {
    alignas(16) std::uint8_t from[16];
    for (int k = 0; k < 8; ++k) {
      from[k] = static_cast<std::uint8_t>(k < kBits ? kBits - 1 - k : 0x80);
      from[8 + k] = static_cast<std::uint8_t>(k < kBits ? 2 * kBits - 1 - k : 0x80);
    }
    return hn::Load(Bytes16(), from);
  }

  // Joins the halves of lanes of 2 * kHalf bits, each holding kWidth bits: lower before upper.
  template <int kHalf, int kWidth, class D>
  static HWY_INLINE VecBytes join(D d, VecBytes bytes) {
    const auto v = hn::BitCast(d, bytes);
    const auto low = hn::And(v, hn::Set(d, (hn::TFromD<D>{1} << kHalf) - 1));
    return hn::BitCast(Bytes16(), hn::Or(hn::ShiftLeft<kWidth>(low), hn::ShiftRight<kHalf>(v)));
  }
  template <int kHalf, int kWidth, class D>
  static HWY_INLINE VecBytes split(D d, VecBytes bytes) {
    const auto v = hn::BitCast(d, bytes);
    const auto low = hn::And(v, hn::Set(d, (hn::TFromD<D>{1} << kWidth) - 1));
    return hn::BitCast(Bytes16(), hn::Or(hn::ShiftLeft<kHalf>(low), hn::ShiftRight<kWidth>(v)));
  }

  static HWY_INLINE VecBytes join_all(VecBytes codes, VecBytes order) {
    VecBytes v = join<8, kBits>(hn::Full128<std::uint16_t>(), codes);
    v = join<16, 2 * kBits>(hn::Full128<std::uint32_t>(), v);
    v = join<32, 4 * kBits>(hn::Full128<std::uint64_t>(), v);
    return hn::TableLookupBytesOr0(v, order);
  }
  static HWY_INLINE VecBytes split_all(VecBytes stream, VecBytes order) {
    VecBytes v = hn::TableLookupBytesOr0(stream, order);
    v = split<32, 4 * kBits>(hn::Full128<std::uint64_t>(), v);
    v = split<16, 2 * kBits>(hn::Full128<std::uint32_t>(), v);
    return split<8, kBits>(hn::Full128<std::uint16_t>(), v);
  }

  static void pack(const std::uint8_t* HWY_RESTRICT codes, std::size_t count,
                   std::uint8_t* HWY_RESTRICT out) {
    const Bytes16 d;
    const VecBytes order = joined_order();
    std::size_t i = 0, left = (count * kBits + 7) / 8;
    for (; left >= 16 && i + kCodes <= count; i += kCodes, out += kUsed, left -= kUsed)
      hn::StoreU(join_all(hn::LoadU(d, codes + i), order), d, out);
    for (; i < count; i += kCodes) {
      alignas(16) std::uint8_t rest[16] = {}, packed[16];
      std::memcpy(rest, codes + i, std::min(kCodes, count - i));
      hn::Store(join_all(hn::Load(d, rest), order), d, packed);
      const std::size_t used = std::min(left, kUsed);
      std::memcpy(out, packed, used);
      out += used;
      left -= used;
    }
  }

  static void unpack(const std::uint8_t* HWY_RESTRICT in, std::size_t count,
                     std::uint8_t* HWY_RESTRICT codes) {
    const Bytes16 d;
    const VecBytes order = split_order();
    std::size_t i = 0, left = (count * kBits + 7) / 8;
    for (; left >= 16 && i + kCodes <= count; i += kCodes, in += kUsed, left -= kUsed)
      hn::StoreU(split_all(hn::LoadU(d, in), order), d, codes + i);
    for (; i < count; i += kCodes) {
      alignas(16) std::uint8_t rest[16] = {}, split[16];
      const std::size_t used = std::min(left, kUsed);
      std::memcpy(rest, in, used);
      hn::Store(split_all(hn::Load(d, rest), order), d, split);
      std::memcpy(codes + i, split, std::min(kCodes, count - i));
      in += used;
      left -= used;
    }
  }
};

void pack_codes(const std::uint8_t* codes, std::size_t count, int bits, std::byte* to) {
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  switch (bits) {
    case 1: return Stream<1>::pack(codes, count, out);
    case 2: return Stream<2>::pack(codes, count, out);
    case 3: return Stream<3>::pack(codes, count, out);
    case 4: return Stream<4>::pack(codes, count, out);
    case 5: return Stream<5>::pack(codes, count, out);
    case 6: return Stream<6>::pack(codes, count, out);
    case 7: return Stream<7>::pack(codes, count, out);
    default: std::copy_n(codes, count, out);
  }
}

void unpack_codes(const std::byte* from, std::size_t count, int bits, std::uint8_t* codes) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  switch (bits) {
    case 1: return Stream<1>::unpack(in, count, codes);
    case 2: return Stream<2>::unpack(in, count, codes);
    case 3: return Stream<3>::unpack(in, count, codes);
    case 4: return Stream<4>::unpack(in, count, codes);
    case 5: return Stream<5>::unpack(in, count, codes);
    case 6: return Stream<6>::unpack(in, count, codes);
    case 7: return Stream<7>::unpack(in, count, codes);
    default: std::copy_n(in, count, codes);
  }
}

const Pack* pack_table() {
  static constexpr Pack kTable = {pack_codes, unpack_codes};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(pack_table);

const Pack& pack() {
  return *HWY_DYNAMIC_DISPATCH(pack_table)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
