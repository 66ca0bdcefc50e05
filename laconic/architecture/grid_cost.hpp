// architecture/grid_cost.hpp — what a rank of a tensor grid receives for one microbatch, counted.
//
// Elements are those that a rank receives from others, as formulas of papers count
// them: an all-gather of shards of z elements over g ranks, and a reduce-scatter
// that makes such a shard, (g - 1) z; an all-reduce of z elements 2 (g - 1) z / g.
// Along axes whose sizes are all 1 nothing is called.
//
// What is computed as one is counted as one:
//
//   maps      those that take the same input are one map with all their outputs: the input is
//             gathered once, the weights in one all-gather. A model does not say which those
//             are. They are maps `up` of a block with as many inputs and nothing but
//             vectors of inner activations between them: queries, keys and values, or gate and up.
//             Attention to a memory is the exception, and known by its name "encoder_attn":
//             its queries take the stream, its keys and values the memory.
//   vectors   all of a block that are gathered over the same axes, in one all-gather, and their
//             gradients in one all-reduce where several ranks hold the same. A table of
//             positions is such a vector, and comes whole, however short samples are.
//   norms     of the stream, where its features are cut: LayerNorm sums rows twice (means,
//             then deviations) and its gradient once, two numbers a row; RMSNorm once and once.
//   tables    looked up by a block that hands something on, multiplied by the last.
//   loss      over a vocabulary: one all-gather of 3 numbers a row, with smoothing 4.
//
// Backward does the adjoint of each, and gathers inputs and weights of maps once more unless
// they were kept (GridPlan::keep). Samples are as long as the ModelSpec says. Where sizes do not
// divide (vocabularies), counts are means over ranks.
//
// Pure and std only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

enum class GridCollective : std::uint8_t { all_gather, reduce_scatter, all_reduce };

// What moves; in backward its gradient, or itself once more.
enum class CollectiveUse : std::uint8_t { input, weight, output, vector, norm, loss };

inline constexpr int kNoMap = -1;

struct GridTraffic {
  std::size_t block = 0;
  bool is_backward = false;
  GridCollective collective = GridCollective::all_gather;
  CollectiveUse use = CollectiveUse::input;
  Axes axes;
  int calls = 0;
  double elements = 0;       // in all calls
  int map = kNoMap;          // which of the block's linear maps it is for, in the order of these
  std::int64_t columns = 0;  // of the matrix that moves for a map, which codecs see
};

struct GridLoad {
  std::int64_t samples = 1;    // of the microbatch, on all ranks of the grid together
  bool has_smoothing = false;  // of labels
};

// In the order of blocks; of each block forward and backward.
std::vector<GridTraffic> grid_traffic(const ModelSpec& spec, const GridPlan& plan,
                                      const GridLoad& load);

// One linear map of a block on a rank, in the order of GridTraffic::map: multiply-adds of its
// product, and the elements of what it multiplies and makes, gathered.
struct GridMapWork {
  double multiply_adds = 0;
  double input = 0, output = 0, weight = 0;
};
std::vector<GridMapWork> grid_map_work(const ModelSpec& spec, const GridPlan& plan,
                                       std::size_t block, std::int64_t samples);

// Elements of the stream that norms of a block take on a rank, of all of them together. With each
// goes about as much else by element: residual sums, and the sums of what comes back. Where every
// rank has the whole stream (1d), more ranks have no fewer.
double grid_normed_elements(const ModelSpec& spec, const GridPlan& plan, std::size_t block,
                            std::int64_t samples);

double elements_of(const std::vector<GridTraffic>& traffic);
// The same by axis, tp0 first. What goes along several axes at once counts for the outer ones what
// would cross them if the inner ones had gathered first.
std::array<double, 3> carried(const std::vector<GridTraffic>& traffic, const Mesh& mesh);

// The traffic of forward in blocks between the first and the last.
std::vector<GridTraffic> forward_of_layers(const ModelSpec& spec, std::vector<GridTraffic> traffic);

}  // namespace laconic
