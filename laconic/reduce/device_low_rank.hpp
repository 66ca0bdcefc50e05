// reduce/device_low_rank.hpp — reduce/shared_low_rank.hpp for gradients in the memory of a GPU: the
// same bits, by a few kernels for all matrices together.
//
// The phases and what may be wrong with them are those of SharedLowRank, but for two: it gives
// sums, not means, and nobody waits to hear whether a matrix was finite. What it remembers is then
// what it was before, by flags that stay on the device. Its state is SharedLowRank's, which has it
// whenever the host works (checkpoints, steps that measure fidelity).
//
// All pointers are device memory, and all work goes by the codec stream.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/codec/device_memory.hpp"
#include "laconic/codec/kernel/factor_batch.hpp"
#include "laconic/reduce/shared_low_rank.hpp"

namespace laconic {

class DeviceLowRank {
 public:
  // Requires: as SharedLowRank's.
  DeviceLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors,
                int workers);

  // Pointers in the order of the tensors; they must stay until finish(). The buffers have
  // SharedLowRank's counts(). A first step, and one with other pointers, waits for the device.
  void begin(std::span<float* const> gradients, float* raw, float* left);
  // `left` is the sum and becomes P, which finish() wants.
  void project(float* left, float* right);
  // The sums come to lie where the gradients are.
  void finish(const float* raw_sum, const float* right_sum);
  void commit();   // Requires: finish() has been called.
  void abandon();  // nothing happens without a step

  // Requires, for these: no step is under way. They wait for the device. What is loaded was saved
  // by a SharedLowRank with the same tensors and spec, or here, and is finite.
  NamedFloats save() const;
  void load(const NamedFloats& state);

 private:
  enum class Phase { idle, begun, projected, finished };

  struct Matrix {
    NamedTensor tensor;
    std::size_t place = 0;  // among the tensors
    kernel::BatchMatrix batch;
  };
  struct Piece {
    std::size_t place = 0;
    kernel::BatchPiece batch;
  };
  struct Memory {
    DeviceBuffer residuals, basis;         // of all matrices, one after the other
    DeviceBuffer has_residual, has_basis;  // flags of matrices
  };
  Memory make_memory() const;
  void update_table(std::span<float* const> gradients);
  kernel::BatchStep step_of(const DeviceBuffer& scratch) const;
  void require(Phase phase) const;

  const SharedLowRankSpec spec_;
  const float workers_;
  std::vector<Matrix> matrices_;
  std::vector<Piece> pieces_;
  std::uint64_t tensors_ = 0, inputs_ = 0, right_ = 0;  // of inputs and right: elements
  Memory committed_;
  Memory next_;  // residuals: A during a step
  DeviceBuffer is_unsound_;
  std::vector<float*> gradients_;  // that the table is for
  DeviceBuffer table_;
  kernel::FactorBatch batch_;
  float* left_ = nullptr;
  Phase phase_ = Phase::idle;
};

}  // namespace laconic
