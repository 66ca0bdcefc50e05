// Linear maps of a tensor grid and their gradients, in the terms of layout/grid_plan.hpp, with W'
// for the gathered weight and in, out for the two moves:
//
//   forward    X' = in(X)      Y  = out(X' W')
//   backward   G  = out*(dY)   dX = in*(G W'^T)    dW = scatter(X'^T G)
//
// G is brought together once, for both products. X' and W' are so again, unless GridPlan::keep says
// otherwise: kept, they are the larger part of a rank's memory. But while a map is computed the W'
// of the next one is on its way (grid/overlap.hpp). Of dX and dW one is on its way while the other
// is computed: dW first where it moves, until the next map's dW does; dX first where that alone
// moves.
//
// Where activations travel as learned codes, a move is between two maps of the rows, E and D,
// both [code, columns]:
//
//   in(X) = gather(X E^T) D       dX = scatter(dX' D^T) E     dD = Z^T dX'    dE = dZ^T X
//   out(Y) = scatter(Y E^T) D     G = gather(dY D^T) E        dD = Z^T dY     dE = (dZ^T X') W'
//
// so that gradients are as short as codes, and codes of partial sums are added on the way. The last
// product is that of dZ^T and Y, without computing Y again.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <optional>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/code_blocks.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/tensor/learned_map.hpp"

namespace laconic {

namespace {

using at::Tensor;

// Without what autograd knows of them.
GridCode detached(const GridCode& code) {
  if (!code.is_used()) return {};
  return {code.encoder.detach(), code.decoder.detach()};
}

// What the maps of one input have in common, in forward and backward.
struct Products {
  GridSpot spot;
  LinearPlan plan;
  std::vector<GridMap> maps;
  GridRows rows;
  GridCodePair codes;  // detached

  // A weight with the dim that is gathered in front: narrow ones [outputs, inputs] turn round.
  static Tensor in_front(const GridMap& map) {
    const Tensor weight = map.weight.detach();
    return map.is_narrow ? weight.t().contiguous() : weight;
  }
  static bool is_out_in(const GridMap& map) { return map.is_out_in && !map.is_narrow; }
  bool gathers() const { return spot.grid.extent(plan.weight) > 1; }
  bool keeps() const { return spot.grid.plan().keep == GridKeep::gathered; }
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

  // --- moves, of values or of their codes

  GridSpot coded_spot(const GridCode& code) const {
    GridSpot coded = spot;
    if (code.is_used()) coded.stands_for = code.encoder.size(1);
    return coded;
  }
  // Members whose features an input has after the move, each with maps of its own.
  std::int64_t members_in() const {
    return plan.in.kind == MoveKind::gather_features ? spot.grid.extent(plan.in.axes) : 1;
  }
  // What is lost of rows by their codes. Nobody asks in most steps.
  void measure(const Tensor& x, const Tensor& code, const Tensor& decoder) const {
    if (spot.grid.measures_codes()) spot.grid.add_fidelity(x, code.matmul(decoder));
  }
  Tensor own_decoder() const {
    if (members_in() == 1) return codes.in.decoder;
    const std::int64_t here = codes.in.encoder.size(1);
    return codes.in.decoder.narrow(1, here * spot.grid.index(plan.in.axes), here);
  }
  // What moves of an input, moved.
  Tensor moved_input(const Tensor& x, GridMask* mask = nullptr) const {
    const Tensor mine = codes.in.is_used() ? map_down(x, codes.in.encoder) : x;
    if (codes.in.is_used()) measure(x, mine, own_decoder());
    return perform(coded_spot(codes.in), plan.in, mine, rows, plan.from.rows,
                   Traffic::tp_activation, mask);
  }
  Tensor input_from(const Tensor& moved) const {
    return codes.in.is_used() ? times_blocks(moved, codes.in.decoder, members_in()) : moved;
  }
  Tensor moved_output(const Tensor& y, GridMask* mask) const {
    const Tensor mine = codes.out.is_used() ? map_down(y, codes.out.encoder) : y;
    if (codes.out.is_used()) measure(y, mine, codes.out.decoder);
    return perform(coded_spot(codes.out), plan.out, mine, rows, plan.to.rows,
                   Traffic::tp_activation, mask);
  }
  Tensor output_from(const Tensor& moved) const {
    return codes.out.is_used() ? moved.matmul(codes.out.decoder) : moved;
  }
  // The gradient of what moved of an output, moved back.
  Tensor output_back(const Tensor& dy) const {
    const Tensor mine = codes.out.is_used() ? dy.matmul(codes.out.decoder.t()) : dy;
    return perform(coded_spot(codes.out), adjoint(plan.out), mine, rows, plan.to.rows,
                   Traffic::tp_gradient);
  }
  // What leaves of an input's gradient, and how it goes back: now, or in the background.
  Tensor leaving(const Tensor& dx) const {
    return codes.in.is_used() ? times_blocks_back(dx, codes.in.decoder, members_in()) : dx;
  }
  Tensor input_back(const Tensor& leaving) const {
    return perform(coded_spot(codes.in), adjoint(plan.in), leaving, rows, plan.from.rows,
                   Traffic::tp_gradient);
  }
  TensorGrid::Pending start_input_back(const Tensor& leaving) const {
    return start_perform(coded_spot(codes.in), adjoint(plan.in), leaving, rows, plan.from.rows,
                         Traffic::tp_gradient);
  }

  // --- gradients of weights

  // Of this rank's weights, in one.
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

Tensor joined(const Tensors& parts) {
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts, 1);
}

// x W' of all maps.
Tensors multiplied(const Products& products, const Tensor& x, const Tensors& weights) {
  Tensors parts;
  for (std::size_t m = 0; m < weights.size(); ++m)
    parts.push_back(
        matrix_product(x, Products::is_out_in(products.maps[m]) ? weights[m].t() : weights[m]));
  return parts;
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

// What forward leaves for backward.
struct LeftForBackward {
  Tensor x;
  Tensor in_moved;   // where it is kept: what moved of x, moved
  Tensors weights;   // where they are kept: those that were gathered
  Tensor out_code;   // what arrived of an output's code
  GridMask in, out;  // what sparse codecs did; empty: their gradients are straight through
  std::vector<std::int64_t> widths;
};

struct CodeGradients {
  GridCode in, out;
};

// Where several ranks have the same rows of an output each speaks for some of them.
Tensor output_decoder_gradient(const Products& products, const Tensor& code, const Tensor& dy) {
  if (products.plan.out.kind != MoveKind::sum) return code.t().matmul(dy);
  const Axes& axes = products.plan.out.axes;
  const Range mine =
      share_of(code.size(0), products.spot.grid.extent(axes), products.spot.grid.index(axes));
  return code.narrow(0, mine.begin, mine.size()).t().matmul(dy.narrow(0, mine.begin, mine.size()));
}

// G: the gradient of the products, and with codes those of their maps.
Tensor product_gradient(const Products& products, const LeftForBackward& kept, const Tensor& dy,
                        Tensor& moved, CodeGradients& codes) {
  moved = products.output_back(dy);
  if (!products.codes.out.is_used()) return kept.out.apply(moved);
  codes.out.decoder = output_decoder_gradient(products, kept.out_code, dy);
  return moved.matmul(products.codes.out.encoder);
}

// Backward as the head of this file has it. dX comes without the mask of X.
Tensor products_back(const Products& products, const LeftForBackward& kept, const Tensors& dy,
                     CodeGradients& codes, DeferredWeights* deferred) {
  Tensors weights = kept.weights;
  TensorGrid::Pending pending = weights.empty() ? products.start_weights() : TensorGrid::Pending();
  const auto bring_weights = [&] {
    if (weights.empty()) weights = products.weights_from(pending);
  };
  Tensor moved;
  const Tensor all = product_gradient(products, kept, joined(dy), moved, codes);
  std::int64_t at = 0;
  Tensors g;
  for (const Tensor& one : dy) g.push_back(columns_of(all, at, one.size(1)));
  const Tensor in_code = kept.in_moved.defined() ? kept.in_moved : products.moved_input(kept.x);
  const Tensor gathered = products.input_from(in_code);
  const auto leaving = [&] {
    bring_weights();
    const Tensor dx = input_gradient(products, g, weights);
    if (products.codes.in.is_used())
      codes.in.decoder = blocks_gradient(in_code, dx, products.members_in());
    return products.leaving(dx);
  };
  const auto arrived = [&](const Tensor& mine) {
    if (!products.codes.in.is_used()) return mine;
    codes.in.encoder = mine.t().matmul(kept.x);
    return mine.matmul(products.codes.in.encoder);
  };
  if (products.codes.out.is_used()) {
    bring_weights();
    codes.out.encoder = joined(multiplied(products, moved.t().matmul(gathered), weights));
  }
  if (deferred != nullptr) {
    deferred->add([products, gathered, g] { add_products(products, gathered, g); });
    return arrived(products.input_back(leaving()));
  }
  if (!products.gathers()) {
    TensorGrid::Pending on_its_way = products.start_input_back(leaving());
    add_products(products, gathered, g);
    return arrived(on_its_way.get());
  }
  TensorGrid::Pending on_its_way =
      products.start_weight_gradients(weight_gradients(products, gathered, g));
  const Tensor dx = arrived(products.input_back(leaving()));
  products.leave(std::move(on_its_way));
  return dx;
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
                      DeferredWeights* deferred, const GridCodePair& codes) {
  const Products products{spot, plan, maps, rows, {detached(codes.in), detached(codes.out)}};
  LeftForBackward kept;
  kept.x = x.detach();
  Tensors outputs;
  {
    const at::NoGradGuard no_grad;
    TensorGrid::Pending pending = products.start_weights();
    const Tensor in_moved = products.moved_input(kept.x, &kept.in);
    const Tensor gathered = products.input_from(in_moved);
    const Tensors weights = products.weights_from(pending);
    const Tensors parts = multiplied(products, gathered, weights);
    if (products.keeps()) {
      kept.in_moved = in_moved;
      if (!codes.in.is_used()) kept.x = in_moved;  // nobody asks for this rank's part again
      if (products.gathers()) kept.weights = weights;
    }
    for (const Tensor& part : parts) kept.widths.push_back(part.size(1));
    const Tensor moved = products.moved_output(joined(parts), &kept.out);
    if (codes.out.is_used()) kept.out_code = moved;
    const Tensor y = products.output_from(moved);
    std::int64_t at = 0;
    for (const std::int64_t width : kept.widths)
      outputs.push_back(kept.widths.size() == 1 ? y : columns_of(y, at, width).contiguous());
  }
  return with_backward(
      std::move(outputs),
      {x, codes.in.encoder, codes.in.decoder, codes.out.encoder, codes.out.decoder},
      [products, kept, later = handle_of(deferred)](const Tensors& gradients) {
        Tensors dy;
        const std::int64_t rows_here = [&] {
          for (const Tensor& gradient : gradients)
            if (gradient.defined()) return gradient.size(0);
          return kept.x.size(0);
        }();
        for (std::size_t m = 0; m < gradients.size(); ++m)
          dy.push_back(gradients[m].defined()
                           ? gradients[m]
                           : at::zeros({rows_here, kept.widths[m]}, kept.x.options()));
        CodeGradients codes_back;
        const Tensor dx =
            kept.in.apply(products_back(products, kept, dy, codes_back, locked(later)));
        return Tensors{dx, codes_back.in.encoder, codes_back.in.decoder, codes_back.out.encoder,
                       codes_back.out.decoder};
      },
      /*is_needed=*/true);
}

}  // namespace laconic
