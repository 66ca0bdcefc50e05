// A model on a tensor grid is the model of one process: loss, every gradient and every parameter
// after several updates, of all families, by every method, in double.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "laconic/architecture/grid_cost.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/target.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/grid_ops.hpp"
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
                     plan.mesh.tp[2], plan.table == TableCut::split ? "split" : "gathered");
}

std::vector<GridPlan> plans() {
  std::vector<GridPlan> all;
  const auto add = [&](TensorMethod method, std::array<int, 3> tp, TableCut table,
                       std::array<int, 3> order = {0, 1, 2}) {
    all.push_back({method, {.tp = tp, .order = order}, table});
  };
  for (const std::array<int, 3>& tp : {std::array{2, 2, 2},
                                       {1, 4, 1},
                                       {4, 1, 1},
                                       {1, 2, 2},
                                       {2, 4, 1},
                                       {1, 1, 4},
                                       {2, 1, 2},
                                       {1, 4, 2},
                                       {2, 2, 1}})
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
  std::map<std::string, at::Tensor> values;  // after the updates
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
  for (const Parameter& p : weights.parameters) outcome.values[p.name] = p.value.detach().clone();
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
void on_grid(const GridPlan& plan, const std::function<void(TensorGrid&, Rank)>& body) {
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank());
      body(grid, transport.rank());
    }
    engine.flush();
  });
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
    }
  });
  EXPECT_NEAR(loss, wanted.loss, 1e-11);
}

// One of each kind of weights on every grid, all other families on one of each method.
TEST(TensorGrid, TrainsTheModelOfOneProcess) {
  const std::vector<GridPlan> all = plans();
  for (const GridCase& c : cases())
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_on_all = c.name == "gpt" || c.name == "llama tied";
      if (is_on_all || i == 0 || i == 10 || i == 12 || i == 15)
        expect_one_process(c, all[i], 0, {}, 5);
    }
}

// One of each method, with axes of different sizes.
std::vector<GridPlan> some_plans() {
  return {{TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split},
          {TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered},
          {TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split},
          {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}};
}

TEST(TensorGrid, DropsTheSameElementsAsOneProcess) {
  for (const GridCase& c : some_cases())
    for (const GridPlan& plan : some_plans()) expect_one_process(c, plan, 0.2);
}

TEST(TensorGrid, RecomputesAndSplitsBackward) {
  for (const GridCase& c : some_cases()) {
    expect_one_process(c, some_plans()[0], 0.2, {.recompute = true});
    expect_one_process(c, some_plans()[1], 0, {.is_split = true});
    expect_one_process(c, some_plans()[2], 0.2, {.recompute = true, .is_split = true});
  }
}

// What two updates leave on every rank, and all calls of the second, by rank.
struct Overlapped {
  std::vector<Outcome> outcomes;
  std::vector<std::vector<GridCallMade>> calls;
  std::vector<GridCounts> counts;
};

Overlapped overlapped(const GridCase& c, const GridPlan& plan, const StageOptions& options,
                      bool is_on) {
  const auto ranks = static_cast<std::size_t>(size(plan.mesh));
  Overlapped all{std::vector<Outcome>(ranks), std::vector<std::vector<GridCallMade>>(ranks),
                 std::vector<GridCounts>(ranks)};
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    const auto at = static_cast<std::size_t>(rank);
    grid.overlap().enable(is_on);
    Pass pass = pass_of(c, 0.2);
    pass.grid = &grid;
    const GridPlace place{plan, coord_of(plan.mesh, rank)};
    Weights weights = make_weights(c.family, 7, kInDouble, {}, c.tokens(), place);
    trained(weights, c, pass, 1, options);
    grid.clear_counts();
    grid.observe([&](const GridCallMade& call) { all.calls[at].push_back(call); });
    all.outcomes[at] = trained(weights, c, pass, 1, options);
    all.counts[at] = grid.counts();
  });
  return all;
}

std::vector<GridCallMade> along(const std::vector<GridCallMade>& calls, const Axes& axes) {
  std::vector<GridCallMade> some;
  for (const GridCallMade& call : calls)
    if (call.axes == axes) some.push_back(call);
  return some;
}

// All members of a group make the same calls in the same order.
void expect_one_order(const Overlapped& all, const GridPlan& plan) {
  for (Rank rank = 0; rank < size(plan.mesh); ++rank)
    for (const GridCallMade& call : all.calls[static_cast<std::size_t>(rank)])
      for (const Rank other : group_along(plan.mesh, rank, call.axes))
        ASSERT_EQ(along(all.calls[static_cast<std::size_t>(other)], call.axes),
                  along(all.calls[static_cast<std::size_t>(rank)], call.axes))
            << rank << " and " << other;
}

// Also when it is computed once more, and in halves.
TEST(TensorGrid, WeightsThatComeAheadChangeNoBitAndNoCount) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered};
  for (const GridCase& c : some_cases())
    for (const StageOptions& options :
         {StageOptions{}, StageOptions{.recompute = true}, StageOptions{.is_split = true}}) {
      const bool is_plain = !options.recompute && !options.is_split;
      if (c.name != "gpt" && !(c.name == "seq2seq" && is_plain)) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", c.name, options.recompute, options.is_split));
      const Overlapped with = overlapped(c, plan, options, true);
      const Overlapped without = overlapped(c, plan, options, false);
      expect_one_order(with, plan);
      expect_one_order(without, plan);
      EXPECT_EQ(with.counts, without.counts);
      // Something is made sooner, or there is nothing to test.
      EXPECT_NE(with.calls[0], without.calls[0]);
      for (std::size_t rank = 0; rank < with.outcomes.size(); ++rank) {
        EXPECT_EQ(with.outcomes[rank].loss, without.outcomes[rank].loss);
        for (const auto& [name, value] : with.outcomes[rank].values) {
          EXPECT_TRUE(value.equal(without.outcomes[rank].values.at(name))) << name;
          EXPECT_TRUE(with.outcomes[rank].gradients.at(name).equal(
              without.outcomes[rank].gradients.at(name)))
              << name;
        }
      }
    }
}

// Weights of maps that have begun to come by the time of each move of activations, in forward.
std::vector<int> begun_by_then(const std::vector<GridCallMade>& calls, std::uint64_t least) {
  std::vector<int> begun;
  int weights = 0;
  for (const GridCallMade& call : calls) {
    if (call.traffic == Traffic::tp_gradient) break;
    if (call.traffic == Traffic::tp_weight && call.offsets.back() >= least) ++weights;
    if (call.traffic == Traffic::tp_activation && call.call != GridCall::sum)
      begun.push_back(weights);
  }
  return begun;
}

TEST(TensorGrid, WeightsOfOneMapAreAhead) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::split};
  const std::uint64_t width = 48, least = width * width / 2;  // half of the smallest map
  const std::vector<int> with =
      begun_by_then(overlapped(cases()[0], plan, {}, true).calls[0], least);
  // Each of two layers' four maps has one move on this grid, as has the head, whose table is small.
  EXPECT_EQ(with, (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 8, 8}));
}

// Calls and elements by collective and axes.
using Tally = std::map<std::pair<GridCall, std::string>, std::pair<std::uint64_t, double>>;

Tally counted(const GridCounts& counts) {
  Tally tally;
  for (const auto& [key, count] : counts) {
    auto& [calls, elements] = tally[{std::get<0>(key), laconic::to_text(std::get<2>(key))}];
    calls += count.calls;
    elements += static_cast<double>(count.elements);
  }
  return tally;
}

Tally predicted(const GridCase& c, const GridPlan& plan) {
  Tally tally;
  const ModelSpec spec = model_spec(c.family, c.tokens(), kGridTokens);
  for (const GridTraffic& t :
       grid_traffic(spec, plan, {.samples = kGridSamples, .has_smoothing = c.smoothing > 0})) {
    const GridCall call = t.collective == GridCollective::all_gather       ? GridCall::gather
                          : t.collective == GridCollective::reduce_scatter ? GridCall::scatter
                                                                           : GridCall::sum;
    auto& [calls, elements] = tally[{call, laconic::to_text(t.axes)}];
    calls += static_cast<std::uint64_t>(t.calls);
    elements += t.elements;
  }
  return tally;
}

// On every rank, as whole numbers. Vocabularies that grids divide: otherwise ranks differ.
TEST(TensorGrid, CountsWhatTheFormulasSay) {
  std::vector<GridCase> all = cases();
  // Sums of three elements are not the same for all of four ranks.
  std::erase_if(
      all, [](const GridCase& c) { return c.name.starts_with("bert") && c.name != "bert masked"; });
  for (GridCase& c : all) {
    std::visit([](auto& shape) { shape.vocabulary = 32; }, c.family);
    for (const GridPlan& plan : plans()) {
      SCOPED_TRACE(c.name + " on " + to_text(plan));
      const Tally wanted = predicted(c, plan);
      std::mutex mutex;
      on_grid(plan, [&](TensorGrid& grid, Rank rank) {
        Pass pass = pass_of(c, 0);
        pass.grid = &grid;
        Weights weights =
            make_weights(c.family, 7, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, rank)});
        forward_backward(weights, c.batch, pass, 1.0);
        const std::lock_guard lock(mutex);
        const Tally got = counted(grid.counts());
        for (const auto& [key, count] : wanted) {
          ASSERT_TRUE(got.contains(key)) << static_cast<int>(key.first) << " " << key.second;
          EXPECT_EQ(got.at(key).first, count.first)
              << "calls " << static_cast<int>(key.first) << " " << key.second << " rank " << rank;
          EXPECT_EQ(got.at(key).second, count.second)
              << "elements " << static_cast<int>(key.first) << " " << key.second;
        }
        EXPECT_EQ(got.size(), wanted.size());
      });
    }
  }
}

TEST(TensorGrid, HoldsExactlyItsShareOfTheModel) {
  for (GridCase& c : cases()) {
    if (c.name.starts_with("bert")) continue;  // biases of a few classes are everywhere
    std::visit([](auto& shape) { shape.vocabulary = 32; }, c.family);
    const std::int64_t whole = parameter_count(model_spec(c.family, c.tokens()));
    for (const GridPlan& plan : plans()) {
      if (plan.method == TensorMethod::one_d) continue;  // has copies of vectors
      const std::int64_t ranks = size(plan.mesh);
      std::int64_t mine = 0;
      for (const Parameter& p :
           make_empty_weights(c.family, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, 0)})
               .parameters)
        mine += p.value.numel();
      EXPECT_EQ(mine * ranks, whole) << c.name << " on " << to_text(plan);
    }
  }
}

// Three words on four parts: the last rank has none.
TEST(TensorGrid, ARankWithoutWordsDoesNotHang) {
  const GridCase c{"gpt",
                   GptShape{.layers = 1, .width = 16, .heads = 4, .context = 6, .vocabulary = 3},
                   Batch{{"ids", numbers({kGridSamples, kGridTokens}, 3, 1)},
                         {"targets", numbers({kGridSamples, kGridTokens}, 3, 2)}}};
  expect_one_process(c, {TensorMethod::three_d, {.tp = {1, 4, 1}}, TableCut::split}, 0);
  expect_one_process(c, {TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split}, 0);
  expect_one_process(c, {TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::gathered}, 0);
}

// A sum of squares minus the square of a sum would have nothing left in float32.
TEST(TensorGrid, NormsDoNotCancel) {
  const std::int64_t rows = 6, width = 64;
  const at::Tensor x =
      at::arange(rows * width, at::kDouble).mul(0.7).sin().view({rows, width}).add(1e4);
  const at::Tensor weight = at::full({width}, 1.0), bias = at::full({width}, 0.0);
  const at::Tensor mean = x.mean(1, true);
  const at::Tensor wanted = x.sub(mean).div(x.sub(mean).square().mean(1, true).add(1e-5).sqrt());
  const GridPlan plan{TensorMethod::three_d, {.tp = {1, 1, 4}}, TableCut::split};
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    const auto mine = [&](const at::Tensor& t) {
      return t.narrow(-1, rank * width / 4, width / 4).to(at::kFloat).contiguous();
    };
    const at::Tensor y =
        grid_norm({grid, 0, 0}, mine(x), mine(weight), mine(bias), 1e-5, {Axis::tp2}, width);
    // x itself is rounded to 1e-3 of its deviation there.
    EXPECT_LT(y.sub(mine(wanted)).abs().max().item<double>(), 3e-3) << rank;
  });
}

TEST(TensorGrid, AllRanksDecodeTheSame) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 3, 1}}, TableCut::split};
  std::mutex mutex;
  std::map<int, at::Tensor> first;  // by codec and call
  const GridCodecs coarse = [](const GridSite&, GridCall) {
    return GridCodec{.codec = Quantise{.bits = 2}};
  };
  const GridCodecs exact = [](const GridSite&, GridCall) { return GridCodec{}; };
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      for (const bool is_coarse : {false, true}) {
        TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(),
                        is_coarse ? coarse : exact, 5);
        const at::Tensor x =
            at::arange(4 * 300, at::kFloat).mul(0.01 * (1 + transport.rank())).sin().view({4, 300});
        const GridSite site{.block = 1, .place = is_coarse ? 1 : 0, .columns = 300};
        const std::vector<at::Tensor> results = {
            grid.gather(x, equal_rows(4, 3), {Axis::tp1}, site), grid.sum(x, {Axis::tp1}, site)};
        const std::lock_guard lock(mutex);
        for (int call = 0; call < 2; ++call) {
          const auto [found, is_new] = first.try_emplace(2 * call + (is_coarse ? 1 : 0),
                                                         results[static_cast<std::size_t>(call)]);
          EXPECT_TRUE(is_new || found->second.equal(results[static_cast<std::size_t>(call)]))
              << call << " on rank " << transport.rank();
        }
      }
    }
    engine.flush();
  });
  EXPECT_FALSE(first.at(0).equal(first.at(1)));
  EXPECT_FALSE(first.at(2).equal(first.at(3)));
}

TEST(TensorGrid, DrawsEveryParameterTheSameWhereverItLies) {
  for (const GridCase& c : some_cases()) {
    const Weights whole = make_weights(c.family, 7, kInDouble, {}, c.tokens());
    for (const GridPlan& plan : plans())
      for (Rank rank = 0; rank < size(plan.mesh); ++rank) {
        const GridPlace place{plan, coord_of(plan.mesh, rank)};
        const Weights part = make_weights(c.family, 7, kInDouble, {}, c.tokens(), place);
        for (std::size_t p = 0; p < part.parameters.size(); ++p)
          EXPECT_TRUE(part.parameters[p].value.equal(
              shard_from(whole.parameters[p].value, place, part.spec.parameters[p])))
              << c.name << " " << part.parameters[p].name << " on " << to_text(plan);
      }
  }
}

}  // namespace
}  // namespace laconic
