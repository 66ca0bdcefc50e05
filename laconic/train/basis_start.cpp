#include "laconic/train/basis_start.hpp"

#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "laconic/base/error.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/model/boundary.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

using at::Tensor;

// X^T X of the rows before a boundary, where its block is; elsewhere undefined.
Tensor square_before(const ProjectedSeam& seam, const Weights& weights, Pipeline& pipeline,
                     const Pass& pass, const std::vector<Batch>& batches, std::uint64_t& number) {
  Tensor square;
  for (const Batch& batch : batches)
    pipeline.forward(batch, number++, [&](std::int64_t block, const Seam& in) -> Seam {
      if (block != seam.block) return forward_block(weights, block, in, batch, pass);
      const StreamRows x =
          stream_rows(forward_to_boundary(weights, block, in, batch, pass)[0], batch);
      const Tensor y =
          anchored(weights, seam, x).reshape({-1, seam.width}).to(at::kCPU, at::kDouble);
      square = square.defined() ? square.add_(y.t().mm(y)) : y.t().mm(y);
      return {project(weights, seam, x)};
    });
  return square;
}

// What the first replica has found counts for all.
Tensor agreed(const Tensor& mine, const ProjectedSeam& seam, World& world) {
  if (world.is_alone()) return mine;
  const bool speaks = mine.defined() && world.dp_member() == 0;
  for (const Bytes& bytes : world.gather(speaks ? bytes_of_tensor(mine) : ByteView()))
    if (!bytes.empty()) return tensor_from_bytes(bytes, Dtype::f64, {seam.rank, seam.width});
  LACONIC_ASSERT(false, "nobody has found a basis");
  return {};
}

}  // namespace

// Of two signs that with which the largest component is positive.
Tensor principal_directions(const Tensor& square, std::int64_t count) {
  const Tensor vectors = std::get<1>(at::linalg_eigh(square));  // columns, ascending
  Tensor rows = vectors.t().flip(0).narrow(0, 0, count).contiguous();
  for (std::int64_t r = 0; r < count; ++r) {
    Tensor row = rows[r];
    if (row[row.abs().argmax()].item<double>() < 0) row.neg_();
  }
  return rows;
}

void start_bases_by_pca(Weights& weights, Pipeline& pipeline, TensorGrid* grid, World& world,
                        const std::vector<Batch>& batches) {
  const at::NoGradGuard no_grad;
  Pass pass;
  pass.grid = grid;
  if (grid != nullptr) grid->set_exact(true);
  std::uint64_t number = 0;
  for (const ProjectedSeam& seam : weights.spec.projections) {
    const Tensor square = square_before(seam, weights, pipeline, pass, batches, number);
    const Tensor basis =
        agreed(square.defined() ? principal_directions(square, seam.rank) : Tensor(), seam, world);
    for (Parameter& parameter : weights.parameters)
      if (parameter.number == *seam.basis || parameter.number == seam.decoder)
        parameter.value.copy_(basis);
    refresh_copies(weights.parameters);
  }
  if (grid != nullptr) grid->set_exact(false);
}

}  // namespace laconic
