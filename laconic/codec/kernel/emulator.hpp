// codec/kernel/emulator.hpp — CUDA kernels on the CPU, for tests.
//
// Every thread of a block is a fiber, and they take turns where they wait for each other: at
// __syncthreads() and at the exchanges of a warp. So a kernel's indices, its order of operations
// and its use of shared memory are those of a GPU; speed is not seen. Between two barriers the
// threads go on in an order that is another each time, so most races make other numbers. Blocks run
// one after the other, forwards or backwards, but for launch_together(), where all run at once.
// Denormals are flushed, as
// --ftz=true does.
//
// One kernel runs at a time. Only what codec kernels use is here.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)

namespace laconic::kernel {

struct EmulatedIndex {
  unsigned x = 0;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct ushort4 {
  unsigned short x, y, z, w;
};

extern EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

inline constexpr unsigned kEmulatedBlocks = 3;  // what the "device" holds at a time

namespace emulator {
// Starts a kernel: at once, or as whoever emulates streams has it.
using Start = void (*)(Stream, std::function<void()>);
extern Start start;
void run(unsigned blocks, unsigned threads, std::size_t shared_bytes, bool together,
         const std::function<void()>& thread);
void* shared();
void sync_block();
void sync_grid();
// Every thread of the warp gives a value and gets those of all 32.
const std::uint64_t* exchange(std::uint64_t value);
}  // namespace emulator

inline void __syncthreads() {
  emulator::sync_block();
}
inline void grid_sync() {
  emulator::sync_grid();
}
inline void __syncwarp(unsigned = ~0u) {
  emulator::exchange(0);
}

template <class T>
T __shfl_sync(unsigned, T value, unsigned lane) {
  std::uint64_t raw = 0;
  std::memcpy(&raw, &value, sizeof value);
  raw = emulator::exchange(raw)[lane % 32];
  std::memcpy(&value, &raw, sizeof value);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned by) {
  return __shfl_sync(mask, value, (threadIdx.x % 32) ^ by);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, lane < by ? lane : lane - by);
}
inline unsigned __ballot_sync(unsigned, bool is_true) {
  const std::uint64_t* all = emulator::exchange(is_true ? 1 : 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane]) << lane;
  return bits;
}
inline int __reduce_max_sync(unsigned, int value) {
  const std::uint64_t* all = emulator::exchange(static_cast<std::uint32_t>(value));
  int most = static_cast<int>(static_cast<std::uint32_t>(all[0]));
  for (unsigned lane = 1; lane < 32; ++lane)
    most = std::max(most, static_cast<int>(static_cast<std::uint32_t>(all[lane])));
  return most;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  const std::uint64_t* all = emulator::exchange(value);
  unsigned sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) sum += static_cast<unsigned>(all[lane]);
  return sum;
}

template <class T, class U>
T atomicAdd(T* at, U value) {
  const T before = *at;
  *at = static_cast<T>(before + static_cast<T>(value));
  return before;
}
template <class T>
T atomicMax(T* at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicOr(T* at, T value) {
  const T before = *at;
  *at = before | value;
  return before;
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(unsigned x) {
  return __builtin_ffs(static_cast<int>(x));
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
// A store that leaves the cache first.
template <class T>
void __stcs(T* at, const T& value) {
  *at = value;
}
// Rounded down.
inline float __fadd_rd(float a, float b) {
  const double sum = static_cast<double>(a) + b;
  const auto rounded = static_cast<float>(sum);
  return rounded > sum ? std::nextafterf(rounded, -HUGE_VALF) : rounded;
}
inline unsigned __byte_perm(unsigned x, unsigned, unsigned) {  // with the selector 0x0123 only
  return __builtin_bswap32(x);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return by % 32 == 0 ? high : high << by % 32 | low >> (32 - by % 32);
}

struct NoShared {};

template <class Shared>
Shared& shared_memory() {
  return *static_cast<Shared*>(emulator::shared());
}

template <class Shared = NoShared, class... P, class... A>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, Stream stream,
            A... arguments) {
  emulator::start(stream, [=] {
    emulator::run(blocks, threads, sizeof(Shared), false, [&] { kernel(arguments...); });
  });
}
template <class Shared = NoShared, class... P, class... A>
void launch_over(void (*kernel)(P...), std::uint64_t blocks, unsigned threads, Stream stream,
                 A... arguments) {
  launch<Shared>(kernel, static_cast<unsigned>(std::min<std::uint64_t>(blocks, kEmulatedBlocks)),
                 threads, stream, arguments...);
}
template <class Shared = NoShared, class... P>
void launch_together(void (*kernel)(P...), std::uint64_t blocks, unsigned threads, Stream stream,
                     P... arguments) {
  const auto room = static_cast<unsigned>(std::min<std::uint64_t>(blocks, kEmulatedBlocks));
  emulator::start(stream, [=] {
    emulator::run(room, threads, sizeof(Shared), true, [&] { kernel(arguments...); });
  });
}

}  // namespace laconic::kernel
