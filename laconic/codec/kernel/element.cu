// Element by element: nothing here knows of groups. Threads stride over fours of elements, two of
// them at a time, so that several loads are under way.
#include "laconic/codec/kernel/access.cuh"

#ifdef __CUDACC__
#define LACONIC_UNROLL _Pragma("unroll")
#else
#define LACONIC_UNROLL
#endif

namespace laconic::kernel {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kPerThread = 8;  // elements at a time

struct SourceView {
  DeviceSource source;
  bool is_aligned;
};

// use(i, elements left) for the fours of this thread, a block's threads side by side.
template <class Use>
__device__ __forceinline__ void for_each_four(std::uint64_t count, const Use& use) {
  constexpr std::uint64_t kTile = kThreads * kPerThread;
  for (std::uint64_t tile = std::uint64_t{blockIdx.x} * kTile; tile < count;
       tile += std::uint64_t{gridDim.x} * kTile) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint64_t i = tile + (half * kThreads + threadIdx.x) * 4;
      if (i < count) use(i, count - i);
    }
  }
}

// Whether there is a kernel for this type of tensors or of 16-bit payloads.
bool is_common(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16;
}
bool is_half(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16;
}

std::uint64_t tiles_of(std::uint64_t count) {
  return parts_of(count, kThreads * kPerThread);
}

__global__ void __launch_bounds__(kThreads)
    combine(SourceView view, std::uint64_t count, float* out, bool is_out_aligned) {
  const DeviceSource& source = view.source;
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    Four x = load_four(source.dtype, source.x, i, left, view.is_aligned);
    if (source.memory != Memory::none) {
      const Four before = load_four(Dtype::f32, source.before, i, left, view.is_aligned);
      for (int j = 0; j < 4; ++j)
        x.at[j] = source.memory == Memory::feedback ? exact::sum_of(x.at[j], before.at[j])
                                                    : exact::difference_of(x.at[j], before.at[j]);
    }
    store_floats(out, i, x, left, is_out_aligned);
  });
}

__device__ __forceinline__ bool has_unsound_of(const Four& four, std::uint64_t count) {
  bool found = false;
  for (int j = 0; j < 4; ++j)
    found |= static_cast<std::uint64_t>(j) < count && !exact::is_finite(four.at[j]);
  return found;
}

__global__ void __launch_bounds__(kThreads)
    remember(DeviceSource source, const float* sent, const float* received, std::uint64_t count,
             bool is_all_aligned) {
  bool is_unsound = false;
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    Four after = load_four(Dtype::f32, received, i, left, is_all_aligned);
    const bool is_feedback = source.memory == Memory::feedback;
    const Four other =
        load_four(Dtype::f32, is_feedback ? sent : source.before, i, left, is_all_aligned);
    for (int j = 0; j < 4; ++j)
      after.at[j] = remembered(source.memory, other.at[j], after.at[j], other.at[j]);
    store_floats(source.after, i, after, left, is_all_aligned);
    is_unsound |= has_unsound_of(after, left);
  });
  if (is_unsound && source.is_unsound != nullptr) *source.is_unsound = 1;
}

__global__ void __launch_bounds__(kThreads)
    deliver(const float* values, std::uint64_t count, SinkView sink, bool is_in_aligned) {
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    deliver_four(sink, i, load_four(Dtype::f32, values, i, left, is_in_aligned), left);
  });
}

template <Memory kMemory>
__global__ void __launch_bounds__(kThreads)
    narrow(SourceView view, std::uint64_t count, Dtype kind, std::byte* out, bool is_out_aligned) {
  const DeviceSource& source = view.source;
  bool is_unsound = false;
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    Four x = load_four(source.dtype, source.x, i, left, view.is_aligned);
    Four before = x;
    if constexpr (kMemory != Memory::none) {
      before = load_four(Dtype::f32, source.before, i, left, view.is_aligned);
      for (int j = 0; j < 4; ++j) x.at[j] = combined(kMemory, x.at[j], before.at[j]);
    }
    store_narrow_four(kind, out, i, x, left, is_out_aligned);
    if constexpr (kMemory != Memory::none) {
      for (int j = 0; j < 4; ++j)
        x.at[j] = remembered(kMemory, x.at[j], rounded_to(kind, x.at[j]), before.at[j]);
      store_floats(source.after, i, x, left, view.is_aligned);
      is_unsound |= has_unsound_of(x, left);
    }
  });
  if (kMemory != Memory::none && is_unsound && source.is_unsound != nullptr) *source.is_unsound = 1;
}

__global__ void __launch_bounds__(kThreads)
    widen(Dtype kind, const std::byte* in, std::uint64_t count, SinkView sink, bool is_in_aligned) {
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    Four four = load_four(kind, in, i, left, is_in_aligned);
    if (kind == Dtype::f32)
      for (int j = 0; j < 4; ++j) four.at[j] = exact::canonical(four.at[j]);
    deliver_four(sink, i, four, left);
  });
}

// --- the same where types are known and all is aligned: 16 elements of a thread are under way

template <int kUnit>
inline constexpr int kUnits = 16 / kUnit;

// The units of a tile that this thread has, those of a block's threads side by side.
template <int kUnit>
__device__ __forceinline__ std::uint64_t unit_at(std::uint64_t tile, int s) {
  return tile * 16 * kThreads + (std::uint64_t{kThreads} * s + threadIdx.x) * kUnit;
}

template <Memory kMemory, Dtype kFrom, Dtype kTo>
__global__ void __launch_bounds__(kThreads)
    narrow_wide(DeviceSource source, std::uint64_t count, std::byte* out) {
  constexpr int kUnit = kMemory == Memory::none ? kWideCount<kFrom> : 4;
  bool is_unsound = false;
  for (std::uint64_t tile = blockIdx.x; tile * 16 * kThreads < count; tile += gridDim.x) {
    float x[kUnits<kUnit>][kUnit], before[kUnits<kUnit>][kUnit];
    LACONIC_UNROLL
    for (int s = 0; s < kUnits<kUnit>; ++s) {
      const std::uint64_t i = unit_at<kUnit>(tile, s);
      if (i + kUnit > count) continue;
      load_wide<kFrom>(source.x, i, x[s]);
      if constexpr (kMemory != Memory::none) load_wide<Dtype::f32>(source.before, i, before[s]);
    }
    LACONIC_UNROLL
    for (int s = 0; s < kUnits<kUnit>; ++s) {
      const std::uint64_t i = unit_at<kUnit>(tile, s);
      if (i + kUnit > count) continue;
      if constexpr (kMemory != Memory::none)
        for (int j = 0; j < kUnit; ++j) x[s][j] = combined(kMemory, x[s][j], before[s][j]);
      store_wide<kTo>(out, i, x[s]);
      if constexpr (kMemory != Memory::none) {
        for (int j = 0; j < kUnit; j += 2) {
          float received[2];
          unpack_two<kTo>(pack_two<kTo>(x[s][j], x[s][j + 1]), received[0], received[1]);
          for (int k = 0; k < 2; ++k)
            x[s][j + k] = kMemory == Memory::feedback ? x[s][j + k] - received[k]
                                                      : before[s][j + k] + received[k];
        }
        if (has_unsound(x[s])) [[unlikely]] {
          is_unsound = true;
          settle_nans(x[s]);
        }
        store_wide<Dtype::f32>(source.after, i, x[s]);
      }
    }
  }
  const std::uint64_t last = count / kUnit * kUnit + threadIdx.x;
  if (blockIdx.x == 0 && last < count) {
    const float x = load_one(kFrom, source.x, last);
    const float before = kMemory == Memory::none ? 0 : source.before[last];
    const float sent = combined(kMemory, x, before);
    store_narrow(kTo, out, last, sent);
    if constexpr (kMemory != Memory::none) {
      const float after = remembered(kMemory, sent, rounded_to(kTo, sent), before);
      source.after[last] = after;
      is_unsound |= !exact::is_finite(after);
    }
  }
  if (kMemory != Memory::none && is_unsound && source.is_unsound != nullptr) *source.is_unsound = 1;
}

template <Memory kMemory, Dtype kFrom>
__global__ void __launch_bounds__(kThreads)
    combine_wide(DeviceSource source, std::uint64_t count, float* out) {
  for (std::uint64_t tile = blockIdx.x; tile * 16 * kThreads < count; tile += gridDim.x) {
    float x[4][4], before[4][4];
    LACONIC_UNROLL
    for (int s = 0; s < 4; ++s) {
      const std::uint64_t i = unit_at<4>(tile, s);
      if (i + 4 > count) continue;
      load_wide<kFrom>(source.x, i, x[s]);
      if constexpr (kMemory != Memory::none) load_wide<Dtype::f32>(source.before, i, before[s]);
    }
    LACONIC_UNROLL
    for (int s = 0; s < 4; ++s) {
      const std::uint64_t i = unit_at<4>(tile, s);
      if (i + 4 > count) continue;
      if constexpr (kFrom != Dtype::f32) settle_nans(x[s]);
      if constexpr (kMemory != Memory::none)
        for (int j = 0; j < 4; ++j) x[s][j] = combined_exactly(kMemory, x[s][j], before[s][j]);
      store_wide<Dtype::f32>(out, i, x[s]);
    }
  }
  const std::uint64_t last = count / 4 * 4 + threadIdx.x;
  if (blockIdx.x != 0 || last >= count) return;
  const float x = load_one(kFrom, source.x, last);
  out[last] = kMemory == Memory::none ? x : combined_exactly(kMemory, x, source.before[last]);
}

// after = other - received or other + received.
template <Memory kMemory>
__global__ void __launch_bounds__(kThreads)
    remember_wide(DeviceSource source, const float* other, const float* received,
                  std::uint64_t count) {
  bool is_unsound = false;
  for (std::uint64_t tile = blockIdx.x; tile * 16 * kThreads < count; tile += gridDim.x) {
    float x[4][4], after[4][4];
    LACONIC_UNROLL
    for (int s = 0; s < 4; ++s) {
      const std::uint64_t i = unit_at<4>(tile, s);
      if (i + 4 > count) continue;
      load_wide<Dtype::f32>(other, i, x[s]);
      load_wide<Dtype::f32>(received, i, after[s]);
    }
    LACONIC_UNROLL
    for (int s = 0; s < 4; ++s) {
      const std::uint64_t i = unit_at<4>(tile, s);
      if (i + 4 > count) continue;
      for (int j = 0; j < 4; ++j)
        after[s][j] = kMemory == Memory::feedback ? x[s][j] - after[s][j] : x[s][j] + after[s][j];
      if (has_unsound(after[s])) [[unlikely]] {
        is_unsound = true;
        settle_nans(after[s]);
      }
      store_wide<Dtype::f32>(source.after, i, after[s]);
    }
  }
  const std::uint64_t last = count / 4 * 4 + threadIdx.x;
  if (blockIdx.x == 0 && last < count) {
    const float after = remembered(kMemory, other[last], received[last], other[last]);
    source.after[last] = after;
    is_unsound |= !exact::is_finite(after);
  }
  if (is_unsound && source.is_unsound != nullptr) *source.is_unsound = 1;
}

template <Dtype kFrom, Delivery kKind, Dtype kTo>
__global__ void __launch_bounds__(kThreads)
    widen_wide(const std::byte* in, std::uint64_t count, SinkView sink) {
  constexpr int kUnit = kKind == Delivery::difference ? 4 : kWideCount<kTo>;
  for (std::uint64_t tile = blockIdx.x; tile * 16 * kThreads < count; tile += gridDim.x) {
    float x[kUnits<kUnit>][kUnit], old[kUnits<kUnit>][kUnit];
    LACONIC_UNROLL
    for (int s = 0; s < kUnits<kUnit>; ++s) {
      const std::uint64_t i = unit_at<kUnit>(tile, s);
      if (i + kUnit > count) continue;
      load_wide<kFrom>(in, i, x[s]);
      prepare_wide<kKind, kTo>(sink, i, old[s]);
    }
    LACONIC_UNROLL
    for (int s = 0; s < kUnits<kUnit>; ++s) {
      const std::uint64_t i = unit_at<kUnit>(tile, s);
      if (i + kUnit > count) continue;
      settle_nans(x[s]);
      deliver_wide<kKind, kTo>(sink, i, x[s], old[s]);
    }
  }
  const std::uint64_t last = count / kUnit * kUnit + threadIdx.x;
  if (blockIdx.x != 0 || last >= count) return;
  deliver_one_to<kKind, kTo>(sink, last, exact::canonical(load_one(kFrom, in, last)));
}

__global__ void __launch_bounds__(kThreads)
    check_numbers(Dtype dtype, const std::byte* values, std::uint64_t count,
                  std::uint32_t* is_unsound, bool is_aligned) {
  bool is_found = false;
  for_each_four(count, [&](std::uint64_t i, std::uint64_t left) {
    is_found |= has_unsound_of(load_four(dtype, values, i, left, is_aligned), left);
  });
  if (is_found) *is_unsound = 1;
}

__global__ void __launch_bounds__(kThreads)
    settle(const std::uint32_t* is_unsound, const float* before, float* after,
           std::uint64_t count) {
  if (*is_unsound == 0) return;
  for (std::uint64_t i = thread_number(); i < count; i += thread_total())
    after[i] = before == nullptr ? 0.0f : before[i];
}

// A word at a time where both are aligned; the rest by bytes.
__global__ void __launch_bounds__(kThreads)
    copy_bytes(const std::byte* from, std::uint64_t bytes, std::byte* to, bool is_aligned) {
  const std::uint64_t words = is_aligned ? bytes / 16 : 0;
  for (std::uint64_t i = thread_number(); i < words; i += thread_total())
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (std::uint64_t i = 16 * words + thread_number(); i < bytes; i += thread_total())
    to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    clear_bytes(std::byte* at, std::uint64_t bytes, bool is_aligned) {
  const std::uint64_t words = is_aligned ? bytes / 16 : 0;
  for (std::uint64_t i = thread_number(); i < words; i += thread_total())
    reinterpret_cast<uint4*>(at)[i] = uint4{0, 0, 0, 0};
  for (std::uint64_t i = 16 * words + thread_number(); i < bytes; i += thread_total())
    at[i] = std::byte{0};
}

__global__ void put_word(std::uint64_t value, std::byte* out) {
  out[threadIdx.x] = static_cast<std::byte>(value >> (8 * threadIdx.x));
}

}  // namespace

namespace {

template <Memory kMemory>
bool combine_fast(const DeviceSource& source, std::uint64_t count, float* out, Stream stream) {
  if (!is_aligned(source) || !is_aligned_to(out, 16) || !is_common(source.dtype)) return false;
  const auto with = [&](auto* kernel) {
    launch_over(kernel, parts_of(count, 16 * kThreads), kThreads, stream, source, count, out);
    return true;
  };
  return source.dtype == Dtype::f32 ? with(combine_wide<kMemory, Dtype::f32>)
                                    : with(combine_wide<kMemory, Dtype::bf16>);
}

bool combine_fast(const DeviceSource& source, std::uint64_t count, float* out, Stream stream) {
  switch (source.memory) {
    case Memory::none: return combine_fast<Memory::none>(source, count, out, stream);
    case Memory::feedback: return combine_fast<Memory::feedback>(source, count, out, stream);
    case Memory::difference: return combine_fast<Memory::difference>(source, count, out, stream);
  }
  return false;
}

}  // namespace

void device_combine(const DeviceSource& source, std::uint64_t count, float* out, Stream stream) {
  if (combine_fast(source, count, out, stream)) return;
  launch_over(combine, tiles_of(count), kThreads, stream, SourceView{source, is_aligned(source)},
              count, out, is_aligned_to(out, 16));
}

void device_remember(const DeviceSource& source, const float* sent, const float* received,
                     std::uint64_t count, Stream stream) {
  const bool is_all_aligned = is_aligned_to(sent, 16) && is_aligned_to(received, 16) &&
                              is_aligned_to(source.before, 16) && is_aligned_to(source.after, 16);
  if (is_all_aligned) {
    const bool is_feedback = source.memory == Memory::feedback;
    return launch_over(
        is_feedback ? remember_wide<Memory::feedback> : remember_wide<Memory::difference>,
        parts_of(count, 16 * kThreads), kThreads, stream, source,
        is_feedback ? sent : source.before, received, count);
  }
  launch_over(remember, tiles_of(count), kThreads, stream, source, sent, received, count,
              is_all_aligned);
}

namespace {

template <Memory kMemory>
bool narrow_fast(const DeviceSource& source, std::uint64_t count, Dtype kind, std::byte* out,
                 Stream stream) {
  const bool is_wide = is_aligned_to(source.x, 16) && is_aligned_to(source.before, 16) &&
                       is_aligned_to(source.after, 16) && is_aligned_to(out, 16);
  if (!is_wide || !is_common(source.dtype) || !is_half(kind)) return false;
  const auto with = [&](auto* kernel) {
    launch_over(kernel, parts_of(count, 16 * kThreads), kThreads, stream, source, count, out);
    return true;
  };
  if (source.dtype == Dtype::f32)
    return kind == Dtype::bf16 ? with(narrow_wide<kMemory, Dtype::f32, Dtype::bf16>)
                               : with(narrow_wide<kMemory, Dtype::f32, Dtype::f16>);
  return kind == Dtype::bf16 ? with(narrow_wide<kMemory, Dtype::bf16, Dtype::bf16>)
                             : with(narrow_wide<kMemory, Dtype::bf16, Dtype::f16>);
}

template <Delivery kKind>
bool widen_fast(Dtype kind, const std::byte* in, std::uint64_t count, const DeviceSink& sink,
                Stream stream) {
  const bool is_known = kind == Dtype::f32 || is_half(kind);
  if (!is_wide(sink) || !is_aligned_to(in, 16) || !is_common(sink.dtype) || !is_known) return false;
  const auto with = [&](auto* kernel) {
    launch_over(kernel, parts_of(count, 16 * kThreads), kThreads, stream, in, count,
                SinkView{sink, true});
    return true;
  };
  const bool is_floats = sink.dtype == Dtype::f32;
  switch (kind) {
    case Dtype::f32:
      return is_floats ? with(widen_wide<Dtype::f32, kKind, Dtype::f32>)
                       : with(widen_wide<Dtype::f32, kKind, Dtype::bf16>);
    case Dtype::bf16:
      return is_floats ? with(widen_wide<Dtype::bf16, kKind, Dtype::f32>)
                       : with(widen_wide<Dtype::bf16, kKind, Dtype::bf16>);
    default:
      return is_floats ? with(widen_wide<Dtype::f16, kKind, Dtype::f32>)
                       : with(widen_wide<Dtype::f16, kKind, Dtype::bf16>);
  }
}

bool widen_fast(Dtype kind, const std::byte* in, std::uint64_t count, const DeviceSink& sink,
                Stream stream) {
  switch (sink.kind) {
    case Delivery::store: return widen_fast<Delivery::store>(kind, in, count, sink, stream);
    case Delivery::add: return widen_fast<Delivery::add>(kind, in, count, sink, stream);
    case Delivery::difference:
      return widen_fast<Delivery::difference>(kind, in, count, sink, stream);
  }
  return false;
}

}  // namespace

void device_narrow(const DeviceSource& source, std::uint64_t count, Dtype kind, std::byte* out,
                   Stream stream) {
  const SourceView view{source, is_aligned(source)};
  const bool is_out_aligned = is_aligned_to(out, four_bytes(kind));
  const auto with = [&](auto* kernel) {
    launch_over(kernel, tiles_of(count), kThreads, stream, view, count, kind, out, is_out_aligned);
  };
  switch (source.memory) {
    case Memory::none:
      if (!narrow_fast<Memory::none>(source, count, kind, out, stream)) with(narrow<Memory::none>);
      return;
    case Memory::feedback:
      if (!narrow_fast<Memory::feedback>(source, count, kind, out, stream))
        with(narrow<Memory::feedback>);
      return;
    case Memory::difference:
      if (!narrow_fast<Memory::difference>(source, count, kind, out, stream))
        with(narrow<Memory::difference>);
      return;
  }
}

void device_widen(Dtype kind, const std::byte* in, std::uint64_t count, const DeviceSink& sink,
                  Stream stream) {
  if (widen_fast(kind, in, count, sink, stream)) return;
  launch_over(widen, tiles_of(count), kThreads, stream, kind, in, count, view_of(sink),
              is_aligned_to(in, four_bytes(kind)));
}

void device_deliver(const float* values, std::uint64_t count, const DeviceSink& sink,
                    Stream stream) {
  // f32 is never delivered to f32 as it is, so NaN may become the canonical one.
  if (widen_fast(Dtype::f32, reinterpret_cast<const std::byte*>(values), count, sink, stream))
    return;
  launch_over(deliver, tiles_of(count), kThreads, stream, values, count, view_of(sink),
              is_aligned_to(values, 16));
}

void device_check_finite(Dtype dtype, const std::byte* values, std::uint64_t count,
                         std::uint32_t* is_unsound, Stream stream) {
  launch_over(check_numbers, tiles_of(count), kThreads, stream, dtype, values, count, is_unsound,
              is_aligned_to(values, four_bytes(dtype)));
}

void device_settle(const std::uint32_t* is_unsound, const float* before, float* after,
                   std::uint64_t count, Stream stream) {
  launch_over(settle, parts_of(count, kThreads), kThreads, stream, is_unsound, before, after,
              count);
}

void device_copy(const void* from, std::uint64_t bytes, void* to, Stream stream) {
  launch_over(copy_bytes, parts_of(bytes, 16 * kThreads), kThreads, stream,
              static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to),
              is_aligned_to(from, 16) && is_aligned_to(to, 16));
}

void device_clear(void* at, std::uint64_t bytes, Stream stream) {
  launch_over(clear_bytes, parts_of(bytes, 16 * kThreads), kThreads, stream,
              static_cast<std::byte*>(at), bytes, is_aligned_to(at, 16));
}

void device_put(std::uint64_t value, std::byte* out, Stream stream) {
  launch(put_word, 1, 8, stream, value, out);
}

}  // namespace laconic::kernel
