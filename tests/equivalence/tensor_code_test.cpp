// Learned codes of a tensor grid's activations: their gradients against those of autograd and
// against slopes of the loss, and what moves.
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/architecture/grid_cost.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/model/model.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/learned_map.hpp"
#include "tensor_codec.hpp"

namespace laconic::tensor_codec {
namespace {

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

}  // namespace
}  // namespace laconic::tensor_codec
