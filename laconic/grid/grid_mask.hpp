// grid/grid_mask.hpp — the gradient of what a sparse codec did to a tensor on its way.
//
// Elements that were not sent changed nothing, so their gradient is zero; those that
// were have it times what decoding multiplied them by. A mask is made in forward, where payloads
// are seen, and kept for backward as the indices of what was sent: few.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace laconic {

class GridMask {
 public:
  // Elements from `begin` on have these factors, beside those that they have already.
  void add(std::int64_t begin, std::span<const float> factors);
  bool is_empty() const { return pieces_.empty(); }
  // A gradient of the tensor, times the factors. Elements that nobody spoke of stay as they are.
  at::Tensor apply(const at::Tensor& gradient) const;

 private:
  struct Piece {
    std::int64_t begin = 0, size = 0;
    at::Tensor indices;  // of those that are not zero
    double factor = 1;
  };
  std::vector<Piece> pieces_;
};

}  // namespace laconic
