// Gradients of what a tensor grid sends by sparse codecs, masked or straight through, against dense
// references.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>

#include "laconic/model/grid_ops.hpp"
#include "tensor_codec.hpp"

namespace laconic::tensor_codec {
namespace {

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

// Of 1d: what the inputs of a rank multiply to.
Tensor partial_of(const Tensor& x, const Tensor& w, int rank) {
  const std::int64_t begin = rank * kInputs / 2;
  return x.narrow(1, begin, kInputs / 2).matmul(w.narrow(0, begin, kInputs / 2));
}

// Each sends all of what it has.
Tensor one_d_gathered(const Tensor& x, const Tensor& w) {
  return sent(partial_of(x, w, 0)).add(sent(partial_of(x, w, 1)));
}

// The sum is made in two chunks of rows, each by one of the ranks, which sends it on.
Tensor one_d_down(const Tensor& x, const Tensor& w) {
  const Tensor first = partial_of(x, w, 0), second = partial_of(x, w, 1);
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

void expect_masked(const GridPlan& plan, Role role, const MapResult& wanted, const Tensor& dy,
                   bool is_gathered = false) {
  const GridCodec codec{
      .codec = TopK{.kept = {.fraction = kKeep}}, .is_masked = true, .is_gathered = is_gathered};
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
  const GridPlan one_d{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  expect_masked(one_d, Role::down, dense(one_d_down, dy), dy);
  expect_masked(one_d, Role::down, dense(one_d_gathered, dy), dy, true);
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

}  // namespace
}  // namespace laconic::tensor_codec
