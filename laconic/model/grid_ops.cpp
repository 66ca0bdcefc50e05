// Moves and maps of a tensor grid. Vectors and tables are in grid_vectors.cpp, norms and losses in
// grid_loss.cpp.
//
// A linear map and its gradient, in the terms of layout/grid_plan.hpp, with W' for the gathered
// weight and _in, _out for the two moves:
//
//   forward    X' = in(X)      Y  = out(X' W')
//   backward   G  = out*(dY)   dX = in*(G W'^T)    dW = scatter(X'^T G)
//
// G is brought together once, for both products. X' and W' are so again: kept, they would be
// the larger part of a rank's memory. But while a map is computed the W' of the next one is on its
// way (grid/overlap.hpp). Of dX and dW one is on its way while the other is computed: dW first
// where it moves, until the next map's dW does; dX first where that alone moves.
#include "laconic/model/grid_ops.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

GridSite site_of(const GridSpot& spot, Traffic traffic, const Tensor& x) {
  return {.traffic = traffic,
          .block = spot.block,
          .place = spot.place,
          .is_small = false,
          .columns = static_cast<int>(x.dim() == 2 ? x.size(1) : 0)};
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

// --- maps

namespace {

// What the maps of one input have in common, in forward and backward.
struct Products {
  GridSpot spot;
  LinearPlan plan;
  std::vector<GridMap> maps;
  GridRows rows;

  // A weight with the dim that is gathered in front: narrow ones [outputs, inputs] turn round.
  static Tensor in_front(const GridMap& map) {
    const Tensor weight = map.weight.detach();
    return map.is_narrow ? weight.t().contiguous() : weight;
  }
  static bool is_out_in(const GridMap& map) { return map.is_out_in && !map.is_narrow; }
  bool gathers() const { return spot.grid.extent(plan.weight) > 1; }
  // Maps of one input have equally many columns when they are [outputs, inputs]: together they are
  // one matrix. Those that are not are alone. Gradients of weights are waited for last.
  GridSite weight_site(std::uint8_t urgency) const {
    const std::int64_t columns = in_front(maps.front()).size(1);
    for (const GridMap& map : maps)
      LACONIC_ASSERT(in_front(map).size(1) == columns, "maps of one input, of different columns");
    return {.traffic = Traffic::tp_weight,
            .block = spot.block,
            .place = spot.place,
            .columns = static_cast<int>(columns),
            .urgency = urgency};
  }
  static constexpr std::uint8_t kLast = 2;
  // Elements of all weights together, by member.
  std::vector<std::int64_t> flat_rows() const {
    std::vector<std::int64_t> flat(maps.front().rows.size(), 0);
    for (const GridMap& map : maps) {
      const std::int64_t each = in_front(map).size(1);
      for (std::size_t m = 0; m < flat.size(); ++m) flat[m] += map.rows[m] * each;
    }
    return flat;
  }

  TensorGrid::Pending start_weights() const {
    if (!gathers()) return {};
    Tensors from;
    for (const GridMap& map : maps) from.push_back(map.weight);
    return spot.grid.overlap().gather(
        {.place = {spot.block, spot.place},
         .from = std::move(from),
         .start = [*this](std::uint8_t urgency) { return start_weights_now(urgency); }});
  }
  TensorGrid::Pending start_weights_now(std::uint8_t urgency) const {
    const at::NoGradGuard no_grad;
    Tensors flat;
    for (const GridMap& map : maps) flat.push_back(in_front(map).reshape({-1}));
    return spot.grid.start_gather(flat.size() == 1 ? flat[0] : at::cat(flat), flat_rows(),
                                  plan.weight, weight_site(urgency));
  }
  // From what came: member after member, map after map.
  Tensors weights_from(TensorGrid::Pending& pending) const {
    if (!gathers()) {
      Tensors weights;
      for (const GridMap& map : maps) weights.push_back(in_front(map));
      return weights;
    }
    const Tensor flat = pending.get();
    if (maps.size() == 1) return {flat.view({-1, in_front(maps[0]).size(1)})};
    std::vector<Tensors> parts(maps.size());
    std::int64_t at = 0;
    for (std::size_t member = 0; member < maps.front().rows.size(); ++member)
      for (std::size_t m = 0; m < maps.size(); ++m) {
        const std::int64_t each = in_front(maps[m]).size(1), rows = maps[m].rows[member];
        parts[m].push_back(flat.narrow(0, at, rows * each).view({rows, each}));
        at += rows * each;
      }
    Tensors weights;
    for (const Tensors& part : parts) weights.push_back(at::cat(part));
    return weights;
  }
  // The other way round: what every member gets of each map's gradient.
  Tensor flattened(const Tensors& gradients) const {
    Tensors parts;
    std::vector<std::int64_t> at(maps.size(), 0);
    for (std::size_t member = 0; member < maps.front().rows.size(); ++member)
      for (std::size_t m = 0; m < maps.size(); ++m) {
        const std::int64_t rows = maps[m].rows[member];
        parts.push_back(gradients[m].narrow(0, at[m], rows).reshape({-1}));
        at[m] += rows;
      }
    return at::cat(parts);
  }

  Tensor input(const Tensor& x, GridMask* mask = nullptr) const {
    return perform(spot, plan.in, x, rows, plan.from.rows, Traffic::tp_activation, mask);
  }
  Tensor output(const Tensor& y, GridMask* mask) const {
    return perform(spot, plan.out, y, rows, plan.to.rows, Traffic::tp_activation, mask);
  }
  Tensor output_back(const Tensor& dy) const {
    return perform(spot, adjoint(plan.out), dy, rows, plan.to.rows, Traffic::tp_gradient);
  }
  Tensor input_back(const Tensor& dx) const {
    return perform(spot, adjoint(plan.in), dx, rows, plan.from.rows, Traffic::tp_gradient);
  }

  // input_back() in the background.
  TensorGrid::Pending start_input_back(const Tensor& dx) const {
    const Move move = adjoint(plan.in);
    TensorGrid& grid = spot.grid;
    const int members = grid.extent(move.axes);
    GridSite site = site_of(spot, Traffic::tp_gradient, dx);
    switch (move.kind) {
      case MoveKind::scatter_rows:
        return grid.start_scatter_sum(dx, rows_by_member(grid, plan.from.rows, move.axes, rows),
                                      move.axes, site);
      case MoveKind::scatter_features:
        site.columns = static_cast<int>(dx.size(1) / members);
        return grid.start_scatter_sum(below_each_other(dx, members),
                                      equal_rows(dx.size(0), members), move.axes, site);
      case MoveKind::sum: return grid.start_sum(dx, move.axes, site);
      default: return grid.start_sum(dx, {}, site);  // stays
    }
  }

  // Gradients of this rank's weights, in one.
  void add_weight_gradients(const Tensor& mine) const {
    const at::NoGradGuard no_grad;
    std::int64_t at = 0;
    for (const GridMap& map : maps) {
      const Tensor front = in_front(map);
      add_gradient(map, mine.narrow(0, at, front.numel()).view(front.sizes()));
      at += front.numel();
    }
  }
  static void add_gradient(const GridMap& map, const Tensor& gradient) {
    add_to_grad(map.weight, map.is_narrow ? gradient.t().contiguous() : gradient);
  }
  // Requires: gathers().
  TensorGrid::Pending start_weight_gradients(const Tensors& gradients) const {
    return spot.grid.start_scatter_sum(flattened(gradients), flat_rows(), plan.weight,
                                       weight_site(kLast));
  }
  // They are added when they have come, by GridOverlap::settle() at the latest.
  void leave(TensorGrid::Pending pending) const {
    spot.grid.overlap().leave(std::move(pending), [products = *this](const Tensor& mine) {
      products.add_weight_gradients(mine);
    });
  }
};

Tensor columns_of(const Tensor& all, std::int64_t& at, std::int64_t width) {
  const Tensor part = all.narrow(1, at, width);
  at += width;
  return part;
}

// dW of all maps from X' and G.
Tensors weight_gradients(const Products& products, const Tensor& x, const Tensors& g) {
  Tensors gradients;
  for (std::size_t m = 0; m < g.size(); ++m)
    gradients.push_back(Products::is_out_in(products.maps[m]) ? weight_gradient(g[m], x)
                                                              : weight_gradient(x, g[m]));
  return gradients;
}

// The same, brought to where the weights are.
void add_products(const Products& products, const Tensor& x, const Tensors& g) {
  const Tensors gradients = weight_gradients(products, x, g);
  if (products.gathers()) return products.leave(products.start_weight_gradients(gradients));
  for (std::size_t m = 0; m < g.size(); ++m) Products::add_gradient(products.maps[m], gradients[m]);
}

Tensor input_gradient(const Products& products, const Tensors& g, const Tensors& weights) {
  Tensor dx;
  for (std::size_t m = 0; m < g.size(); ++m) {
    const Tensor part =
        matrix_product(g[m], Products::is_out_in(products.maps[m]) ? weights[m] : weights[m].t());
    dx = dx.defined() ? dx.add_(part) : part;
  }
  return dx;
}

// What sparse codecs did to inputs and outputs on their way; empty: their gradients are straight
// through.
struct MoveMasks {
  GridMask in, out;
};

// Backward as the head of this file has it; dX is without the mask of X.
Tensor gathered_back(const Products& products, const Tensor& x, const Tensors& dy,
                     const GridMask& mask, DeferredWeights* deferred) {
  TensorGrid::Pending pending = products.start_weights();
  const Tensor all =
      mask.apply(products.output_back(dy.size() == 1 ? dy[0].contiguous() : at::cat(dy, 1)));
  std::int64_t at = 0;
  Tensors g;
  for (const Tensor& one : dy) g.push_back(columns_of(all, at, one.size(1)));
  const Tensor gathered = products.input(x);
  if (deferred != nullptr) {
    deferred->add([products, gathered, g] { add_products(products, gathered, g); });
    return products.input_back(input_gradient(products, g, products.weights_from(pending)));
  }
  if (!products.gathers()) {
    TensorGrid::Pending leaving =
        products.start_input_back(input_gradient(products, g, products.weights_from(pending)));
    add_products(products, gathered, g);
    return leaving.get();
  }
  TensorGrid::Pending leaving =
      products.start_weight_gradients(weight_gradients(products, gathered, g));
  const Tensor dx =
      products.input_back(input_gradient(products, g, products.weights_from(pending)));
  products.leave(std::move(leaving));
  return dx;
}

Tensor products_back(const Products& products, const Tensor& x, const Tensors& dy,
                     const MoveMasks& masks, DeferredWeights* deferred) {
  return masks.in.apply(gathered_back(products, x, dy, masks.out, deferred));
}

// The graph may outlive who takes what is left for later, as in model/linear.cpp.
using LaterHandle = std::optional<std::weak_ptr<DeferredWeights>>;

LaterHandle handle_of(DeferredWeights* deferred) {
  if (deferred == nullptr) return std::nullopt;
  return deferred->handle();
}

DeferredWeights* locked(const LaterHandle& handle) {
  if (!handle) return nullptr;
  const std::shared_ptr<DeferredWeights> deferred = handle->lock();
  LACONIC_ASSERT(deferred, "backward of maps whose DeferredWeights has gone");
  return deferred.get();
}

}  // namespace

Tensors grid_products(const GridSpot& spot, const LinearPlan& plan, const Tensor& x,
                      const std::vector<GridMap>& maps, const GridRows& rows,
                      DeferredWeights* deferred) {
  const Products products{spot, plan, maps, rows};
  std::vector<std::int64_t> widths;
  MoveMasks masks;
  Tensor y;
  {
    const at::NoGradGuard no_grad;
    TensorGrid::Pending pending = products.start_weights();
    const Tensor gathered = products.input(x.detach(), &masks.in);
    const Tensors weights = products.weights_from(pending);
    Tensors parts;
    for (std::size_t m = 0; m < maps.size(); ++m) {
      parts.push_back(
          matrix_product(gathered, Products::is_out_in(maps[m]) ? weights[m].t() : weights[m]));
      widths.push_back(parts.back().size(1));
    }
    y = products.output(parts.size() == 1 ? parts[0] : at::cat(parts, 1), &masks.out);
  }
  Tensors outputs;
  std::int64_t at = 0;
  {
    const at::NoGradGuard no_grad;
    for (const std::int64_t width : widths)
      outputs.push_back(widths.size() == 1 ? y : columns_of(y, at, width).contiguous());
  }
  return with_backward(
      std::move(outputs), {x},
      [products, x = x.detach(), widths, masks,
       later = handle_of(deferred)](const Tensors& gradients) {
        Tensors dy;
        for (std::size_t m = 0; m < gradients.size(); ++m)
          dy.push_back(gradients[m].defined() ? gradients[m]
                                              : at::zeros({x.size(0), widths[m]}, x.options()));
        return Tensors{products_back(products, x, dy, masks, locked(later))};
      },
      /*is_needed=*/true);
}

}  // namespace laconic
