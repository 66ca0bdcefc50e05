// model/grid_ops.hpp — the operations of a Transformer whose tensors are spread over a tensor grid:
// differentiable, in the terms of layout/grid_plan.hpp.
//
// Activations are matrices [rows, features] of this rank's samples and columns. Values and
// gradients are those of model/ops.hpp on the whole matrices, up to the order of sums.
// Gradients of parameters go straight into their grad(), in the type that gradients
// add up in; these must be leaves.
//
// Nothing that was gathered is kept for backward, unless GridPlan::keep says so: it is gathered
// again, and memory holds a rank's share and what one map needs at a time. Collectives run in the
// order of autograd, which is the same on all ranks because their graphs are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/grid/grid.hpp"
#include "laconic/layout/grid_plan.hpp"
#include "laconic/model/own_backward.hpp"

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

// All samples of a microbatch, and how many rows of a matrix each has.
struct GridRows {
  std::int64_t samples = 0;
  std::int64_t each = 1;
};

// Where in the model an operation is: collectives of one rank are told apart by it.
struct GridSpot {
  TensorGrid& grid;
  std::int64_t block = 0;
  int place = 0;
  std::int64_t stands_for = 0;  // GridSite::stands_for of what moves
};

// Of what is never encoded: statistics, vectors.
GridSite small_site(const GridSpot& spot, Traffic traffic);

// This rank's samples of so many, when these axes cut them.
Range samples_at(const TensorGrid& grid, const Axes& rows, std::int64_t samples);

// Carries out a move. `cut` are the axes that cut the samples on its finer side. `mask` gets what
// sparse codecs did to x, where that is asked for. Not differentiable.
at::Tensor perform(const GridSpot& spot, const Move& move, const at::Tensor& x,
                   const GridRows& rows, const Axes& cut, Traffic traffic,
                   GridMask* mask = nullptr);

// The same in the background, of the moves that gradients of inputs make: scatters and sums.
TensorGrid::Pending start_perform(const GridSpot& spot, const Move& move, const at::Tensor& x,
                                  const GridRows& rows, const Axes& cut, Traffic traffic);

// One of the maps that take the same input.
struct GridMap {
  at::Tensor weight;               // this rank's part, a leaf
  bool is_out_in = false;          // [outputs, inputs]
  bool is_narrow = false;          // gathered along its last dim
  std::vector<std::int64_t> rows;  // of the dim that is gathered, by member
};

// The maps of a learned code as this rank uses them, both [code, columns]; undefined: what moves is
// no code. Where features are gathered the decoder has those of all members.
struct GridCode {
  at::Tensor encoder, decoder;
  bool is_used() const { return encoder.defined(); }
};
// Of what the maps of one input take, and of what they make, beside each other.
struct GridCodePair {
  GridCode in, out;
};

// x w for each of the maps, without biases. With `deferred` backward leaves the weights' gradients
// to it.
Tensors grid_products(const GridSpot& spot, const LinearPlan& plan, const at::Tensor& x,
                      const std::vector<GridMap>& maps, const GridRows& rows,
                      DeferredWeights* deferred, const GridCodePair& codes = {});

// A vector as this rank holds it, or a matrix whose last dim is cut like one.
struct GridVector {
  at::Tensor value;                // a leaf; its last dim is cut
  std::int64_t parts = 1;          // its last dim are so many things, each of which is cut
  std::vector<std::int64_t> rows;  // of its last dim, by member of those that it is gathered over
};
// All as they are used, gathered in one exchange. Requires: one plan for all.
Tensors gathered_vectors(const GridSpot& spot, const VectorPlan& plan,
                         const std::vector<GridVector>& vectors);

// Norms of rows whose columns are cut by these axes, `width` in all. `bias` may be undefined: then
// it is the RMS norm. Weight and bias are as this rank uses them.
at::Tensor grid_norm(const GridSpot& spot, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double epsilon, const Axes& features,
                     std::int64_t width);

// A table as it lies: its rows on this rank, once gathered over the axes that are.
struct GridTable {
  at::Tensor value;                // a leaf
  std::int64_t first = 0;          // the first row of those that are used here
  std::vector<std::int64_t> rows;  // by member of those that it is gathered over
};

// Rows of the table as a part of the stream. ids: those of the samples that TablePlan::ids cut.
at::Tensor grid_table_rows(const GridSpot& spot, const TablePlan& plan, const GridTable& table,
                           const at::Tensor& ids, const GridRows& rows, const Axes& stream_rows);

// This rank's share of a mean over `all_rows` rows of -log softmax(logits)[target], which is that
// of its rows on one rank of those that have the same, and 0 on the others; backward has all of it.
// logits: [rows, a part of the vocabulary that begins at `first`], cut by these axes, and given
// away. Targets and smoothing are as in cross_entropy() (model/ops.hpp).
struct GridLoss {
  Axes vocabulary;
  std::int64_t first = 0;
  std::int64_t size = 0;  // of the vocabulary
  std::int64_t all_rows = 0;
  double smoothing = 0;
};
at::Tensor grid_cross_entropy(const GridSpot& spot, const at::Tensor& logits,
                              const at::Tensor& targets, const GridLoss& loss);

// The column of each row's largest logit, over all parts of the vocabulary: [rows] int64.
at::Tensor grid_argmax(const GridSpot& spot, const at::Tensor& logits, const Axes& vocabulary,
                       std::int64_t first);

// `loss` where this rank speaks for its rows, 0 elsewhere; its gradient is that of the loss
// everywhere. `rows` are the axes that cut them: along all others ranks have the same.
at::Tensor spoken_loss(const TensorGrid& grid, const at::Tensor& loss, const Axes& rows);

}  // namespace laconic
