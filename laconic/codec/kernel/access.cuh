// codec/kernel/access.cuh — numbers of any float type in device memory, four at a time.
#pragma once

#include "laconic/codec/kernel/exact.hpp"
#include "laconic/codec/kernel/launch.cuh"

namespace laconic::kernel {

inline constexpr unsigned kAllLanes = ~0u;

struct Four {
  float at[4];
};

__device__ __forceinline__ std::uint64_t thread_number() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::uint64_t thread_total() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

__device__ __forceinline__ float load_one(Dtype dtype, const void* x, std::uint64_t i) {
  switch (dtype) {
    case Dtype::f32: return static_cast<const float*>(x)[i];
    case Dtype::bf16: return exact::f32_of_bf16(static_cast<const std::uint16_t*>(x)[i]);
    case Dtype::f16: return exact::f32_of_f16(static_cast<const std::uint16_t*>(x)[i]);
    default: return exact::f32_of_f64(static_cast<const double*>(x)[i]);
  }
}

// As codec/convert.hpp narrows: NaN becomes the canonical one.
__device__ __forceinline__ void store_narrow(Dtype dtype, void* out, std::uint64_t i, float value) {
  switch (dtype) {
    case Dtype::f32: static_cast<float*>(out)[i] = exact::canonical(value); return;
    case Dtype::bf16: static_cast<std::uint16_t*>(out)[i] = exact::bf16_of(value); return;
    case Dtype::f16: static_cast<std::uint16_t*>(out)[i] = exact::f16_of(value); return;
    default: static_cast<double*>(out)[i] = exact::f64_of(value);
  }
}

// What a reader of `dtype` gets of a value.
__device__ __forceinline__ float rounded_to(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::f32: return exact::canonical(value);
    case Dtype::bf16: return exact::f32_of_bf16(exact::bf16_of(value));
    case Dtype::f16: return exact::f32_of_f16(exact::f16_of(value));
    default: return exact::f32_of_f64(exact::f64_of(value));
  }
}

// Elements i ... i + 3, of which `count` exist; the others are zero. Requires, for is_aligned: x is
// aligned to four elements, and so is i.
__device__ __forceinline__ Four load_four(Dtype dtype, const void* x, std::uint64_t i,
                                          std::uint64_t count, bool is_aligned) {
  Four four = {{0, 0, 0, 0}};
  if (is_aligned && count >= 4) {
    if (dtype == Dtype::f32) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(x) + i);
      return {{v.x, v.y, v.z, v.w}};
    }
    if (dtype == Dtype::bf16) {
      const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const std::uint16_t*>(x) + i);
      return {{exact::canonical(exact::float_of(v.x << 16)),
               exact::canonical(exact::float_of(v.x & 0xFFFF0000u)),
               exact::canonical(exact::float_of(v.y << 16)),
               exact::canonical(exact::float_of(v.y & 0xFFFF0000u))}};
    }
    if (dtype == Dtype::f16) {
      const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const std::uint16_t*>(x) + i);
      return {{exact::f32_of_f16(static_cast<std::uint16_t>(v.x)),
               exact::f32_of_f16(static_cast<std::uint16_t>(v.x >> 16)),
               exact::f32_of_f16(static_cast<std::uint16_t>(v.y)),
               exact::f32_of_f16(static_cast<std::uint16_t>(v.y >> 16))}};
    }
  }
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < 4; ++j)
    if (static_cast<std::uint64_t>(j) < count) four.at[j] = load_one(dtype, x, i + j);
  return four;
}

__device__ __forceinline__ void store_floats(float* out, std::uint64_t i, const Four& four,
                                             std::uint64_t count, bool is_aligned) {
  if (is_aligned && count >= 4) {
    *reinterpret_cast<float4*>(out + i) = float4{four.at[0], four.at[1], four.at[2], four.at[3]};
    return;
  }
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < 4; ++j)
    if (static_cast<std::uint64_t>(j) < count) out[i + j] = four.at[j];
}

__device__ __forceinline__ void store_narrow_four(Dtype dtype, void* out, std::uint64_t i,
                                                  const Four& four, std::uint64_t count,
                                                  bool is_aligned) {
  if (is_aligned && count >= 4 && (dtype == Dtype::bf16 || dtype == Dtype::f16)) {
    std::uint32_t h[4];
    for (int j = 0; j < 4; ++j)
      h[j] = dtype == Dtype::bf16 ? exact::bf16_of(four.at[j]) : exact::f16_of(four.at[j]);
    *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(out) + i) =
        uint2{h[0] | h[1] << 16, h[2] | h[3] << 16};
    return;
  }
  if (dtype == Dtype::f32) {
    Four settled;
    for (int j = 0; j < 4; ++j) settled.at[j] = exact::canonical(four.at[j]);
    return store_floats(static_cast<float*>(out), i, settled, count, is_aligned);
  }
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int j = 0; j < 4; ++j)
    if (static_cast<std::uint64_t>(j) < count) store_narrow(dtype, out, i + j, four.at[j]);
}

// --- where the type is known, and all numbers are there: 16 bytes at a time. NaN is looked for in
// all of them at once and settled on a path of its own, because it is rare and every operation on
// bits counts.

__device__ __forceinline__ bool is_any_nan(float a, float b) {
  return a != a || b != b;
}

template <int kCount>
__device__ __forceinline__ void settle_nans(float (&x)[kCount]) {
  bool is_nan = false;
  for (int j = 0; j < kCount; j += 2) is_nan |= is_any_nan(x[j], x[j + 1]);
  if (is_nan) [[unlikely]]
    for (int j = 0; j < kCount; ++j) x[j] = exact::canonical(x[j]);
}

template <int kCount>
__device__ __forceinline__ bool has_unsound(const float (&x)[kCount]) {
  bool is_found = false;
  for (int j = 0; j < kCount; ++j) is_found |= !(fabsf(x[j]) < exact::float_of(exact::kInfinity));
  return is_found;
}

// Two numbers of 16 bits, the first in the low half. The GPU rounds as exact.hpp does, but for NaN.
template <Dtype kDtype>
__device__ __forceinline__ std::uint32_t pack_two(float a, float b) {
#ifdef __CUDA_ARCH__
  if (!is_any_nan(a, b)) [[likely]] {
    std::uint32_t both;
    if constexpr (kDtype == Dtype::bf16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
    return both;
  }
#endif
  if constexpr (kDtype == Dtype::bf16)
    return exact::bf16_of(a) | std::uint32_t{exact::bf16_of(b)} << 16;
  else
    return exact::f16_of(a) | std::uint32_t{exact::f16_of(b)} << 16;
}

// The other way round; NaN stays any NaN.
template <Dtype kDtype>
__device__ __forceinline__ void unpack_two(std::uint32_t both, float& a, float& b) {
  if constexpr (kDtype == Dtype::bf16) {
    a = exact::float_of(both << 16);
    b = exact::float_of(both & 0xFFFF0000u);
  } else {
#ifdef __CUDA_ARCH__
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(a), "=f"(b)
        : "r"(both));
#else
    a = exact::f32_of_f16(static_cast<std::uint16_t>(both));
    b = exact::f32_of_f16(static_cast<std::uint16_t>(both >> 16));
#endif
  }
}

// Of this many elements 16 bytes are.
template <Dtype kDtype>
inline constexpr int kWideCount = kDtype == Dtype::f32 ? 4 : 8;

// As they are stored: NaN is any NaN. Eight of f32 are two loads.
template <Dtype kDtype, int kCount>
__device__ __forceinline__ void load_wide(const void* x, std::uint64_t i, float (&to)[kCount]) {
  if constexpr (kDtype == Dtype::f32) {
    for (int j = 0; j < kCount; j += 4) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(x) + i + j);
      to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
    }
  } else if constexpr (kCount == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const std::uint16_t*>(x) + i);
    unpack_two<kDtype>(v.x, to[0], to[1]);
    unpack_two<kDtype>(v.y, to[2], to[3]);
  } else {
    static_assert(kCount == 8);
    const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(x) + i);
    unpack_two<kDtype>(v.x, to[0], to[1]);
    unpack_two<kDtype>(v.y, to[2], to[3]);
    unpack_two<kDtype>(v.z, to[4], to[5]);
    unpack_two<kDtype>(v.w, to[6], to[7]);
  }
}

// kStreams: what is stored leaves the cache first. Where little else is moved that is faster.
template <bool kStreams, class T>
__device__ __forceinline__ void put(void* to, T value) {
  if constexpr (kStreams)
    __stcs(static_cast<T*>(to), value);
  else
    *static_cast<T*>(to) = value;
}

// Requires, for f32: no NaN but the canonical one.
template <Dtype kDtype, bool kStreams = false, int kCount>
__device__ __forceinline__ void store_wide(void* out, std::uint64_t i, const float (&x)[kCount]) {
  if constexpr (kDtype == Dtype::f32) {
    for (int j = 0; j < kCount; j += 4)
      put<kStreams>(static_cast<float*>(out) + i + j, float4{x[j], x[j + 1], x[j + 2], x[j + 3]});
  } else if constexpr (kCount == 4) {
    put<kStreams>(static_cast<std::uint16_t*>(out) + i,
                  uint2{pack_two<kDtype>(x[0], x[1]), pack_two<kDtype>(x[2], x[3])});
  } else {
    static_assert(kCount == 8);
    put<kStreams>(static_cast<std::uint16_t*>(out) + i,
                  uint4{pack_two<kDtype>(x[0], x[1]), pack_two<kDtype>(x[2], x[3]),
                        pack_two<kDtype>(x[4], x[5]), pack_two<kDtype>(x[6], x[7])});
  }
}

// --- sources with a memory

__device__ __forceinline__ float combined(Memory memory, float x, float before) {
  if (memory == Memory::feedback) return x + before;
  if (memory == Memory::difference) return x - before;
  return x;
}

// The same with the NaN that an x86 makes, where its sign counts.
__device__ __forceinline__ float combined_exactly(Memory memory, float x, float before) {
  const float sent = combined(memory, x, before);
  if (memory == Memory::none || sent == sent) [[likely]]
    return sent;
  return memory == Memory::feedback ? exact::sum_of(x, before) : exact::difference_of(x, before);
}

__device__ __forceinline__ float remembered(Memory memory, float sent, float received,
                                            float before) {
  return exact::canonical(memory == Memory::feedback ? sent - received : before + received);
}

// --- sinks

struct SinkView {
  DeviceSink sink;
  bool is_aligned;
};

// Decoded elements i ... i + 3, of which `count` exist.
__device__ __forceinline__ void deliver_four(const SinkView& view, std::uint64_t i, Four four,
                                             std::uint64_t count) {
  const DeviceSink& sink = view.sink;
  if (sink.kind == Delivery::store) {
    if (sink.dtype == Dtype::f32)
      return store_floats(static_cast<float*>(sink.out), i, four, count, view.is_aligned);
    return store_narrow_four(sink.dtype, sink.out, i, four, count, view.is_aligned);
  }
  if (sink.kind == Delivery::add) {
    if (sink.dtype == Dtype::f64) {  // added as doubles
      for (int j = 0; j < 4; ++j)
        if (static_cast<std::uint64_t>(j) < count) {
          double& at = static_cast<double*>(sink.out)[i + j];
          const double sum = at + exact::f64_of(four.at[j]);
          at = sum == sum ? sum : std::bit_cast<double>(std::uint64_t{0x7FF8} << 48);
        }
      return;
    }
    const Four sum = load_four(sink.dtype, sink.out, i, count, view.is_aligned);
    for (int j = 0; j < 4; ++j) {
      const float value =
          sink.dtype == Dtype::f32 ? four.at[j] : rounded_to(sink.dtype, four.at[j]);
      four.at[j] = exact::canonical(sum.at[j] + value);
    }
    return store_narrow_four(sink.dtype, sink.out, i, four, count, view.is_aligned);
  }
  const Four before = load_four(Dtype::f32, sink.before, i, count, view.is_aligned);
  for (int j = 0; j < 4; ++j) four.at[j] = exact::canonical(before.at[j] + four.at[j]);
  store_floats(sink.after, i, four, count, view.is_aligned);
  if (sink.out == nullptr || sink.out == sink.after) return;
  store_narrow_four(sink.dtype, sink.out, i, four, count, view.is_aligned);
}

// Decoded elements i ... i + kCount - 1, all of which exist, in two steps, so that a thread can
// have the loads of several under way: what a sink needs of memory is loaded, and then it is
// delivered. Requires: the view is aligned.
template <Delivery kKind, Dtype kDtype, int kCount>
__device__ __forceinline__ void prepare_wide(const SinkView& view, std::uint64_t i,
                                             float (&old)[kCount]) {
  if constexpr (kKind == Delivery::add) load_wide<kDtype>(view.sink.out, i, old);
  if constexpr (kKind == Delivery::difference) load_wide<Dtype::f32>(view.sink.before, i, old);
}

// Requires: no NaN in `x` but the canonical one.
template <Delivery kKind, Dtype kDtype, int kCount>
__device__ __forceinline__ void deliver_wide(const SinkView& view, std::uint64_t i,
                                             float (&x)[kCount], const float (&old)[kCount]) {
  const DeviceSink& sink = view.sink;
  if constexpr (kKind == Delivery::add && kDtype != Dtype::f32)
    for (int j = 0; j < kCount; j += 2)
      unpack_two<kDtype>(pack_two<kDtype>(x[j], x[j + 1]), x[j], x[j + 1]);
  if constexpr (kKind != Delivery::store) {
    for (int j = 0; j < kCount; ++j) x[j] = old[j] + x[j];
    settle_nans(x);
  }
  // What is only stored is the end of a decode, or a few values of one.
  if constexpr (kKind != Delivery::difference)
    return store_wide<kDtype, kKind == Delivery::store>(sink.out, i, x);
  store_wide<Dtype::f32>(sink.after, i, x);
  if (sink.out == nullptr || sink.out == sink.after) return;
  store_wide<kDtype>(sink.out, i, x);
}

__device__ __forceinline__ void deliver_one(const SinkView& view, std::uint64_t i, float value) {
  deliver_four(view, i, {{value, 0, 0, 0}}, 1);
}
// The same where it is known what becomes of it.
template <Delivery kKind, Dtype kDtype>
__device__ __forceinline__ void deliver_one_to(SinkView view, std::uint64_t i, float value) {
  view.sink.kind = kKind;
  view.sink.dtype = kDtype;
  deliver_one(view, i, value);
}

// Division of a number below 2^31 by one that the host knows: the quotient needs a product, a sum
// and a shift.
struct Divider {
  std::uint32_t factor = 0;
  int shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t by) : shift(std::bit_width(by - 1)) {
    factor = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - by)) / by + 1);
  }
  __device__ __forceinline__ std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * factor >> 32);
    return (high + n) >> shift;
  }
};

// --- on the host: what may be read four elements at a time

inline bool is_aligned_to(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}
inline std::size_t four_bytes(Dtype dtype) {
  return dtype == Dtype::f32 ? 16 : dtype == Dtype::f64 ? 8 : 8;
}
inline bool is_aligned(const DeviceSource& source) {
  return is_aligned_to(source.x, four_bytes(source.dtype)) && is_aligned_to(source.before, 16) &&
         is_aligned_to(source.after, 16);
}
inline SinkView view_of(const DeviceSink& sink) {
  return {sink, is_aligned_to(sink.out, four_bytes(sink.dtype)) && is_aligned_to(sink.before, 16) &&
                    is_aligned_to(sink.after, 16)};
}

// Whether 16 bytes of each can be read and written at once.
inline bool is_wide(const DeviceSink& sink) {
  return is_aligned_to(sink.out, 16) && is_aligned_to(sink.before, 16) &&
         is_aligned_to(sink.after, 16);
}

constexpr std::uint64_t parts_of(std::uint64_t count, std::uint64_t size) {
  return count / size + (count % size != 0 ? 1 : 0);
}

}  // namespace laconic::kernel
