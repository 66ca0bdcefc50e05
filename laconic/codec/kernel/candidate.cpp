#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/candidate.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include "laconic/codec/kernel/candidate.hpp"

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using CandidateF32 = hn::CappedTag<float, kCandidateSlack>;
using CandidateI32 = hn::RebindToSigned<CandidateF32>;
using CandidateU32 = hn::RebindToUnsigned<CandidateF32>;
using CandidateVec = hn::Vec<CandidateF32>;

HWY_INLINE hn::Vec<CandidateI32> magnitude_of(CandidateVec v) {
  const CandidateI32 d;
  return hn::And(hn::BitCast(d, v), hn::Set(d, 0x7FFFFFFF));
}

HWY_INLINE void append(float x, std::uint32_t index, Candidates& c) {
  const std::uint32_t key = rank_key(x);
  if (key < c.threshold || (key == c.threshold && c.ties_left == 0)) return;
  if (key == c.threshold) --c.ties_left;
  c.index[c.size] = index;
  c.value[c.size] = x;
  ++c.size;
}

// Compress and then store: a compressing store is slow on some processors.
HWY_INLINE void append_vector(CandidateVec v, hn::Mask<CandidateF32> which, std::uint32_t index,
                              Candidates& c) {
  const CandidateU32 du;
  const CandidateF32 d;
  const auto indices = hn::Iota(du, index);
  hn::StoreU(hn::Compress(indices, hn::RebindMask(du, which)), du, c.index + c.size);
  hn::StoreU(hn::Compress(v, which), d, c.value + c.size);
  c.size += hn::CountTrue(d, which);
}

// A vector with at least one key that is not below the threshold.
HWY_INLINE void take(const float* x, std::uint32_t index, Candidates& c) {
  const CandidateI32 di;
  const CandidateF32 d;
  const CandidateVec v = hn::LoadU(d, x);
  const auto magnitude = magnitude_of(v);
  const auto is_small = hn::Lt(magnitude, hn::Set(di, 0x00800000));
  const auto clamped = hn::Min(magnitude, hn::Set(di, static_cast<std::int32_t>(kNanKey)));
  const auto key = hn::IfThenZeroElse(is_small, clamped);
  const auto threshold = hn::Set(di, static_cast<std::int32_t>(c.threshold));
  const auto is_above = hn::Gt(key, threshold);
  const auto is_tie = hn::Eq(key, threshold);
  const std::size_t ties = hn::CountTrue(di, is_tie);
  if (ties > c.ties_left && c.ties_left > 0) {  // happens once: the last ties go one by one
    for (std::size_t i = 0; i < hn::Lanes(d); ++i)
      append(x[i], index + static_cast<std::uint32_t>(i), c);
    return;
  }
  auto which = is_above;
  if (c.ties_left > 0) which = hn::Or(is_above, is_tie);
  c.ties_left -= std::min<std::uint64_t>(ties, c.ties_left);
  append_vector(v, hn::RebindMask(d, which), index, c);
}

bool collect(const float* x, std::size_t count, Candidates& c) {
  const CandidateF32 d;
  const CandidateI32 di;
  const std::size_t lanes = hn::Lanes(d);
  const auto threshold = hn::Set(di, static_cast<std::int32_t>(c.threshold));
  // What is not above this is not looked at. Denormals, whose key is zero, may be: take() knows.
  auto below = c.ties_left > 0 ? hn::Sub(threshold, hn::Set(di, 1)) : threshold;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto is_found = hn::Gt(magnitude_of(hn::LoadU(d, x + i)), below);
    if (HWY_LIKELY(hn::AllFalse(di, is_found))) continue;
    take(x + i, static_cast<std::uint32_t>(i), c);
    if (HWY_UNLIKELY(c.size > c.room)) return false;
    if (c.ties_left == 0) below = threshold;
  }
  for (; i < count; ++i) append(x[i], static_cast<std::uint32_t>(i), c);
  return c.size <= c.room;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(collect);

bool collect(const float* x, std::size_t count, Candidates& candidates) {
  return HWY_DYNAMIC_DISPATCH(collect)(x, count, candidates);
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
