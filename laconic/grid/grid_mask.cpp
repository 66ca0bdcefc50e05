#include "laconic/grid/grid_mask.hpp"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

namespace laconic {

void GridMask::add(std::int64_t begin, std::span<const float> factors) {
  std::vector<std::int64_t> indices;
  Piece piece{.begin = begin, .size = static_cast<std::int64_t>(factors.size()), .indices = {}};
  for (std::size_t i = 0; i < factors.size(); ++i)
    if (factors[i] != 0) {
      indices.push_back(static_cast<std::int64_t>(i));
      piece.factor = factors[i];  // one for all of a payload
    }
  piece.indices = at::tensor(indices, at::kLong);
  pieces_.push_back(std::move(piece));
}

at::Tensor GridMask::apply(const at::Tensor& gradient) const {
  if (pieces_.empty()) return gradient;
  const at::NoGradGuard no_grad;
  const at::Tensor masked = gradient.contiguous().clone();
  const at::Tensor flat = masked.view(-1);
  for (const Piece& piece : pieces_) {
    at::Tensor part = flat.narrow(0, piece.begin, piece.size);
    const at::Tensor indices = piece.indices.to(part.device());
    const at::Tensor kept = part.index_select(0, indices);
    part.zero_();
    part.index_copy_(0, indices, piece.factor == 1 ? kept : kept.mul(piece.factor));
  }
  return masked;
}

}  // namespace laconic
