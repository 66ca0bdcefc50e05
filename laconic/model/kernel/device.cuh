// model/kernel/device.cuh — what the kernels for NVIDIA GPUs have in common.
//
// Numbers travel eight at a time, 16 or 32 bytes of a thread; arithmetic is float32. Sums are added
// in an order that depends on the shape alone: no atomic additions, so results are the same every
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace laconic::kernel {

using bf16 = __nv_bfloat16;

constexpr int kWarp = 32;
constexpr int kVector = 8;  // elements of a load

inline int blocks_for(std::int64_t work, std::int64_t each) {
  return static_cast<int>((work + each - 1) / each);
}

__device__ inline void load(const float* from, float (&to)[kVector]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
__device__ inline void store(float* to, const float (&from)[kVector]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}
__device__ inline void load(const bf16* from, float (&to)[kVector]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
__device__ inline void store(bf16* to, const float (&from)[kVector]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
    words[i] = *reinterpret_cast<const unsigned*>(&pair);
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ inline float as_float(float x) {
  return x;
}
__device__ inline float as_float(bf16 x) {
  return __bfloat162float(x);
}
__device__ inline void assign(float& to, float x) {
  to = x;
}
__device__ inline void assign(bf16& to, float x) {
  to = __float2bfloat16_rn(x);
}

// As they are once they have been stored.
template <class T>
__device__ inline void round_as(float (&values)[kVector]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = __bfloat162float(__float2bfloat16_rn(values[i]));
  }
}

template <class Number>
__device__ inline Number warp_sum(Number x) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

// Over `kThreads` neighbouring threads; all get it. `shared` has a place for every warp of the
// block, and is free again when all have it. With more than a warp these threads are the block.
template <int kThreads>
__device__ inline float group_sum(float x, float* shared) {
  x = warp_sum(x);
  if constexpr (kThreads > kWarp) {
    const int warp = threadIdx.x / kWarp;
    if (threadIdx.x % kWarp == 0) shared[warp] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w) x += shared[w];
    __syncthreads();
  }
  return x;
}

// sum[c] += the partial sums [parts, columns] of column c, or = them.
void add_partials(const float* partials, std::int64_t parts, std::int64_t columns, float* sum,
                  bool is_first, cudaStream_t stream);

// Philox 4x32-10, as base/philox.hpp has it.
__device__ inline uint4 philox(unsigned long long block, uint2 key, unsigned long long more = 0) {
  uint4 c = make_uint4(static_cast<unsigned>(block), static_cast<unsigned>(block >> 32),
                       static_cast<unsigned>(more), static_cast<unsigned>(more >> 32));
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c;
}

}  // namespace laconic::kernel
