// What a tensor grid has cut comes to rank 0 in pieces: nobody has room for a whole tensor.
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "laconic/base/test_effort.hpp"
#include "laconic/checkpoint/collect.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/policy/pipeline_plan.hpp"
#include "laconic/tensor/test_alive.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/world/world.hpp"

namespace laconic {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;

// Maps of 24 MiB and 12 MiB, in both ways and in three parts, and a table that no grid divides.
ModelSpec large_model() {
  return {
      .parameters =
          {{.name = "table", .sizes = {40'001, 40}, .role = Role::table},
           {.name = "up", .sizes = {2048, 3072}, .role = Role::up, .parts = 3},
           {.name = "bias", .sizes = {3072}, .role = Role::inner_vector, .parts = 3},
           {.name = "down", .sizes = {1024, 3072}, .is_out_in = true, .role = Role::down},
           {.name = "qkv", .sizes = {3072, 1024}, .is_out_in = true, .role = Role::up, .parts = 3}},
      .blocks = {{.name = "embedding", .kind = "embedding", .uses = {0}, .out = {{"x", {1, 1}}}},
                 {.name = "head", .kind = "head", .uses = {1, 2, 3, 4}}}};
}

std::vector<at::Tensor> whole_values(const ModelSpec& model) {
  std::vector<at::Tensor> values;
  for (const ParameterSpec& p : model.parameters)
    values.push_back(at::arange(elements_of(p), at::kFloat).view(p.sizes));
  return values;
}

TEST(TensorSave, WhatAGridHasCutComesInPieces) {
  const ModelSpec model = large_model();
  const std::vector<GridPlan> plans = {
      {TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split},
      {TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered},
      {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
      {TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split}};
  for (const GridPlan& plan : some_of(plans, 2)) {
    SCOPED_TRACE(name_of(plan.method));
    const std::vector<at::Tensor> values = whole_values(model);
    const AliveBytes alive;
    std::atomic<std::size_t> largest = 0, most = 0;
    run_ranks(4, [&](Transport& transport) {
      Engine engine(transport);
      ProgressThread progress_thread(engine);
      World world(plan.mesh, progress_thread);
      const at::NoGradGuard no_grad;
      Weights weights = make_empty_weights(Family(GptShape()), model, at::TensorOptions(at::kFloat),
                                           {}, {plan, world.coord()});
      OptimiserState state;
      for (const Parameter& p : weights.parameters) {
        p.value.copy_(shard_from(values[p.number], weights.place, model.parameters[p.number]));
        state.moment1.push_back(p.value.add(1));
        state.moment2.push_back(p.value.add(2));
      }
      world.gather({});
      if (!world.is_first()) give(world, weights, state, 0);
      world.decide_on_rank_0([&] {
        const std::size_t held = AliveBytes::now();
        const ModelSource source = collecting_source(world, plan_for_one(model, 1), weights, state,
                                                     OptimiserKind::adamw, 0);
        for (const Part part : {Part::value, Part::moment1, Part::moment2})
          for (std::size_t p = 0; p < values.size(); ++p) {
            std::int64_t next = 0;
            source.tensor(part, p, [&](const at::Tensor& piece) {
              const std::size_t now = AliveBytes::now();
              most = std::max(most.load(), now > held ? now - held : 0);
              largest = std::max(largest.load(), piece.nbytes());
              const at::Tensor wanted = values[p].view({-1}).narrow(0, next, piece.numel());
              const auto plus = static_cast<double>(part);
              EXPECT_TRUE(piece.reshape({-1}).sub(plus).equal(wanted)) << p << " from " << next;
              next += piece.numel();
            });
            EXPECT_EQ(next, values[p].numel());
          }
        return std::string();
      });
      engine.flush();
    });
    EXPECT_LE(largest, kPiece);
    EXPECT_GT(largest, kPiece / 2);
    // The piece, and what each of four ranks gives of it and of the next.
    EXPECT_LE(most, 3 * kPiece);
  }
}

}  // namespace
}  // namespace laconic
