// train/flat_blocks.hpp — the parameters of each block as one flat buffer in host memory.
//
// What travels between data-parallel ranks is a buffer per block: few messages,
// and large ones. A parameter belongs to the held block whose backward completes
// its gradient; the tied embedding thus to block 0, though the head adds to it
// first, or to the head, where that alone is held.
//
// Buffers are numbered as the blocks of the whole model; those of blocks that are
// not held are empty. A predicate chooses parameters: what it leaves out is in no
// buffer, travels in no message, and is not touched by anything here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "laconic/model/gpt.hpp"
#include "laconic/reduce/gradient_sum.hpp"

namespace laconic {

using Choose = bool (*)(const Parameter& parameter);
constexpr bool choose_all(const Parameter&) {
  return true;
}
constexpr bool choose_untied(const Parameter& parameter) {
  return !is_tied(parameter);
}

// What lies in the buffer of each block.
std::vector<BlockLayout> block_layouts(const Gpt& gpt, Choose choose = choose_all);

class FlatBlocks {
 public:
  explicit FlatBlocks(const Gpt& gpt,
                      Choose choose = choose_all);  // zeros, dtype of the parameters

  std::size_t size() const { return buffers_.size(); }
  bool is_empty(std::size_t block) const { return members_[block].empty(); }
  std::byte* data(std::size_t block) const;
  const at::Tensor& buffer(std::size_t block) const { return buffers_[block]; }
  // Where parameter `p` lies, in its own shape; undefined, if it was not chosen.
  const at::Tensor& part(std::size_t p) const { return parts_[p]; }

  // Copies the gradients of the block's parameters here; one that has none counts as zero.
  void take_gradients(const Gpt& gpt, std::size_t block) const;
  // What the buffers hold becomes the gradients: on the CPU without a copy.
  void give_gradients(const Gpt& gpt) const;

 private:
  std::vector<at::Tensor> buffers_;                // by block, 1-D
  std::vector<std::vector<std::size_t>> members_;  // by block: parameters
  std::vector<at::Tensor> parts_;                  // by parameter: views of the buffers
};

}  // namespace laconic
