// Moves of a tensor grid. Maps are in grid_products.cpp, vectors and tables in grid_vectors.cpp,
// norms and losses in grid_loss.cpp.
#include "laconic/model/grid_ops.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <numeric>
#include <optional>
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

namespace {

// What a move asks of the grid.
struct MoveCall {
  std::optional<GridCall> call;  // nothing: x stays as it is
  Tensor x = {};
  std::vector<std::int64_t> rows = {};
  GridSite site = {};
};

MoveCall call_of(const GridSpot& spot, const Move& move, const Tensor& x, const GridRows& rows,
                 const Axes& cut, Traffic traffic) {
  const TensorGrid& grid = spot.grid;
  const int members = grid.extent(move.axes);
  MoveCall made{.call = {}, .x = x, .rows = {}, .site = site_of(spot, traffic, x)};
  if (members == 1) return made;
  switch (move.kind) {
    case MoveKind::none:
    case MoveKind::copy: return made;
    case MoveKind::sum: made.call = GridCall::sum; return made;
    case MoveKind::gather_rows:
    case MoveKind::scatter_rows:
      made.call = move.kind == MoveKind::gather_rows ? GridCall::gather : GridCall::scatter;
      made.rows = rows_by_member(grid, cut, move.axes, rows);
      return made;
    case MoveKind::gather_features:
      made.call = GridCall::gather;
      made.rows = equal_rows(x.size(0), members);
      return made;
    case MoveKind::scatter_features:
      made.call = GridCall::scatter;
      made.rows = equal_rows(x.size(0), members);
      made.x = below_each_other(x, members);
      made.site.columns = static_cast<int>(x.size(1) / members);
      return made;
  }
  return made;
}

}  // namespace

Tensor perform(const GridSpot& spot, const Move& move, const Tensor& x, const GridRows& rows,
               const Axes& cut, Traffic traffic, GridMask* mask) {
  const MoveCall made = call_of(spot, move, x, rows, cut, traffic);
  if (!made.call) return x;
  switch (*made.call) {
    case GridCall::sum: return spot.grid.sum(x, move.axes, made.site, mask);
    case GridCall::scatter:
      LACONIC_ASSERT(mask == nullptr || move.kind == MoveKind::scatter_rows,
                     "no map scatters features forward");
      return spot.grid.scatter_sum(made.x, made.rows, move.axes, made.site, mask);
    case GridCall::gather: break;
  }
  const Tensor all = spot.grid.gather(x, made.rows, move.axes, made.site, mask);
  return move.kind == MoveKind::gather_rows ? all
                                            : beside_each_other(all, spot.grid.extent(move.axes));
}

TensorGrid::Pending start_perform(const GridSpot& spot, const Move& move, const Tensor& x,
                                  const GridRows& rows, const Axes& cut, Traffic traffic) {
  const MoveCall made = call_of(spot, move, x, rows, cut, traffic);
  if (!made.call) return spot.grid.start_sum(x, {}, made.site);  // of one rank
  LACONIC_ASSERT(*made.call != GridCall::gather, "gathers are waited for");
  return *made.call == GridCall::sum
             ? spot.grid.start_sum(x, move.axes, made.site)
             : spot.grid.start_scatter_sum(made.x, made.rows, move.axes, made.site);
}

}  // namespace laconic
