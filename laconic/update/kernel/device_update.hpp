// update/kernel/device_update.hpp — the passes of update.hpp over all parameters at once, on an
// NVIDIA GPU.
//
// The same operations in the same order as on the CPU, so that equal gradients give equal
// parameters. Nothing here waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace laconic::kernel {

// One parameter. Pointers are into the device's memory; `copy` is bfloat16 and may be null.
struct DeviceRow {
  float* value;
  const float* gradient;
  float* moment1;
  float* moment2;  // null where the algorithm keeps one moment
  void* copy;
  std::int64_t size;
  std::int64_t first_chunk;  // the chunks of all rows before
  float decay;               // weight decay, 0 for vectors
  float shrink;              // 1 - lr * decay
};

// Elements of a chunk, of which a block has one.
constexpr std::int64_t kDeviceChunk = 1 << 14;

enum class DeviceRule : std::uint8_t { adamw, adam, sgd, nesterov, lion };

// What is the same for all elements, worked out.
struct DeviceStep {
  DeviceRule rule;
  float lr, scale;
  float beta1, rest1, beta2, rest2;  // of adamw, adam and lion
  float step, root, epsilon;         // of adamw and adam: lr / c1, 1 / sqrt(c2)
  float momentum;                    // of sgd
};

// Rows in the device's memory, in ascending order of first_chunk; `chunks` of them all together.
struct DeviceTable {
  const DeviceRow* rows;
  int count;
  std::int64_t chunks;
};

// squares[row] = the square of the norm of its gradient. partials: one for each chunk.
void sum_squares(const DeviceTable& table, double* partials, double* squares, cudaStream_t stream);

// All in the device's memory; of `verdict`, see update/judgement.hpp.
struct DeviceJudge {
  const double* squares;  // of parameters, added up from first to last
  int count;
  const double* parts;  // of the loss
  int part_count;
  bool is_finite;        // what is known of the loss
  double clip;           // 0: nothing is clipped
  const double* before;  // the verdict on the step before; may be null
  double* verdict;       // room for its own numbers and for the parts
};
void judge(const DeviceJudge& judge, cudaStream_t stream);

// `verdict` may be null. Otherwise its scale counts, and nothing changes where it is not good.
void update(const DeviceTable& table, const DeviceStep& step, const double* verdict,
            cudaStream_t stream);

}  // namespace laconic::kernel
