// Moves, vectors and tables of a tensor grid. Maps are in grid_products.cpp, norms and losses in
// grid_loss.cpp.
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

// --- vectors

namespace {

// [.., parts * n] as [rows, n], where a row is whatever stands before the last, cut dim.
Tensor by_cut_rows(const Tensor& x, std::int64_t parts) {
  return x.reshape({-1, x.size(-1) / parts});
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Elements that each member brings of all vectors.
std::vector<std::int64_t> flat_rows(const std::vector<GridVector>& vectors) {
  std::vector<std::int64_t> flat(vectors.front().rows.size(), 0);
  for (const GridVector& v : vectors) {
    const std::int64_t rows = by_cut_rows(v.value.detach(), v.parts).size(0);
    for (std::size_t m = 0; m < flat.size(); ++m) flat[m] += rows * v.rows[m];
  }
  return flat;
}

std::vector<std::int64_t> gathered_sizes(const GridVector& v) {
  std::vector<std::int64_t> sizes = v.value.sizes().vec();
  sizes.back() = v.parts * total(v.rows);
  return sizes;
}

}  // namespace

Tensors gathered_vectors(const GridSpot& spot, const VectorPlan& plan,
                         const std::vector<GridVector>& vectors) {
  TensorGrid& grid = spot.grid;
  const std::size_t members = vectors.front().rows.size();
  Tensors outputs;
  {
    const at::NoGradGuard no_grad;
    Tensors flat;
    for (const GridVector& v : vectors) flat.push_back(v.value.detach().reshape({-1}));
    const Tensor all = grid.gather(at::cat(flat), flat_rows(vectors), plan.gather,
                                   small_site(spot, Traffic::tp_weight));
    std::vector<Tensors> parts(vectors.size());
    std::int64_t at = 0;
    for (std::size_t member = 0; member < members; ++member)
      for (std::size_t i = 0; i < vectors.size(); ++i) {
        const std::int64_t rows =
            by_cut_rows(flat[i].view(vectors[i].value.sizes()), vectors[i].parts).size(0);
        const std::int64_t size = rows * vectors[i].rows[member];
        parts[i].push_back(all.narrow(0, at, size).view({rows, vectors[i].rows[member]}));
        at += size;
      }
    for (std::size_t i = 0; i < vectors.size(); ++i)
      outputs.push_back(at::cat(parts[i], 1).view(gathered_sizes(vectors[i])));
  }
  return with_backward(
      std::move(outputs), {},
      [spot, plan, vectors, members](const Tensors& gradients) {
        Tensors rows, flat;
        for (std::size_t i = 0; i < vectors.size(); ++i) {
          const auto options = vectors[i].value.options().requires_grad(false);
          const Tensor d = gradients[i].defined() ? gradients[i]
                                                  : at::zeros(gathered_sizes(vectors[i]), options);
          rows.push_back(by_cut_rows(full_length(d), vectors[i].parts));
        }
        std::vector<std::int64_t> from(vectors.size(), 0);
        for (std::size_t member = 0; member < members; ++member)
          for (std::size_t i = 0; i < vectors.size(); ++i) {
            flat.push_back(rows[i].narrow(1, from[i], vectors[i].rows[member]).reshape({-1}));
            from[i] += vectors[i].rows[member];
          }
        Tensor mine = spot.grid.scatter_sum(at::cat(flat), flat_rows(vectors), plan.gather,
                                            small_site(spot, Traffic::tp_weight));
        mine = spot.grid.sum(mine, plan.copy, small_site(spot, Traffic::tp_weight));
        std::int64_t at = 0;
        for (const GridVector& v : vectors) {
          add_to_grad(v.value, mine.narrow(0, at, v.value.numel()).clone());
          at += v.value.numel();
        }
        return Tensors();
      },
      /*is_needed=*/true);
}

// --- tables

Tensor grid_table_rows(const GridSpot& spot, const TablePlan& plan, const GridTable& table,
                       const Tensor& ids, const GridRows& rows, const Axes& stream_rows) {
  TensorGrid& grid = spot.grid;
  const GridSite site = {.traffic = Traffic::tp_weight, .block = spot.block, .place = spot.place};
  Tensor here, outside, y;
  {
    const at::NoGradGuard no_grad;
    const Tensor all = grid.gather(table.value.detach(), table.rows, plan.lookup_weight, site);
    here = ids.flatten().sub(table.first);
    outside = here.lt(0).logical_or(here.ge(all.size(0)));
    here = here.masked_fill(outside, 0);
    const Tensor found = all.size(0) == 0
                             ? at::zeros({here.size(0), all.size(1)}, all.options())
                             : all.index_select(0, here).masked_fill_(outside.unsqueeze(1), 0);
    y = perform(spot, plan.lookup_out, found, rows, stream_rows, Traffic::tp_activation);
  }
  return with_backward(
      {y}, {},
      [=](const Tensors& gradients) {
        const std::int64_t size = total(table.rows);
        Tensor dy = perform(spot, adjoint(plan.lookup_out), gradients[0], rows, stream_rows,
                            Traffic::tp_gradient);
        dy = full_length(dy);
        Tensor gradient = at::zeros({size, dy.size(1)}, dy.options());
        if (size > 0) gradient.index_add_(0, here, dy.masked_fill(outside.unsqueeze(1), 0));
        add_to_grad(table.value,
                    spot.grid.scatter_sum(gradient, table.rows, plan.lookup_weight, site));
        return Tensors();
      },
      /*is_needed=*/true)[0];
}

}  // namespace laconic
