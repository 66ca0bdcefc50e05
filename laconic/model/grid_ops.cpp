// Moves of a tensor grid. Maps are in grid_products.cpp, vectors and tables in grid_vectors.cpp,
// norms and losses in grid_loss.cpp.
#include "laconic/model/grid_ops.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

GridSite site_of(const GridSpot& spot, Traffic traffic, const Tensor& x) {
  return {.traffic = traffic,
          .block = spot.block,
          .place = spot.place,
          .is_small = false,
          .columns = static_cast<int>(x.dim() == 2 ? x.size(1) : 0),
          .stands_for = static_cast<int>(spot.stands_for)};
}

// Rows of a matrix by member along the last of the axes that cut its samples.
std::vector<std::int64_t> rows_by_member(const TensorGrid& grid, const Axes& cut, const Axes& along,
                                         const GridRows& rows) {
  Axes outer = cut;
  outer.resize(cut.size() - along.size());
  const int members = grid.extent(along), first = grid.index(outer) * members;
  std::vector<std::int64_t> counts;
  for (int m = 0; m < members; ++m)
    counts.push_back(share_of(rows.samples, grid.extent(cut), first + m).size() * rows.each);
  return counts;
}

// [members * rows, columns] as [rows, members * columns], and back.
Tensor beside_each_other(const Tensor& x, std::int64_t members) {
  const std::int64_t rows = x.size(0) / members, columns = x.size(1);
  return x.view({members, rows, columns}).permute({1, 0, 2}).reshape({rows, members * columns});
}
Tensor below_each_other(const Tensor& x, std::int64_t members) {
  const std::int64_t rows = x.size(0), columns = x.size(1) / members;
  return x.view({rows, members, columns}).permute({1, 0, 2}).reshape({rows * members, columns});
}

}  // namespace

GridSite small_site(const GridSpot& spot, Traffic traffic) {
  return {.traffic = traffic, .block = spot.block, .place = spot.place, .is_small = true};
}

Range samples_at(const TensorGrid& grid, const Axes& rows, std::int64_t samples) {
  return share_of(samples, grid.extent(rows), grid.index(rows));
}

Tensor perform(const GridSpot& spot, const Move& move, const Tensor& x, const GridRows& rows,
               const Axes& cut, Traffic traffic, GridMask* mask) {
  TensorGrid& grid = spot.grid;
  const std::int64_t members = grid.extent(move.axes);
  if (members == 1) return x;
  const GridSite site = site_of(spot, traffic, x);
  switch (move.kind) {
    case MoveKind::none:
    case MoveKind::copy: return x;
    case MoveKind::sum: return grid.sum(x, move.axes, site, mask);
    case MoveKind::gather_rows:
      return grid.gather(x, rows_by_member(grid, cut, move.axes, rows), move.axes, site, mask);
    case MoveKind::scatter_rows:
      return grid.scatter_sum(x, rows_by_member(grid, cut, move.axes, rows), move.axes, site, mask);
    case MoveKind::gather_features:
      return beside_each_other(
          grid.gather(x, equal_rows(x.size(0), static_cast<int>(members)), move.axes, site, mask),
          members);
    case MoveKind::scatter_features: {
      LACONIC_ASSERT(mask == nullptr, "no map scatters features forward");
      GridSite part = site;
      part.columns = static_cast<int>(x.size(1) / members);
      return grid.scatter_sum(below_each_other(x, members),
                              equal_rows(x.size(0), static_cast<int>(members)), move.axes, part);
    }
  }
  return x;
}

TensorGrid::Pending start_perform(const GridSpot& spot, const Move& move, const Tensor& x,
                                  const GridRows& rows, const Axes& cut, Traffic traffic) {
  TensorGrid& grid = spot.grid;
  const int members = grid.extent(move.axes);
  GridSite site = site_of(spot, traffic, x);
  switch (move.kind) {
    case MoveKind::scatter_rows:
      return grid.start_scatter_sum(x, rows_by_member(grid, cut, move.axes, rows), move.axes, site);
    case MoveKind::scatter_features:
      site.columns = static_cast<int>(x.size(1) / members);
      return grid.start_scatter_sum(below_each_other(x, members), equal_rows(x.size(0), members),
                                    move.axes, site);
    case MoveKind::sum: return grid.start_sum(x, move.axes, site);
    default: return grid.start_sum(x, {}, site);  // stays
  }
}

}  // namespace laconic
