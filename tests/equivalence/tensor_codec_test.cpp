// What codecs do to the messages of a tensor grid, against dense references: masked gradients,
// feedback of weights' gradients, and numbers that are the same wherever and whenever they are
// decoded.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/architecture/grid_cost.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/model/model.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/learned_map.hpp"
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

// --- learned codes

// Maps of so many slices, each [code, columns]; orthonormal where that is full width.
struct Codes {
  std::vector<Tensor> encoder, decoder;
};
Codes make_codes(std::int64_t slices, std::int64_t code, std::int64_t columns, std::uint64_t seed) {
  Codes codes;
  for (std::int64_t n = 0; n < slices; ++n) {
    const auto key = seed + 10 * static_cast<std::uint64_t>(n);
    codes.encoder.push_back(normal({code, columns}, key, at::kDouble).mul(0.3).requires_grad_());
    codes.decoder.push_back(
        normal({code, columns}, key + 1, at::kDouble).mul(0.3).requires_grad_());
  }
  return codes;
}
Tensor coded(const Tensor& x, const Codes& codes, std::int64_t slice) {
  const auto n = static_cast<std::size_t>(slice);
  return x.matmul(codes.encoder[n].t()).matmul(codes.decoder[n]);
}
// Columns in slices, each through its own maps.
Tensor coded_slices(const Tensor& x, const Codes& codes) {
  const auto slices = static_cast<std::int64_t>(codes.encoder.size());
  std::vector<Tensor> parts;
  for (std::int64_t n = 0; n < slices; ++n)
    parts.push_back(coded(x.narrow(1, n * x.size(1) / slices, x.size(1) / slices), codes, n));
  return at::cat(parts, 1);
}

// A map on a grid with codes, against one of the same whole matrices by autograd, in double.
void expect_coded(const GridPlan& plan, Role role) {
  SCOPED_TRACE(fmt::format("{} {}", name_of(plan.method), static_cast<int>(role)));
  constexpr std::int64_t kCode = 2;
  const LinearPlan way = linear_plan(plan, role);
  const auto moves = [&](const Move& move) {
    return move.kind != MoveKind::none && move.kind != MoveKind::copy &&
           extent(plan.mesh, move.axes) > 1;
  };
  const auto codes_for = [&](const Move& move, const ActivationLayout& layout,
                             std::int64_t features, std::uint64_t seed) {
    const std::int64_t slices = extent(plan.mesh, layout.features);
    return moves(move) ? make_codes(slices, kCode, features / slices, seed) : Codes();
  };
  const Codes in = codes_for(way.in, way.from, kInputs, 100);
  const Codes out = codes_for(way.out, way.to, kOutputs, 200);
  const Tensor all_x = normal({kRows, kInputs}, 1, at::kDouble).requires_grad_();
  const Tensor all_w = normal({kInputs, kOutputs}, 2, at::kDouble).requires_grad_();
  const Tensor all_dy = normal({kRows, kOutputs}, 3, at::kDouble);
  const Tensor taken = in.encoder.empty() ? all_x : coded_slices(all_x, in);
  const Tensor made = taken.matmul(all_w);
  const Tensor all_y = out.encoder.empty() ? made : coded_slices(made, out);
  all_y.backward(all_dy);
  ASSERT_FALSE(in.encoder.empty() && out.encoder.empty());

  std::mutex mutex;
  std::map<std::string, Tensor> sums;  // of gradients that several ranks have parts of
  on_ranks(plan, {}, [&](TensorGrid& grid) {
    const auto input = [&](const Tensor& t) {
      return part_of(grid, t.detach(), way.from.rows, way.from.features);
    };
    const auto output = [&](const Tensor& t) {
      return part_of(grid, t.detach(), way.to.rows, way.to.features);
    };
    const bool gathers = way.in.kind == MoveKind::gather_features;
    const Axes weight_rows = gathers ? Axes() : way.from.features;
    const Tensor x = input(all_x).clone().requires_grad_();
    // Weights that are cut further are gathered: here they are whole where they are used.
    const LinearPlan here{way.from, way.to, way.in, way.out, {}};
    const Tensor w =
        part_of(grid, all_w.detach(), weight_rows, way.to.features).clone().requires_grad_();
    const auto mine = [&](const Codes& codes, const Axes& features, bool is_whole) -> GridCode {
      if (codes.encoder.empty()) return {};
      const auto n = static_cast<std::size_t>(grid.index(features));
      const Tensor decoder = is_whole ? at::cat(codes.decoder, 1) : codes.decoder[n];
      return {codes.encoder[n].detach().clone().requires_grad_(),
              decoder.detach().clone().requires_grad_()};
    };
    const GridCodePair codes{mine(in, way.from.features, gathers),
                             mine(out, way.to.features, false)};
    const Tensor y = grid_products({grid, 1, 0}, here, x, {{.weight = w, .rows = {w.size(0)}}},
                                   {kRows, 1}, nullptr, codes)[0];
    y.backward(output(all_dy));
    const std::lock_guard lock(mutex);
    EXPECT_LT(distance_between(y.detach(), output(all_y)), 1e-10);
    EXPECT_LT(distance_between(x.grad(), input(all_x.grad())), 1e-10);
    const auto add = [&](const std::string& name, const Tensor& gradient) {
      const auto [found, is_new] = sums.try_emplace(name, gradient.clone());
      if (!is_new) found->second.add_(gradient);
    };
    add(fmt::format("w {} {}", grid.index(weight_rows), grid.index(way.to.features)), w.grad());
    if (codes.in.is_used()) {
      add(fmt::format("in encoder {}", grid.index(way.from.features)), codes.in.encoder.grad());
      add(gathers ? "in decoder" : fmt::format("in decoder {}", grid.index(way.from.features)),
          codes.in.decoder.grad());
    }
    if (codes.out.is_used()) {
      add(fmt::format("out encoder {}", grid.index(way.to.features)), codes.out.encoder.grad());
      add(fmt::format("out decoder {}", grid.index(way.to.features)), codes.out.decoder.grad());
    }
  });
  const auto expect_sum = [&](const std::string& name, const Tensor& wanted) {
    ASSERT_TRUE(sums.contains(name)) << name;
    EXPECT_LT(distance_between(sums.at(name), wanted), 1e-10) << name;
  };
  for (const auto& [text, codes, is_in] :
       {std::tuple{"in", &in, true}, std::tuple{"out", &out, false}})
    for (std::size_t n = 0; n < codes->encoder.size(); ++n) {
      expect_sum(fmt::format("{} encoder {}", text, n), codes->encoder[n].grad());
      if (!is_in || way.in.kind != MoveKind::gather_features)
        expect_sum(fmt::format("{} decoder {}", text, n), codes->decoder[n].grad());
    }
  if (way.in.kind == MoveKind::gather_features) {
    std::vector<Tensor> wanted;
    for (const Tensor& decoder : in.decoder) wanted.push_back(decoder.grad());
    expect_sum("in decoder", at::cat(wanted, 1));
  }
  const bool gathers = way.in.kind == MoveKind::gather_features;
  const int rows = gathers ? 1 : extent(plan.mesh, way.from.features);
  const int columns = extent(plan.mesh, way.to.features);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      expect_sum(fmt::format("w {} {}", r, c),
                 all_w.grad()
                     .narrow(0, r * kInputs / rows, kInputs / rows)
                     .narrow(1, c * kOutputs / columns, kOutputs / columns));
}

TEST(TensorCodec, LearnedCodesHaveTheGradientsOfAutograd) {
  expect_coded({TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split}, Role::down);
  expect_coded({TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split}, Role::up);
  for (const Role role : {Role::up, Role::down}) {
    expect_coded({TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split}, role);
    expect_coded({TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}, role);
  }
}

// --- whole models with learned codes

Batch words() {
  std::vector<std::int64_t> ids;
  for (std::int64_t n = 0; n < 8 * 5; ++n) ids.push_back((n * 7 + n / 5) % 11);
  const Tensor all = at::tensor(ids).view({8, 5});
  return Batch{{"ids", all}, {"targets", all.roll(1, 1)}};
}
const Family kModel =
    GptShape{.layers = 1, .width = 16, .heads = 4, .context = 6, .vocabulary = 16};

// The loss on a grid, and with a direction the slope along it that the gradients say. The direction
// is drawn by name and place in the whole tensor; the model is moved along it first.
struct Sloped {
  double loss = 0, slope = 0, of_codes = 0;
};
Sloped at_distance(GridPlan plan, double distance) {
  Sloped all;
  std::mutex mutex;
  on_ranks(plan, {}, [&](TensorGrid& grid) {
    const GridPlace place{plan, grid.coord()};
    Weights weights = make_weights(kModel, 7, at::TensorOptions().dtype(at::kDouble), {}, 5, place);
    std::vector<Tensor> directions;
    {
      const at::NoGradGuard no_grad;
      for (Parameter& p : weights.parameters) {
        const ParameterSpec& spec = weights.spec.parameters[p.number];
        const Tensor whole = normal(spec.sizes, 1000 + p.number, at::kDouble).mul(0.1);
        directions.push_back(shard_from(whole, place, spec));
        p.value.add_(directions.back().view(p.value.sizes()), distance);
      }
      refresh_copies(weights.parameters);
    }
    Pass pass;
    pass.grid = &grid;
    const double loss = forward_backward(weights, words(), pass, 1.0);
    const std::lock_guard lock(mutex);
    all.loss += loss;
    for (std::size_t n = 0; n < weights.parameters.size(); ++n) {
      const Parameter& p = weights.parameters[n];
      if (!p.gradient.defined() || !speaks_for(weights, p)) continue;
      const double slope =
          p.gradient.mul(directions[n].view(p.gradient.sizes())).sum().item<double>();
      all.slope += slope;
      if (weights.spec.parameters[p.number].code) all.of_codes += std::abs(slope);
    }
  });
  return all;
}

std::vector<GridPlan> coded_plans(GridCodes codes) {
  codes.blocks = {false, true, false};
  std::vector<GridPlan> plans = {
      {TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split},
      {TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split},
      {TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split},
      {TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::gathered},
      {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
      {TensorMethod::two_and_half_d, {.tp = {2, 2, 2}}, TableCut::gathered}};
  for (GridPlan& plan : plans) plan.codes = codes;
  return plans;
}

// Every map of every message is in the loss, and has its gradient.
TEST(TensorCodec, TheLossOfAModelWithCodesHasTheSlopeThatItsGradientsSay) {
  for (const bool is_tied : {false, true}) {
    const GridCodes codes{.size = 4, .is_tied = is_tied, .is_drawn = !is_tied};
    for (const GridPlan& plan : coded_plans(codes)) {
      SCOPED_TRACE(fmt::format("{} {} tied {}", name_of(plan.method), fmt::join(plan.mesh.tp, " "),
                               is_tied));
      constexpr double kStep = 1e-5;
      const Sloped here = at_distance(plan, 0);
      const double wanted =
          (at_distance(plan, kStep).loss - at_distance(plan, -kStep).loss) / (2 * kStep);
      EXPECT_NEAR(here.slope, wanted, 1e-8 + 1e-7 * std::abs(wanted));
      EXPECT_GT(here.of_codes, 0);
    }
  }
}

// What moves is what the cost of such a grid says, codes and the maps that they need.
TEST(TensorCodec, CodesMoveWhatTheFormulasSay) {
  for (const bool is_tied : {false, true})
    for (const GridPlan& plan : coded_plans({.size = 4, .is_tied = is_tied})) {
      SCOPED_TRACE(fmt::format("{} {} tied {}", name_of(plan.method), fmt::join(plan.mesh.tp, " "),
                               is_tied));
      ModelSpec spec = model_spec(kModel, 5);
      add_grid_codes(spec, plan);
      double calls = 0, elements = 0;
      for (const GridTraffic& t : grid_traffic(spec, plan, {.samples = 8})) {
        calls += static_cast<double>(t.calls);
        elements += t.elements;
      }
      std::mutex mutex;
      on_ranks(plan, {}, [&](TensorGrid& grid) {
        Pass pass;
        pass.grid = &grid;
        Weights weights = make_weights(kModel, 7, at::TensorOptions().dtype(at::kDouble), {}, 5,
                                       {plan, grid.coord()});
        forward_backward(weights, words(), pass, 1.0);
        double counted_calls = 0, counted_elements = 0;
        for (const auto& [key, count] : grid.counts()) {
          counted_calls += static_cast<double>(count.calls);
          counted_elements += static_cast<double>(count.elements);
        }
        const std::lock_guard lock(mutex);
        EXPECT_EQ(counted_calls, calls);
        EXPECT_EQ(counted_elements, elements);
      });
    }
}

// Orthonormal maps of full width turn rows round and back.
TEST(TensorCodec, CodesOfFullWidthChangeNothing) {
  GridPlan plan{TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split};
  const double raw = at_distance(plan, 0).loss;
  plan.codes = {.size = 16, .is_tied = false, .is_drawn = false, .blocks = {false, true, false}};
  EXPECT_NEAR(at_distance(plan, 0).loss, raw, 1e-11);
  plan.codes.size = 4;
  EXPECT_GT(std::abs(at_distance(plan, 0).loss - raw), 1e-9);
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

// --- steering

// A raw sum has what was owed in it, once, and a step that never was pays nothing.
TEST(TensorCodec, BypassedSumsPayWhatTheyOwe) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 1}}, TableCut::split};
  const GridCodec codec{.codec = parse_codec("top_k:keep=0.1"), .has_feedback = true};
  on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
    const Tensor g = normal({32, 16}, 20 + static_cast<std::uint64_t>(grid.index({Axis::tp0})));
    const Tensor both = normal({32, 16}, 20).add(normal({32, 16}, 21));
    const GridSite site{.traffic = Traffic::tp_weight, .block = 1, .columns = 16};
    const Tensor wanted = both.narrow(0, 16 * grid.index({Axis::tp0}), 16);
    const auto sum = [&](std::uint64_t step) {
      grid.begin(step, 0);
      return grid.scatter_sum(g, equal_rows(16, 2), {Axis::tp0}, site);
    };
    Tensor all = sum(0);
    grid.commit();
    EXPECT_GT(distance_between(all, wanted), 0.1);
    EXPECT_EQ(grid.save().size(), 1U);
    grid.override_codec(Traffic::tp_weight, {.is_bypassed = true});
    EXPECT_EQ(grid.save().size(), 1U);
    const NamedFloats owed = grid.save();
    sum(1);
    grid.abandon();
    EXPECT_EQ(grid.save(), owed);
    const Tensor paid = sum(2);
    const Tensor second = sum(2);  // another microbatch of the step
    grid.commit();
    EXPECT_TRUE(grid.save().empty());
    EXPECT_LT(distance_between(second, wanted), 1e-5);
    EXPECT_LT(distance_between(all.add(paid), wanted.mul(2)), 1e-5);
    // Encoded again, it begins without debts; another codec takes them over.
    grid.override_codec(Traffic::tp_weight, {});
    sum(3);
    grid.commit();
    const NamedFloats before = grid.save();
    grid.override_codec(Traffic::tp_weight, {.codec = Quantise{.bits = 8}});
    EXPECT_EQ(grid.save(), before);
    sum(4);
    grid.commit();
    EXPECT_NE(grid.save(), before);
  });
}

TEST(TensorCodec, FidelityIsMeasuredByClassAndOnlyWhenAsked) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  on_ranks(plan, by_class(Traffic::tp_activation, {.codec = Quantise{.bits = 2}}),
           [&](TensorGrid& grid) {
             const Tensor x = normal({8, 16}, 3);
             const auto sum = [&](std::uint64_t step) {
               grid.begin(step, 0);
               grid.sum(x, {Axis::tp1}, {.block = 1, .columns = 16});
               grid.sum(x, {Axis::tp1},
                        {.traffic = Traffic::tp_gradient, .block = 1, .columns = 16});
               grid.commit();
             };
             sum(0);
             for (const Traffic traffic : {Traffic::tp_activation, Traffic::tp_gradient})
               grid.measure_fidelity(traffic, true);
             sum(1);
             for (const Traffic traffic : {Traffic::tp_activation, Traffic::tp_gradient})
               grid.measure_fidelity(traffic, false);
             sum(2);
             const Fidelity found = grid.fidelity(Traffic::tp_activation);
             EXPECT_EQ(found.messages, 2U);  // a contribution, and a result
             EXPECT_GT(found.cosine(), 0.5);
             EXPECT_LT(found.cosine(), 0.999);
             EXPECT_EQ(grid.fidelity(Traffic::tp_gradient).messages, 0U);
           });
}

}  // namespace
}  // namespace laconic::tensor_codec
