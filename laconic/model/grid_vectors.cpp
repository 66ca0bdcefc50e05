// Vectors and tables of a tensor grid (model/grid_ops.hpp).
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <numeric>
#include <utility>

#include "laconic/grid/overlap.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

}  // namespace

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

Tensor flat_of(const std::vector<GridVector>& vectors) {
  Tensors flat;
  for (const GridVector& v : vectors) flat.push_back(v.value.detach().reshape({-1}));
  return at::cat(flat);
}

GridOverlap::Source source_of(const GridSpot& spot, const VectorPlan& plan,
                              const std::vector<GridVector>& vectors) {
  Tensors from;
  for (const GridVector& v : vectors) from.push_back(v.value);
  return {.place = {spot.block, spot.place},
          .is_small = true,
          .from = std::move(from),
          .start = [spot, plan, vectors](std::uint8_t urgency) {
            const at::NoGradGuard no_grad;
            GridSite site = small_site(spot, Traffic::tp_weight);
            site.urgency = urgency;
            return spot.grid.start_gather(flat_of(vectors), flat_rows(vectors), plan.gather, site);
          }};
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
    const Tensor all = grid.extent(plan.gather) > 1
                           ? spot.grid.overlap().gather(source_of(spot, plan, vectors)).get()
                           : flat_of(vectors);
    std::vector<Tensors> parts(vectors.size());
    std::int64_t at = 0;
    for (std::size_t member = 0; member < members; ++member)
      for (std::size_t i = 0; i < vectors.size(); ++i) {
        const std::int64_t rows = by_cut_rows(vectors[i].value.detach(), vectors[i].parts).size(0);
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

namespace {

Tensor gathered_table(const GridSpot& spot, const TablePlan& plan, const GridTable& table,
                      const GridSite& site) {
  const Tensor value = table.value.detach();
  if (spot.grid.extent(plan.lookup_weight) == 1) return value;
  const auto start = [spot, plan, table, site](std::uint8_t urgency) {
    GridSite sooner = site;
    sooner.urgency = urgency;
    return spot.grid.start_gather(table.value.detach(), table.rows, plan.lookup_weight, sooner);
  };
  return spot.grid.overlap()
      .gather({.place = {spot.block, spot.place}, .from = {table.value}, .start = start})
      .get();
}

}  // namespace

Tensor grid_table_rows(const GridSpot& spot, const TablePlan& plan, const GridTable& table,
                       const Tensor& ids, const GridRows& rows, const Axes& stream_rows) {
  const GridSite site = {.traffic = Traffic::tp_weight, .block = spot.block, .place = spot.place};
  Tensor here, outside, y;
  {
    const at::NoGradGuard no_grad;
    const Tensor all = gathered_table(spot, plan, table, site);
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
