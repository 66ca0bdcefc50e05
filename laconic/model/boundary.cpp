#include "laconic/model/boundary.hpp"

#include <algorithm>
#include <optional>

#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

// A parameter as a block sees it.
const Tensor& leaf_of(const Weights& weights, std::int64_t block, std::size_t number) {
  const std::vector<std::size_t>& uses = weights.spec.blocks[static_cast<std::size_t>(block)].uses;
  const auto found = std::ranges::lower_bound(uses, number);
  return weights.leaf(block, static_cast<std::size_t>(found - uses.begin()));
}

struct AnchorTables {
  std::optional<std::size_t> tokens, positions;
};

// Differences of 16-bit numbers would be mostly rounding where an anchor says most of a row.
Tensor wide(const Tensor& x) {
  const bool is_short = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return is_short ? x.to(at::kFloat) : x;
}

// By token and position, wide: [samples, tokens, columns]. Requires: there are tables.
Tensor anchor_of(const Weights& weights, std::int64_t block, const AnchorTables& tables,
                 const StreamRows& at) {
  const Tensor& table = leaf_of(weights, block, *tables.tokens);
  const Tensor rows = wide(table_rows(table, at.ids.flatten()))
                          .view({at.ids.size(0), at.ids.size(1), table.size(1)});
  if (!tables.positions) return rows;
  const Tensor& positions = leaf_of(weights, block, *tables.positions);
  return rows.add(wide(positions.narrow(0, at.first, at.ids.size(1))));
}

Tensor without(const Tensor& rows, const Tensor& anchor) {
  return wide(rows).sub(anchor).to(rows.scalar_type());
}
Tensor with(const Tensor& rows, const Tensor& anchor) {
  return wide(rows).add(anchor).to(rows.scalar_type());
}

}  // namespace

Tensor basis_of(const Weights& weights, const ProjectedSeam& seam, std::int64_t block) {
  if (seam.decoder && block != seam.block) return leaf_of(weights, block, *seam.decoder);
  if (seam.basis) return leaf_of(weights, block, *seam.basis);
  return weights.bases[static_cast<std::size_t>(&seam - weights.spec.projections.data())];
}

Tensor anchored(const Weights& weights, const ProjectedSeam& seam, const StreamRows& x) {
  if (!seam.fixed) return x.rows;
  return without(x.rows, anchor_of(weights, seam.block, {seam.fixed, seam.fixed_at}, x));
}

Tensor project(const Weights& weights, const ProjectedSeam& seam, const StreamRows& x) {
  const Tensor basis = basis_of(weights, seam, seam.block);
  const Tensor c = anchored(weights, seam, x).matmul(basis.t());
  if (!seam.sent) return c;
  return without(c, anchor_of(weights, seam.block, {seam.sent, seam.sent_at}, x));
}

Tensor lift(const Weights& weights, const ProjectedSeam& seam, const StreamRows& c) {
  const std::int64_t block = seam.block + 1;
  const Tensor x = c.rows.matmul(basis_of(weights, seam, block));
  if (seam.fixed) return with(x, anchor_of(weights, block, {seam.fixed, seam.fixed_at}, c));
  if (seam.received)
    return with(x, anchor_of(weights, block, {seam.received, seam.received_at}, c));
  return x;
}

Tensor cross_boundary(const Weights& weights, std::int64_t block, const StreamRows& x) {
  const ProjectedSeam* seam = projection_behind(weights.spec, block);
  if (seam == nullptr) return x.rows;
  return lift(weights, *seam, {project(weights, *seam, x), x.ids, x.first});
}

}  // namespace laconic
