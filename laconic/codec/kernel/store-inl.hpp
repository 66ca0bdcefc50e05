// codec/kernel/store-inl.hpp — vectors to and from bytes of any alignment, past the caches or not.
//
// Included once per target by a file that went through hwy/foreach_target.h,
// hence the unusual guard.
#if defined(LACONIC_CODEC_KERNEL_STORE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LACONIC_CODEC_KERNEL_STORE_INL
#undef LACONIC_CODEC_KERNEL_STORE_INL
#else
#define LACONIC_CODEC_KERNEL_STORE_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Larger outputs would push everything else out of the caches and are read by someone else, later.
static constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::uint8_t* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, from));
}

struct PlainStore {
  template <class D>
  static HWY_INLINE void put(hn::Vec<D> v, D, std::uint8_t* to) {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, v), bytes, to);
  }
};

// Requires: whole vectors, `to` aligned to one; hwy::FlushStream() after the last.
struct StreamStore {
  template <class D>
  static HWY_INLINE void put(hn::Vec<D> v, D, std::uint8_t* to) {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::Stream(hn::BitCast(bytes, v), bytes, to);
  }
};

// How many elements of `size` bytes come before the first address that StreamStore may write, if
// so many bytes are to be streamed at all; otherwise, or when no address will do, `count`.
HWY_INLINE std::size_t before_stream(const std::uint8_t* out, std::size_t count, std::size_t size) {
  const std::size_t vector_bytes = hn::Lanes(hn::ScalableTag<std::uint8_t>());
  const std::size_t past = reinterpret_cast<std::uintptr_t>(out) % vector_bytes;
  if (count * size <= kStreamedBytes || past % size != 0) return count;
  return past == 0 ? 0 : (vector_bytes - past) / size;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
