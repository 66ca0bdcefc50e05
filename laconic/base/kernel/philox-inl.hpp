// base/kernel/philox-inl.hpp — Philox on vectors, for use inside Highway kernels.
//
// Included once per target by a file that went through hwy/foreach_target.h,
// hence the unusual guard.
#if defined(LACONIC_BASE_KERNEL_PHILOX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LACONIC_BASE_KERNEL_PHILOX_INL
#undef LACONIC_BASE_KERNEL_PHILOX_INL
#else
#define LACONIC_BASE_KERNEL_PHILOX_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "laconic/base/philox.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PhiloxTag = hn::ScalableTag<std::uint32_t>;
using PhiloxVec = hn::Vec<PhiloxTag>;

// Room for what one call of philox_words() writes: four words for each lane.
static constexpr std::size_t kPhiloxWords = 4 * (HWY_MAX_BYTES / sizeof(std::uint32_t));

// High and low halves of the 32 x 32 bit product, lane by lane.
HWY_INLINE void multiply_wide(PhiloxVec a, PhiloxVec m, PhiloxVec& high, PhiloxVec& low) {
  const hn::Repartition<std::uint64_t, PhiloxTag> wide;
  const PhiloxTag d;
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// Writes words 4 * block ... 4 * block + 4 * Lanes - 1 of the key's stream to `out`.
HWY_INLINE void philox_words(Key key, std::uint64_t block, std::uint32_t* HWY_RESTRICT out) {
  const PhiloxTag d;
  const auto low_block = static_cast<std::uint32_t>(block);
  PhiloxVec c0 = hn::Iota(d, low_block);
  // A carry out of the low word within this vector must reach the high word.
  const PhiloxVec carry = hn::IfThenElseZero(hn::Lt(c0, hn::Set(d, low_block)), hn::Set(d, 1u));
  PhiloxVec c1 = hn::Add(hn::Set(d, static_cast<std::uint32_t>(block >> 32)), carry);
  PhiloxVec c2 = hn::Zero(d);
  PhiloxVec c3 = hn::Zero(d);
  const PhiloxVec m0 = hn::Set(d, 0xD2511F53u);
  const PhiloxVec m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    PhiloxVec high0, low0, high1, low1;
    multiply_wide(c0, m0, high0, low0);
    multiply_wide(c2, m1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key.lo));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key.hi));
    c1 = low1;
    c3 = low0;
    key.lo += 0x9E3779B9;
    key.hi += 0xBB67AE85;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, out);
}

// Calls use(words, begin, count) for runs of words that together are [first, first + total):
// begin counts from 0. Runs start at block boundaries except perhaps the first.
template <class Use>
HWY_INLINE void for_each_word_run(Key key, std::uint64_t first, std::size_t total, const Use& use) {
  const std::size_t step = 4 * hn::Lanes(PhiloxTag());
  HWY_ALIGN std::uint32_t words[kPhiloxWords];
  std::size_t skip = first % 4;
  std::uint64_t block = first / 4;
  for (std::size_t done = 0; done < total; block += step / 4, skip = 0) {
    philox_words(key, block, words);
    const std::size_t count = std::min(step - skip, total - done);
    use(words + skip, done, count);
    done += count;
  }
}

}  // namespace laconic::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
