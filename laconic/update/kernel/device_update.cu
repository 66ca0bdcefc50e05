#include <cuda_bf16.h>

#include "laconic/update/judgement.hpp"
#include "laconic/update/kernel/device_update.hpp"

namespace laconic::kernel {

namespace {

constexpr int kBlock = 256, kWarp = 32;
constexpr int kNorm = static_cast<int>(Judgement::norm),
              kScale = static_cast<int>(Judgement::scale),
              kIsGood = static_cast<int>(Judgement::is_good),
              kParts = static_cast<int>(Judgement::count);

// The row that a chunk belongs to.
__device__ const DeviceRow& row_of(const DeviceTable& table, std::int64_t chunk) {
  int low = 0, high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.rows[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return table.rows[low];
}

struct Range {
  std::int64_t begin, end;
};
__device__ Range range_of(const DeviceRow& row, std::int64_t chunk) {
  const std::int64_t begin = (chunk - row.first_chunk) * kDeviceChunk;
  const std::int64_t end = begin + kDeviceChunk;
  return {begin, end < row.size ? end : row.size};
}

__device__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

__device__ double block_sum(double x, double* shared) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = 0;
  for (int w = 0; w < kBlock / kWarp; ++w) x += shared[w];
  return x;
}

__device__ double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

__global__ void __launch_bounds__(kBlock) squares_of_chunks(DeviceTable table, double* partials) {
  __shared__ double shared[kBlock / kWarp];
  const DeviceRow& row = row_of(table, blockIdx.x);
  const Range range = range_of(row, blockIdx.x);
  const float* gradient = row.gradient;
  double sum = 0;
  std::int64_t i = range.begin;
  if (is_aligned(gradient)) {
    const std::int64_t whole = range.begin + (range.end - range.begin) / 4 * 4;
    for (i += threadIdx.x * 4; i < whole; i += kBlock * 4) {
      const float4 g = *reinterpret_cast<const float4*>(gradient + i);
      sum += (square(g.x) + square(g.y)) + (square(g.z) + square(g.w));
    }
    i = whole;
  }
  for (i += threadIdx.x; i < range.end; i += kBlock) sum += square(gradient[i]);
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlock)
    squares_of_rows(DeviceTable table, const double* partials, double* squares) {
  __shared__ double shared[kBlock / kWarp];
  const DeviceRow& row = table.rows[blockIdx.x];
  const std::int64_t chunks = (row.size + kDeviceChunk - 1) / kDeviceChunk;
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < chunks; c += kBlock) sum += partials[row.first_chunk + c];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// One thread adds: there are some hundreds of squares, and their order is part of the result.
__global__ void __launch_bounds__(kBlock) judge_step(DeviceJudge j) {
  __shared__ double squares[kBlock];
  double sum = 0;
  for (int first = 0; first < j.count; first += kBlock) {
    const int here = min(j.count - first, kBlock), mine = static_cast<int>(threadIdx.x);
    if (mine < here) squares[mine] = j.squares[first + mine];
    __syncthreads();
    for (int i = 0; mine == 0 && i < here; ++i) sum += squares[i];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum);
  bool is_good = j.is_finite && isfinite(norm) && (j.before == nullptr || j.before[kIsGood] != 0);
  for (int i = 0; i < j.part_count; ++i) {
    is_good = is_good && isfinite(j.parts[i]);
    j.verdict[kParts + i] = j.parts[i];
  }
  j.verdict[kNorm] = norm;
  j.verdict[kScale] = j.clip > 0 && norm > j.clip ? j.clip / norm : 1;
  j.verdict[kIsGood] = is_good ? 1 : 0;
}

struct Element {
  float value, gradient, moment1, moment2;
};

template <DeviceRule kRule>
__device__ void move(Element& e, const DeviceStep& s, const DeviceRow& row) {
  if constexpr (kRule == DeviceRule::adamw || kRule == DeviceRule::adam) {
    float g = e.gradient * s.scale;
    if constexpr (kRule == DeviceRule::adam) g = g + e.value * row.decay;
    e.moment1 = e.moment1 * s.beta1 + g * s.rest1;
    e.moment2 = e.moment2 * s.beta2 + (g * g) * s.rest2;
    const float denominator = sqrtf(e.moment2) * s.root + s.epsilon;
    const float before = kRule == DeviceRule::adam ? e.value : e.value * row.shrink;
    e.value = before - (e.moment1 * s.step) / denominator;
  } else if constexpr (kRule == DeviceRule::lion) {
    const float g = e.gradient * s.scale;
    const float mean = e.moment1 * s.beta1 + g * s.rest1;
    const float by = mean == 0 ? 0 : copysignf(s.lr, mean);
    e.moment1 = e.moment1 * s.beta2 + g * s.rest2;
    e.value = e.value * row.shrink - by;
  } else {
    const float g = e.gradient * s.scale + e.value * row.decay;
    e.moment1 = e.moment1 * s.momentum + g;
    const float by = kRule == DeviceRule::nesterov ? g + e.moment1 * s.momentum : e.moment1;
    e.value = e.value - by * s.lr;
  }
}

template <DeviceRule kRule>
constexpr bool has_second_moment() {
  return kRule == DeviceRule::adamw || kRule == DeviceRule::adam;
}

template <DeviceRule kRule>
__device__ void move_one(const DeviceRow& row, const DeviceStep& step, std::int64_t i) {
  Element e{row.value[i], row.gradient[i], row.moment1[i], 0};
  if constexpr (has_second_moment<kRule>()) e.moment2 = row.moment2[i];
  move<kRule>(e, step, row);
  row.value[i] = e.value;
  row.moment1[i] = e.moment1;
  if constexpr (has_second_moment<kRule>()) row.moment2[i] = e.moment2;
  if (row.copy != nullptr) static_cast<__nv_bfloat16*>(row.copy)[i] = __float2bfloat16_rn(e.value);
}

__device__ void take(const float* from, float (&to)[4]) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ void give(float* to, const float (&from)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

template <DeviceRule kRule>
__device__ void move_four(const DeviceRow& row, const DeviceStep& step, std::int64_t i) {
  float value[4], gradient[4], moment1[4], moment2[4] = {};
  take(row.value + i, value);
  take(row.gradient + i, gradient);
  take(row.moment1 + i, moment1);
  if constexpr (has_second_moment<kRule>()) take(row.moment2 + i, moment2);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Element e{value[k], gradient[k], moment1[k], moment2[k]};
    move<kRule>(e, step, row);
    value[k] = e.value, moment1[k] = e.moment1, moment2[k] = e.moment2;
  }
  give(row.value + i, value);
  give(row.moment1 + i, moment1);
  if constexpr (has_second_moment<kRule>()) give(row.moment2 + i, moment2);
  if (row.copy == nullptr) return;
  const __nv_bfloat162 low = __floats2bfloat162_rn(value[0], value[1]),
                       high = __floats2bfloat162_rn(value[2], value[3]);
  uint2 bits;
  bits.x = *reinterpret_cast<const unsigned*>(&low);
  bits.y = *reinterpret_cast<const unsigned*>(&high);
  *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(row.copy) + i) = bits;
}

template <DeviceRule kRule>
__global__ void __launch_bounds__(kBlock)
    update_chunks(DeviceTable table, DeviceStep step, const double* verdict) {
  if (verdict != nullptr) {
    if (verdict[kIsGood] == 0) return;
    step.scale = static_cast<float>(verdict[kScale]);
  }
  const DeviceRow row = row_of(table, blockIdx.x);
  const Range range = range_of(row, blockIdx.x);
  const bool is_fast = is_aligned(row.value) && is_aligned(row.gradient) &&
                       is_aligned(row.moment1) && is_aligned(row.moment2) && is_aligned(row.copy);
  std::int64_t i = range.begin;
  if (is_fast) {
    const std::int64_t whole = range.begin + (range.end - range.begin) / 4 * 4;
    for (i += threadIdx.x * 4; i < whole; i += kBlock * 4) move_four<kRule>(row, step, i);
    i = whole;
  }
  for (i += threadIdx.x; i < range.end; i += kBlock) move_one<kRule>(row, step, i);
}

}  // namespace

void sum_squares(const DeviceTable& table, double* partials, double* squares, cudaStream_t stream) {
  squares_of_chunks<<<static_cast<unsigned>(table.chunks), kBlock, 0, stream>>>(table, partials);
  squares_of_rows<<<static_cast<unsigned>(table.count), kBlock, 0, stream>>>(table, partials,
                                                                             squares);
}

void judge(const DeviceJudge& judge, cudaStream_t stream) {
  judge_step<<<1, kBlock, 0, stream>>>(judge);
}

void update(const DeviceTable& table, const DeviceStep& step, const double* verdict,
            cudaStream_t stream) {
  const auto kernel = step.rule == DeviceRule::adamw      ? update_chunks<DeviceRule::adamw>
                      : step.rule == DeviceRule::adam     ? update_chunks<DeviceRule::adam>
                      : step.rule == DeviceRule::sgd      ? update_chunks<DeviceRule::sgd>
                      : step.rule == DeviceRule::nesterov ? update_chunks<DeviceRule::nesterov>
                                                          : update_chunks<DeviceRule::lion>;
  kernel<<<static_cast<unsigned>(table.chunks), kBlock, 0, stream>>>(table, step, verdict);
}

}  // namespace laconic::kernel
