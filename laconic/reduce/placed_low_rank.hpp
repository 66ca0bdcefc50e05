// reduce/placed_low_rank.hpp — PowerSGD's mathematics where the gradients are, on the host or on a
// GPU, over flat sums.
//
// On a GPU DeviceLowRank does it, but for steps that measure fidelity, whose gradients are copied
// to SharedLowRank and back. What is remembered is with the one that did the last step. Either way
// it gives sums, with the same bits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "laconic/reduce/device_low_rank.hpp"
#include "laconic/reduce/flat_sum.hpp"
#include "laconic/reduce/shared_low_rank.hpp"

namespace laconic {

class PlacedLowRank {
 public:
  // Requires: as SharedLowRank's.
  PlacedLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors, int members,
                bool is_on_device);

  SharedLowRank::Counts counts() const { return shared_.counts(); }

  // Moves what is remembered to where the next step is done. Requires: no step is under way.
  void settle();
  // The phases of a step. Gradients by tensor; the sums come to lie there.
  void begin(std::span<float* const> gradients, FlatSum& raw, FlatSum& left);
  void project(FlatSum& left, FlatSum& right);
  void finish(FlatSum& raw, FlatSum& right);
  void commit();
  void abandon();

  // As SharedLowRank's.
  void measure_fidelity(Fidelity* into);
  NamedFloats save() const;
  void load(const NamedFloats& state);

 private:
  void copy_gradients();
  void finish_on_host(FlatSum& raw, FlatSum& right);

  const SharedLowRankSpec spec_;
  const std::vector<NamedTensor> tensors_;
  const int members_;
  const bool is_on_device_;
  bool is_measured_ = false;
  SharedLowRank shared_;
  std::unique_ptr<DeviceLowRank> device_;  // null: the host does it
  // The present step's, by tensor.
  std::vector<float*> gradients_;
  std::vector<float*> host_gradients_;  // the same, or copies of those of a GPU
  std::vector<float> copies_;
};

}  // namespace laconic
