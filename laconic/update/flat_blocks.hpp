// update/flat_blocks.hpp — the parameters of each block as one flat buffer, in host memory or on
// the parameters' device.
//
// What travels between data-parallel ranks is a buffer per block: few messages,
// and large ones. A parameter belongs to the held block that completes its gradient
// (model/weights.hpp), even if others use it, too.
//
// Buffers are numbered as the blocks of the whole model; those of blocks that are
// not held are empty. Parameters that are left out, and frozen ones, are in no buffer, travel in no
// message, and are not touched by anything here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <set>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/reduce/gradient_sum.hpp"

namespace laconic {

using ParameterNumbers = std::set<std::size_t>;

// What lies in the buffer of each block.
std::vector<BlockLayout> block_layouts(const Weights& weights,
                                       const ParameterNumbers& left_out = {});

class FlatBlocks {
 public:
  // Zeros, in the type that gradients add up in.
  explicit FlatBlocks(const Weights& weights, const ParameterNumbers& left_out = {},
                      at::Device device = at::kCPU);

  std::size_t size() const { return buffers_.size(); }
  at::Device device() const { return device_; }
  bool is_empty(std::size_t block) const { return members_[block].empty(); }
  // Places of the parameters in a block's buffer.
  const std::vector<std::size_t>& members(std::size_t block) const { return members_[block]; }
  std::byte* data(std::size_t block) const;
  const at::Tensor& buffer(std::size_t block) const { return buffers_[block]; }
  // Where the parameter at place `p` lies, in its own shape; undefined, if it was left out.
  const at::Tensor& part(std::size_t p) const { return parts_[p]; }

  // Copies the gradients of the block's parameters here; one that has none counts as zero.
  void take_gradients(const Weights& weights, std::size_t block) const;
  // What the buffers hold becomes the gradients: on the CPU without a copy.
  void give_gradients(Weights& weights) const;

 private:
  at::Device device_;
  std::vector<at::Tensor> buffers_;                // by block, 1-D
  std::vector<std::vector<std::size_t>> members_;  // by block: places of parameters
  std::vector<at::Tensor> parts_;                  // by place: views of the buffers
};

// A parameter's gradient in a buffer: its shape, in the type that gradients add up in.
TensorSpec sum_spec_of(const Weights& weights, const Parameter& parameter);

// `into` becomes the gradient, or zeros, if there is none.
void copy_gradient(const Parameter& parameter, const at::Tensor& into);

}  // namespace laconic
