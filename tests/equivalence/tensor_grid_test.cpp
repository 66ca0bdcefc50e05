// A model on a tensor grid is the model of one process: loss, every gradient and every parameter
// after several updates, of all families, by every method, in double.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "grid_cases.hpp"
#include "laconic/architecture/grid_cost.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/model/grid_ops.hpp"

namespace laconic {
namespace {

// Quickly, one family on every grid and all others on one of each method.
std::vector<GridPlan> plans_for(const GridCase& c) {
  const std::vector<GridPlan> all = plans();
  if (c.name == "gpt" || is_thorough()) return all;
  return {all[0], all[10], all[12], all[15]};
}

TEST(TensorGrid, TrainsTheModelOfOneProcess) {
  for (const GridCase& c : cases())
    for (const GridPlan& plan : plans_for(c)) expect_one_process(c, plan, 0, {}, 5);
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
    for (const GridPlan& plan : plans_for(c)) {
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

// Parameters and moments as they lie in memory, on every rank; gradients are of the same sizes
// (expect_one_process()). But for 1d everything is cut by all axes that is not one number for each
// class or each token.
TEST(TensorGrid, HoldsExactlyItsShareOfTheModel) {
  for (GridCase& c : cases()) {
    std::visit([](auto& shape) { shape.vocabulary = 32; }, c.family);
    const ModelSpec spec = model_spec(c.family, c.tokens());
    for (const GridPlan& plan : plans()) {
      SCOPED_TRACE(c.name + " on " + to_text(plan));
      const int ranks = size(plan.mesh);
      std::int64_t share = 0;
      for (const ParameterSpec& p : spec.parameters) {
        const int parts = extent(plan.mesh, axes_of(layout_at({plan}, p)));
        const bool is_few =
            p.role == Role::stream_few || p.role == Role::inner_few || p.role == Role::table_bias;
        EXPECT_TRUE(parts == ranks || is_few || plan.method == TensorMethod::one_d) << p.name;
        EXPECT_EQ(elements_of(p) % parts, 0) << p.name;
        share += elements_of(p) / parts;
      }
      EXPECT_EQ(grid_holding(spec, plan, {}).parameters, static_cast<double>(share));
      for (Rank rank = 0; rank < ranks; ++rank) {
        const Weights weights = make_empty_weights(c.family, kInDouble, {}, c.tokens(),
                                                   {plan, coord_of(plan.mesh, rank)});
        const OptimiserState state = make_optimiser_state(weights.parameters);
        std::int64_t parameters = 0, moments = 0;
        for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
          parameters += weights.parameters[i].value.numel();
          moments += state.moment1[i].numel() + state.moment2[i].numel();
        }
        EXPECT_EQ(parameters, share) << rank;
        EXPECT_EQ(moments, 2 * share) << rank;
      }
    }
  }
}

// --- what it answers

// Hidden tokens may be impossible: minus infinity on both sides.
void expect_same_answers(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(got.defined(), wanted.defined()) << what;
  if (!got.defined()) return;
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  EXPECT_TRUE(got.isinf().equal(wanted.isinf())) << what;
  expect_same(got.masked_fill(got.isinf(), 0), wanted.masked_fill(wanted.isinf(), 0), 1, what);
}

bool has_logits(const Family& family) {
  const auto* bert = std::get_if<BertShape>(&family);
  return bert == nullptr || bert->head == BertHead::masked || bert->head == BertHead::pretraining;
}

// One of each method, and of 3d with each way of cutting the table.
std::vector<GridPlan> answering_plans() {
  if (is_thorough()) return plans();
  std::vector<GridPlan> some = some_plans();
  some.push_back({TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split});
  some.push_back({TensorMethod::two_and_half_d, {.tp = {2, 2, 2}}, TableCut::gathered});
  return some;
}

TEST(TensorGrid, HasTheLogitsOfOneProcess) {
  for (const GridCase& c : cases()) {
    const Weights whole = make_weights(c.family, 7, kInDouble, {}, c.tokens());
    const at::Tensor logits = has_logits(c.family) ? forward_logits(whole, c.batch) : at::Tensor();
    at::Tensor first, second;
    forward_loss(whole, c.batch, {.predictions = &first, .second_predictions = &second});
    EXPECT_TRUE(logits.defined() || first.defined()) << c.name;
    for (const GridPlan& plan : answering_plans()) {
      SCOPED_TRACE(c.name + " on " + to_text(plan));
      std::mutex mutex;
      on_grid(plan, [&](TensorGrid& grid, Rank rank) {
        const Weights weights =
            make_weights(c.family, 7, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, rank)});
        at::Tensor all, mine, my_second;
        if (logits.defined()) all = forward_logits(weights, c.batch, {.grid = &grid});
        forward_loss(weights, c.batch,
                     {.predictions = &mine, .second_predictions = &my_second, .grid = &grid});
        const std::lock_guard lock(mutex);
        expect_same_answers(all, logits, fmt::format("logits on rank {}", rank));
        if (rank != 0) return;  // which speaks for the grid
        expect_same_answers(mine, first, "predictions");
        expect_same_answers(my_second, second, "second predictions");
      });
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

// The last microbatch of an evaluation: members have different shares, and those of one line of the
// grid others than those of the next.
TEST(TensorGrid, SamplesThatDoNotDivideAreGatheredInOrder) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 2, 1}}, TableCut::split};
  const Axes cut = {Axis::tp0, Axis::tp1};
  const at::Tensor all = at::arange(7 * 3, at::kDouble).view({7, 3});
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    const Range mine = samples_at(grid, cut, 7), line = samples_at(grid, {Axis::tp0}, 7);
    const at::Tensor got =
        perform({grid, 0, 0}, {MoveKind::gather_rows, {Axis::tp1}},
                all.narrow(0, mine.begin, mine.size()), {7, 1}, cut, Traffic::tp_activation);
    EXPECT_TRUE(got.equal(all.narrow(0, line.begin, line.size()))) << rank;
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
