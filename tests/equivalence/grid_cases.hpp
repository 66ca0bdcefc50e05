// tests/equivalence/grid_cases.hpp — small models of every family on tensor grids, their ranks as
// threads, beside the model of one process.
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "laconic/base/philox.hpp"
#include "laconic/base/target.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/layout/test_grids.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kGridSamples = 8, kGridTokens = 5;

struct GridCase {
  std::string name;
  Family family;
  Batch batch;
  double smoothing = 0;
  std::int64_t tokens() const { return batch.has("source") ? 7 : kGridTokens; }
};

// The same at every call; below `limit`.
at::Tensor numbers(std::vector<std::int64_t> sizes, std::int64_t limit, std::uint64_t seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(word_at(key_of(seed), static_cast<std::uint64_t>(i)) % limit);
  return at::tensor(values).view(sizes);
}

// Some rows without a target.
at::Tensor targets(std::int64_t limit) {
  at::Tensor all = numbers({kGridSamples, kGridTokens}, limit, 5);
  all[1][2] = kNoTarget;
  all[6] = kNoTarget;
  return all;
}

std::vector<GridCase> cases() {
  std::vector<GridCase> all;
  // A vocabulary that no grid divides.
  all.push_back(
      {"gpt", GptShape{.layers = 2, .width = 48, .heads = 4, .context = 6, .vocabulary = 29},
       Batch{{"ids", numbers({kGridSamples, kGridTokens}, 29, 1)}, {"targets", targets(29)}}});
  const Batch text{{"ids", numbers({kGridSamples, kGridTokens}, 31, 2)}, {"targets", targets(31)}};
  LlamaShape llama{.layers = 2,
                   .width = 48,
                   .heads = 8,
                   .key_heads = 4,
                   .head_width = 8,
                   .hidden = 80,
                   .context = 6,
                   .vocabulary = 31};
  all.push_back({"llama", llama, text});
  llama.is_tied = llama.has_qk_norm = llama.has_qkv_bias = true;
  all.push_back({"llama tied", llama, text});
  const auto bert = [&](BertHead head, std::vector<std::pair<std::string, at::Tensor>> fields) {
    Batch batch{{"ids", numbers({kGridSamples, kGridTokens}, 31, 3)},
                {"types", numbers({kGridSamples, kGridTokens}, 2, 4)},
                {"length", numbers({kGridSamples, 1}, kGridTokens, 6).add(1)}};
    for (auto& [name, field] : fields) batch.add(name, field);
    all.push_back({fmt::format("bert {}", name_in(kBertHeadNames, head)),
                   BertShape{.layers = 2,
                             .width = 48,
                             .heads = 4,
                             .hidden = 64,
                             .context = 6,
                             .vocabulary = 31,
                             .head = head,
                             .labels = 3},
                   batch});
  };
  bert(BertHead::masked, {{"targets", targets(31)}});
  bert(BertHead::pretraining,
       {{"targets", targets(31)}, {"next", numbers({kGridSamples, 1}, 2, 8)}});
  bert(BertHead::classify, {{"label", numbers({kGridSamples, 1}, 3, 9)}});
  bert(BertHead::regress, {{"score", numbers({kGridSamples, 1}, 9, 10).to(at::kDouble).div(4)}});
  // A sample's answer lies within its text.
  const at::Tensor zero = at::full({kGridSamples, 1}, 0, at::kLong);
  bert(BertHead::span, {{"start", zero}, {"end", zero}});
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    const bool is_pre = norm == NormPlace::pre;
    all.push_back(
        {is_pre ? "seq2seq" : "seq2seq post",
         Seq2SeqShape{.layers = 1,
                      .decoder_layers = 2,
                      .width = 48,
                      .heads = 4,
                      .hidden = 64,
                      .context = 7,
                      .target_context = 6,
                      .vocabulary = 31,
                      .norm = norm,
                      .positions = is_pre ? PositionKind::sinusoidal : PositionKind::learned,
                      .sharing = is_pre ? TableSharing::all : TableSharing::none},
         Batch{{"source", numbers({kGridSamples, 7}, 31, 11)},
               {"source_length", numbers({kGridSamples, 1}, 7, 12).add(1)},
               {"ids", numbers({kGridSamples, kGridTokens}, 31, 13)},
               {"targets", targets(31)}},
         0.1});
  }
  return all;
}

// One of each family.
std::vector<GridCase> some_cases() {
  std::vector<GridCase> some = cases();
  std::erase_if(some, [](const GridCase& c) {
    return c.name != "gpt" && c.name != "llama tied" && c.name != "bert classify" &&
           c.name != "seq2seq";
  });
  return some;
}

std::string to_text(const GridPlan& plan) {
  return fmt::format("{} {}x{}x{} {}", name_of(plan.method), plan.mesh.tp[0], plan.mesh.tp[1],
                     plan.mesh.tp[2], plan.table == TableCut::split ? "split" : "gathered") +
         (plan.keep == GridKeep::gathered ? ", kept" : "");
}

GridPlan kept(GridPlan plan) {
  plan.keep = GridKeep::gathered;
  return plan;
}

std::vector<GridPlan> plans() {
  std::vector<GridPlan> all;
  const auto add = [&](TensorMethod method, std::array<int, 3> tp, TableCut table,
                       std::array<int, 3> order = {0, 1, 2}) {
    all.push_back({method, {.tp = tp, .order = order}, table});
  };
  for (const std::array<int, 3>& tp : kSpecifiedGrids)
    add(TensorMethod::three_d, tp, TableCut::split);
  add(TensorMethod::three_d, {2, 2, 2}, TableCut::gathered, {2, 0, 1});
  add(TensorMethod::three_d, {1, 2, 2}, TableCut::gathered);
  add(TensorMethod::one_d, {1, 4, 1}, TableCut::split);
  add(TensorMethod::one_d, {1, 2, 1}, TableCut::split);
  add(TensorMethod::one_d_sequence, {1, 2, 1}, TableCut::split);
  add(TensorMethod::two_d, {2, 2, 1}, TableCut::gathered);
  add(TensorMethod::two_and_half_d, {2, 2, 2}, TableCut::gathered, {1, 2, 0});
  return all;
}

struct Outcome {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, at::Tensor> values;  // after the updates, and
  std::map<std::string, at::Tensor> moment1, moment2;
};

// Several steps; gradients are those of the first.
Outcome trained(Weights& weights, const GridCase& c, const Pass& pass, int updates,
                const StageOptions& options) {
  Outcome outcome;
  OptimiserState state = make_optimiser_state(weights.parameters);
  for (int update = 0; update < updates; ++update) {
    const double loss = forward_backward(weights, c.batch, pass, 1.0, options);
    if (update == 0) {
      outcome.loss = loss;
      for (const Parameter& p : weights.parameters)
        outcome.gradients[p.name] =
            p.gradient.defined() ? p.gradient.clone() : p.value.detach().new_zeros(p.value.sizes());
    }
    apply(OptimiserSpec{}, state, weights.parameters, 1e-2, 1.0);
    clear_gradients(weights);
  }
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
    const Parameter& p = weights.parameters[i];
    outcome.values[p.name] = p.value.detach().clone();
    outcome.moment1[p.name] = state.moment1[i];
    outcome.moment2[p.name] = state.moment2[i];
  }
  return outcome;
}

Pass pass_of(const GridCase& c, double dropout) {
  Pass pass{.dropout = dropout, .label_smoothing = c.smoothing};
  if (dropout > 0) {
    std::vector<std::int64_t> ids;
    for (std::int64_t s = 0; s < kGridSamples; ++s) ids.push_back(100 + 7 * s);
    pass.sample_keys = dropout_keys(3, 1, ids);
  }
  return pass;
}

// Runs `body` with the rank's grid on every rank.
void on_grid(const GridPlan& plan, const std::function<void(TensorGrid&, Rank)>& body,
             const GridCodecs& codecs = {}) {
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(), codecs, 5);
      body(grid, transport.rank());
    }
    engine.flush();
  });
}

// Of every rank, in the order in which it made them.
using CallsOfRanks = std::vector<std::vector<GridCallMade>>;

// All members of a group make the same calls in the same order.
void expect_one_order(const CallsOfRanks& calls, const GridPlan& plan) {
  const auto along = [&](Rank rank, const Axes& axes) {
    std::vector<GridCallMade> some;
    for (const GridCallMade& call : calls[static_cast<std::size_t>(rank)])
      if (call.axes == axes) some.push_back(call);
    return some;
  };
  for (Rank rank = 0; rank < size(plan.mesh); ++rank) {
    std::set<Axes> lines;
    for (const GridCallMade& call : calls[static_cast<std::size_t>(rank)]) lines.insert(call.axes);
    ASSERT_FALSE(lines.empty());
    for (const Axes& axes : lines)
      for (const Rank other : group_along(plan.mesh, rank, axes))
        ASSERT_EQ(along(other, axes), along(rank, axes)) << rank << " and " << other;
  }
}

const at::TensorOptions kInDouble = at::TensorOptions().dtype(at::kDouble);

void expect_same(const at::Tensor& got, const at::Tensor& wanted, double scale,
                 const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() == 0) return;
  const double off = got.sub(wanted).abs().max().item<double>();
  EXPECT_LT(off, 1e-10 * scale) << what;
}

void expect_one_process(const GridCase& c, const GridPlan& plan, double dropout,
                        const StageOptions& options = {}, int updates = 1) {
  SCOPED_TRACE(c.name + " on " + to_text(plan));
  Weights whole = make_weights(c.family, 7, kInDouble, {}, c.tokens());
  const Outcome wanted = trained(whole, c, pass_of(c, dropout), updates, options);
  std::mutex mutex;
  double loss = 0;
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    Pass pass = pass_of(c, dropout);
    pass.grid = &grid;
    const GridPlace place{plan, coord_of(plan.mesh, rank)};
    Weights weights = make_weights(c.family, 7, kInDouble, {}, c.tokens(), place);
    const Outcome got = trained(weights, c, pass, updates, options);
    const std::lock_guard lock(mutex);
    loss += got.loss;
    for (const Parameter& p : weights.parameters) {
      const ParameterSpec& spec = weights.spec.parameters[p.number];
      const auto shard = [&](const at::Tensor& all) { return shard_from(all, place, spec); };
      const std::string what = fmt::format("{} on rank {}", p.name, rank);
      expect_same(got.gradients.at(p.name), shard(wanted.gradients.at(p.name)), 1,
                  "gradient of " + what);
      expect_same(got.values.at(p.name), shard(wanted.values.at(p.name)), 1, what);
      expect_same(got.moment1.at(p.name), shard(wanted.moment1.at(p.name)), 1, "mean of " + what);
      expect_same(got.moment2.at(p.name), shard(wanted.moment2.at(p.name)), 1, "square of " + what);
    }
  });
  EXPECT_NEAR(loss, wanted.loss, 1e-11);
}

// One of each method, with axes of different sizes.
std::vector<GridPlan> some_plans() {
  return {{TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split},
          {TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered},
          {TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split},
          {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}};
}

}  // namespace
}  // namespace laconic
