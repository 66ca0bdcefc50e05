// What codecs do to the messages of a tensor grid, against dense references: masked gradients,
// feedback of weights' gradients, and numbers that are the same wherever and whenever they are
// decoded.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "laconic/base/philox.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic::tensor_codec {
namespace {

using at::Tensor;

// The same at every call.
Tensor normal(std::vector<std::int64_t> sizes, std::uint64_t seed,
              at::ScalarType type = at::kFloat) {
  const Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(key_of(seed), 0, 0.0, 1.0,
              std::span<double>(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x.to(type);
}

double distance_between(const Tensor& a, const Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

GridCodecs by_class(Traffic traffic, const GridCodec& codec) {
  return
      [=](const GridSite& site, GridCall) { return site.traffic == traffic ? codec : GridCodec(); };
}

void on_ranks(const GridPlan& plan, const GridCodecs& codecs,
              const std::function<void(TensorGrid&)>& body) {
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(), codecs, 5);
      body(grid);
    }
    engine.flush();
  });
}

// --- masked gradients

constexpr std::int64_t kRows = 8, kInputs = 12, kOutputs = 8;
constexpr double kKeep = 0.25;

// 1 where an element is among the largest of its chunk.
Tensor largest_of(const Tensor& chunk) {
  const Tensor flat = chunk.detach().abs().flatten();
  const auto order = flat.argsort(0, true);
  const auto kept = static_cast<std::int64_t>(kKeep * static_cast<double>(flat.numel()));
  Tensor mask = at::zeros(flat.sizes(), flat.options());
  mask.index_fill_(0, order.narrow(0, 0, kept), 1.0);
  return mask.view(chunk.sizes());
}
Tensor sent(const Tensor& chunk) {
  return chunk.mul(largest_of(chunk));
}

struct MapResult {
  Tensor y, dx, dw;
};

// Of 1d: both halves of the inputs multiply, and the sum is made in two chunks of rows, each by one
// of the ranks, which sends it on.
Tensor one_d_down(const Tensor& x, const Tensor& w) {
  const Tensor first = x.narrow(1, 0, kInputs / 2).matmul(w.narrow(0, 0, kInputs / 2));
  const Tensor second =
      x.narrow(1, kInputs / 2, kInputs / 2).matmul(w.narrow(0, kInputs / 2, kInputs / 2));
  const auto half = [](const Tensor& t, int n) { return t.narrow(0, n * kRows / 2, kRows / 2); };
  return at::cat({sent(half(first, 0).add(sent(half(second, 0)))),
                  sent(half(second, 1).add(sent(half(first, 1))))});
}

// Of 3d on 1 x 2 x 2: inputs are cut by rows (j) and columns (l), outputs by rows (l) and columns.
Tensor three_d_up(const Tensor& x, const Tensor& w) {
  const auto block = [](const Tensor& t, int row, int column) {
    return t.narrow(0, row * t.size(0) / 2, t.size(0) / 2)
        .narrow(1, column * t.size(1) / 2, t.size(1) / 2);
  };
  std::vector<Tensor> columns;
  for (int j = 0; j < 2; ++j) {
    std::vector<Tensor> partial;
    for (int l = 0; l < 2; ++l)
      partial.push_back(
          at::cat({sent(block(x, 0, l)), sent(block(x, 1, l))}).matmul(block(w, l, j)));
    const auto half = [](const Tensor& t, int n) { return t.narrow(0, n * kRows / 2, kRows / 2); };
    columns.push_back(at::cat({half(partial[0], 0).add(sent(half(partial[1], 0))),
                               half(partial[1], 1).add(sent(half(partial[0], 1)))}));
  }
  return at::cat(columns, 1);
}

MapResult dense(const std::function<Tensor(const Tensor&, const Tensor&)>& map, const Tensor& dy) {
  const Tensor x = normal({kRows, kInputs}, 1).requires_grad_();
  const Tensor w = normal({kInputs, kOutputs}, 2).requires_grad_();
  const Tensor y = map(x, w);
  y.backward(dy);
  return {y.detach(), x.grad(), w.grad()};
}

// This rank's part of a matrix.
Tensor part_of(const TensorGrid& grid, const Tensor& whole, const Axes& rows, const Axes& columns) {
  const std::int64_t r = whole.size(0) / grid.extent(rows);
  const std::int64_t c = whole.size(1) / grid.extent(columns);
  return whole.narrow(0, r * grid.index(rows), r)
      .narrow(1, c * grid.index(columns), c)
      .contiguous();
}

void expect_masked(const GridPlan& plan, Role role, const MapResult& wanted, const Tensor& dy) {
  const GridCodec codec{.codec = TopK{.kept = {.fraction = kKeep}}, .is_masked = true};
  std::mutex mutex;
  on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
    const LinearPlan way = linear_plan(plan, role);
    const auto input = [&](const Tensor& t) {
      return part_of(grid, t, way.from.rows, way.from.features);
    };
    const auto output = [&](const Tensor& t) {
      return part_of(grid, t, way.to.rows, way.to.features);
    };
    const auto weight = [&](const Tensor& t) {
      return part_of(grid, t, way.from.features, way.to.features);
    };
    const Tensor x = input(normal({kRows, kInputs}, 1)).requires_grad_();
    const Tensor w = weight(normal({kInputs, kOutputs}, 2)).requires_grad_();
    const Tensor y = grid_products({grid, 1, 0}, way, x, {{.weight = w, .rows = {w.size(0)}}},
                                   {kRows, 1}, nullptr)[0];
    y.backward(output(dy));
    const std::lock_guard lock(mutex);
    EXPECT_LT(distance_between(y.detach(), output(wanted.y)), 1e-5);
    EXPECT_LT(distance_between(x.grad(), input(wanted.dx)), 1e-5);
    EXPECT_LT(distance_between(w.grad(), weight(wanted.dw)), 1e-5);
  });
}

TEST(TensorCodec, MaskedGradientsAreThoseOfWhatWasSent) {
  const Tensor dy = normal({kRows, kOutputs}, 3);
  const MapResult summed = dense(one_d_down, dy);
  expect_masked({TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split}, Role::down, summed, dy);
  const MapResult moved = dense(three_d_up, dy);
  expect_masked({TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split}, Role::up, moved, dy);
  EXPECT_GT(moved.dx.eq(0).sum().item<std::int64_t>(), kRows * kInputs / 2);
}

// Straight through, the gradient does not know of the codec: that of the map of what was decoded.
TEST(TensorCodec, GradientsGoStraightThroughUnlessTheyAreMasked) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  const Tensor dy = normal({kRows, kOutputs}, 3), all = normal({kRows, kInputs}, 1);
  const Tensor wanted = dy.matmul(normal({kInputs, kOutputs}, 2).t());
  const GridCodec codec{.codec = TopK{.kept = {.fraction = kKeep}}};
  std::mutex mutex;
  on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
    const LinearPlan way = linear_plan(plan, Role::down);
    const Tensor x = part_of(grid, all, {}, {Axis::tp1}).requires_grad_();
    const Tensor w =
        part_of(grid, normal({kInputs, kOutputs}, 2), {Axis::tp1}, {}).requires_grad_();
    grid_products({grid, 1, 0}, way, x, {{.weight = w, .rows = {w.size(0)}}}, {kRows, 1},
                  nullptr)[0]
        .backward(dy);
    const std::lock_guard lock(mutex);
    EXPECT_LT(distance_between(x.grad(), part_of(grid, wanted, {}, {Axis::tp1})), 1e-5);
  });
}

// Elements of random_k that nobody chose, and the factor of those that were; one choice for all
// ranks, whose payloads are added.
TEST(TensorCodec, MasksOfSumsInFlightCountOnce) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  const GridCodec codec{.codec = RandomK{.kept = {.fraction = 0.25}, .unbiased = true},
                        .is_masked = true};
  std::mutex mutex;
  on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
    const Tensor ones = at::zeros({8, 16}).add(1.0);
    GridMask mask;
    const Tensor y = grid.sum(ones, {Axis::tp1}, {.block = 1, .columns = 16}, &mask);
    // The sum of two ones is the factor of both.
    const std::lock_guard lock(mutex);
    EXPECT_LT(distance_between(mask.apply(ones).mul(2), y), 1e-6);
    EXPECT_EQ(y.ne(0).sum().item<std::int64_t>(), 32);
  });
}

// --- decoding

// The same message twice is what backward and recomputation ask for.
TEST(TensorCodec, WhatIsSentTwiceIsDecodedTheSame) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 3, 1}}, TableCut::split};
  for (const char* text : {"low_rank:rank=2", "low_rank:rank=2,factors=bf16", "random_k:keep=0.2",
                           "top_k:keep=0.1", "quantise:bits=4,rounding=stochastic,grid=ends"}) {
    SCOPED_TRACE(text);
    const GridCodec codec{.codec = parse_codec(text)};
    std::mutex mutex;
    std::map<int, Tensor> first;
    on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
      const Tensor x = normal({8, 20}, 10 + static_cast<std::uint64_t>(grid.index({Axis::tp1})));
      const GridSite site{.block = 1, .columns = 20};
      int call = 0;
      std::vector<Tensor> seen;
      for (const std::uint64_t microbatch : {0, 0, 1}) {
        grid.begin(3, microbatch);
        for (const Tensor& y : {grid.gather(x, equal_rows(8, 3), {Axis::tp1}, site),
                                grid.sum(x, {Axis::tp1}, site)}) {
          seen.push_back(y);
          const std::lock_guard lock(mutex);
          const auto [found, is_new] = first.try_emplace(call++, y);
          EXPECT_TRUE(found->second.equal(y)) << call << " on another rank";
        }
      }
      EXPECT_TRUE(seen[0].equal(seen[2]) && seen[1].equal(seen[3]));
      // Another message draws other numbers, where any are drawn.
      EXPECT_EQ(seen[0].equal(seen[4]), std::string(text).starts_with("top_k"));
    });
  }
}

TEST(TensorCodec, LowRankOfFullRankLosesNothing) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  on_ranks(plan, by_class(Traffic::tp_activation, {.codec = LowRank{.rank = 6}}),
           [&](TensorGrid& grid) {
             const Tensor x = normal({12, 6}, 4);
             const Tensor y = grid.sum(x, {Axis::tp1}, {.block = 1, .columns = 6});
             EXPECT_LT(distance_between(y, x.mul(2)), 1e-5);
           });
}

// --- feedback

// The mean of what arrived of one gradient again and again: what a step loses the next one sends.
double mean_error(const GridCodec& codec, int steps) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 1}}, TableCut::split};
  double error = 0;
  on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
    const Tensor g = normal({32, 16}, 20 + static_cast<std::uint64_t>(grid.index({Axis::tp0})));
    const Tensor both = normal({32, 16}, 20).add(normal({32, 16}, 21));
    const GridSite site{.traffic = Traffic::tp_weight, .block = 1, .columns = 16};
    Tensor sum = at::zeros({16, 16});
    for (int step = 0; step < steps; ++step) {
      grid.begin(static_cast<std::uint64_t>(step), 0);
      sum.add_(grid.scatter_sum(g, equal_rows(16, 2), {Axis::tp0}, site));
      grid.commit();
    }
    if (grid.index({Axis::tp0}) == 0)
      error = sum.div(static_cast<double>(steps))
                  .sub(both.narrow(0, 0, 16))
                  .norm()
                  .div(both.narrow(0, 0, 16).norm())
                  .item<double>();
  });
  return error;
}

TEST(TensorCodec, FeedbackOfWeightGradientsSendsLaterWhatWasLost) {
  for (const char* text : {"quantise:bits=2", "top_k:keep=0.1", "sign", "low_rank:rank=4"}) {
    SCOPED_TRACE(text);
    const CodecSpec codec = parse_codec(text);
    const double without = mean_error({.codec = codec}, 64);
    const double with = mean_error({.codec = codec, .has_feedback = true}, 64);
    EXPECT_GT(without, 0.1);
    EXPECT_LT(with, 0.5 * without);
    EXPECT_LT(with, 0.25);
  }
}

}  // namespace
}  // namespace laconic::tensor_codec
