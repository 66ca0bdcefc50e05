// model/boundary.hpp — the projected boundaries of a model (architecture/projection.hpp), computed.
//
// The block before a boundary puts out coordinates, and the one behind it takes them: project() is
// the end of the one, lift() the beginning of the other, each with the parameters of its own block.
// Whether a message lies between the two is nobody's business here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "laconic/model/weights.hpp"

namespace laconic {

// Rows of the stream and what their anchors are found by.
struct StreamRows {
  at::Tensor rows;         // [samples, tokens, width or rank]
  at::Tensor ids;          // [samples, tokens]
  std::int64_t first = 0;  // position of the first token
};

// The directions of a boundary, [rank, width], as its block sees them: that before it or behind it,
// which of learned maps are E and D.
// Requires: the block is held.
at::Tensor basis_of(const Weights& weights, const ProjectedSeam& seam, std::int64_t block);

// What is projected: rows less their anchor, where that is known before.
at::Tensor anchored(const Weights& weights, const ProjectedSeam& seam, const StreamRows& x);
// [samples, tokens, width] -> [samples, tokens, rank].
at::Tensor project(const Weights& weights, const ProjectedSeam& seam, const StreamRows& x);
// And back.
at::Tensor lift(const Weights& weights, const ProjectedSeam& seam, const StreamRows& c);

// One after the other, where the boundary behind `block` is projected; otherwise the rows. For
// decoders, which have all blocks.
at::Tensor cross_boundary(const Weights& weights, std::int64_t block, const StreamRows& x);

}  // namespace laconic
