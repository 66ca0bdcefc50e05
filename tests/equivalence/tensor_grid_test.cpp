// A model on a tensor grid is the model of one process: loss, every gradient and every parameter
// after several updates, of all families, by every method, in double.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "grid_cases.hpp"
#include "laconic/architecture/grid_cost.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/block_ops.hpp"

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

// Whether what moves divides by all ranks of a group: otherwise some get more than others.
bool divides_evenly(const GridCase& c) {
  return !c.name.starts_with("bert") || c.name == "bert masked";
}

void expect_tally(const Tally& got, const Tally& wanted, int ranks, const std::string& whose) {
  EXPECT_EQ(got.size(), wanted.size());
  for (const auto& [key, count] : wanted) {
    const std::string what =
        fmt::format("{} {} of {}", static_cast<int>(key.first), key.second, whose);
    ASSERT_TRUE(got.contains(key)) << what;
    EXPECT_EQ(got.at(key).first, count.first * static_cast<std::uint64_t>(ranks)) << what;
    EXPECT_NEAR(got.at(key).second, count.second * ranks, 1e-6) << what;
  }
}

// On every rank, as whole numbers; where sums of three elements or vocabularies do not divide, on
// all ranks together. And all members of a group call in one order.
void expect_counts(const GridCase& c, const GridPlan& plan, bool is_even) {
  SCOPED_TRACE(c.name + " on " + to_text(plan));
  const Tally wanted = predicted(c, plan);
  CallsOfRanks calls(static_cast<std::size_t>(size(plan.mesh)));
  Tally all;
  std::mutex mutex;
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    grid.observe(
        [&](const GridCallMade& call) { calls[static_cast<std::size_t>(rank)].push_back(call); });
    Pass pass = pass_of(c, 0);
    pass.grid = &grid;
    Weights weights =
        make_weights(c.family, 7, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, rank)});
    forward_backward(weights, c.batch, pass, 1.0);
    const std::lock_guard lock(mutex);
    const Tally got = counted(grid.counts());
    if (is_even) expect_tally(got, wanted, 1, fmt::format("rank {}", rank));
    for (const auto& [key, count] : got) {
      all[key].first += count.first;
      all[key].second += count.second;
    }
  });
  expect_tally(all, wanted, size(plan.mesh), "all ranks");
  expect_one_order(calls, plan);
}

TEST(TensorGrid, CountsWhatTheFormulasSay) {
  for (GridCase& c : cases()) {
    std::visit([](auto& shape) { shape.vocabulary = 32; }, c.family);
    for (const GridPlan& plan : plans_for(c)) expect_counts(c, plan, divides_evenly(c));
  }
  for (const GridCase& c : some_cases())
    for (const GridPlan& plan : some_plans()) {
      expect_counts(c, plan, false);
      expect_counts(c, kept(plan), false);
    }
}

// Encoded, computed once more and in halves, the order is one, too.
TEST(TensorGrid, MembersOfAGroupCallInOneOrderWithCodecs) {
  const GridCodecs codecs = [](const GridSite& site, GridCall call) {
    if (site.is_small) return GridCodec();
    return GridCodec{
        .codec = parse_codec("quantise:bits=4,rounding=stochastic,grid=ends"),
        .has_feedback = site.traffic == Traffic::tp_weight && call != GridCall::gather};
  };
  for (const GridCase& c : some_cases())
    for (const GridPlan& plan : is_thorough() ? plans() : some_plans()) {
      if (c.name != "gpt" && c.name != "seq2seq" && !is_thorough()) continue;
      SCOPED_TRACE(c.name + " on " + to_text(plan));
      CallsOfRanks calls(static_cast<std::size_t>(size(plan.mesh)));
      on_grid(
          plan,
          [&](TensorGrid& grid, Rank rank) {
            grid.overlap().enable(true);
            grid.observe([&](const GridCallMade& call) {
              calls[static_cast<std::size_t>(rank)].push_back(call);
            });
            Pass pass = pass_of(c, 0.1);
            pass.grid = &grid;
            Weights weights = make_weights(c.family, 7, at::TensorOptions().dtype(at::kFloat), {},
                                           c.tokens(), {plan, coord_of(plan.mesh, rank)});
            for (const StageOptions& options :
                 {StageOptions{.recompute = true}, StageOptions{.is_split = true}}) {
              grid.begin(options.recompute ? 0 : 1, 0);
              forward_backward(weights, c.batch, pass, 1.0, options);
              grid.commit();
            }
          },
          codecs);
      expect_one_order(calls, plan);
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

// What `act` throws.
template <class Act>
std::string thrown_by(const Act& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// Where the axes of rows and features are of one size, so are the matrices, and nothing else would
// notice that samples and features are others.
TEST(TensorGrid, AMapOfWhatTheLastOneHasNotLeftThrows) {
  const std::vector<GridCase> all = cases();
  const GridCase& c = *std::ranges::find(all, "bert masked", &GridCase::name);
  constexpr std::size_t kQuery = 0, kKey = 2, kOut = 6;  // a bias stands behind each
  for (const GridPlan& plan :
       {GridPlan{TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split},
        GridPlan{TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}})
    on_grid(plan, [&](TensorGrid& grid, Rank rank) {
      const Weights weights =
          make_weights(c.family, 7, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, rank)});
      const Pass pass{.grid = &grid};
      BlockOps ops(weights, 1, kGridSamples, kGridTokens, pass);
      const auto map = [&](const at::Tensor& x, std::size_t at) {
        return ops.linear(x, {at, at + 1});
      };
      const at::Tensor x = at::full({ops.samples(RowsAt::stream) * kGridTokens, 24}, 1, kInDouble);
      const std::string layer = "bert.encoder.layer.0.attention.";
      const std::string out = thrown_by([&] { map(x, kOut); });
      EXPECT_NE(
          out.find(layer + "output.dense.weight takes inner activations, and the block before "
                           "has left the stream"),
          std::string::npos)
          << out;
      const at::Tensor inner = map(x, kQuery);
      ASSERT_EQ(inner.sizes(), x.sizes());
      const std::string key = thrown_by([&] { map(inner, kKey); });
      EXPECT_NE(key.find(layer + "self.key.weight takes the stream, and " + layer +
                         "self.query.weight has left inner activations"),
                std::string::npos)
          << key;
      EXPECT_EQ(map(inner, kOut).sizes(), x.sizes());
    });
}

// Exchanges two heads of a layer: the columns of queries, keys and values that make them, and with
// `is_whole` the rows of the map that takes them.
void swap_heads(Weights& weights, std::int64_t a, std::int64_t b, bool is_whole) {
  const at::NoGradGuard no_grad;
  const auto& shape = std::get<GptShape>(weights.family);
  const std::int64_t each = shape.width / shape.heads;
  const auto swap = [&](at::Tensor t, std::int64_t dim, std::int64_t first) {
    const at::Tensor left = t.narrow(dim, first + a * each, each),
                     right = t.narrow(dim, first + b * each, each), kept = left.clone();
    left.copy_(right);
    right.copy_(kept);
  };
  for (Parameter& p : weights.parameters) {
    if (p.name.starts_with("h.0.attn.c_attn"))
      for (std::int64_t part = 0; part < 3; ++part)
        swap(p.value, p.value.dim() - 1, part * shape.width);
    if (is_whole && p.name == "h.0.attn.c_proj.weight") swap(p.value, 0, 0);
  }
}

// A model does not know its heads by their order, and does know which one a row of the map behind
// them takes: so heads that change places, and ranks, change nothing, and those that do so on one
// side change the loss as they do in one process.
TEST(TensorGrid, HeadsAreThoseOfTheirRows) {
  const GridCase c = cases()[0];
  const auto made = [&] { return make_weights(c.family, 7, kInDouble, {}, c.tokens()); };
  const auto loss_of = [&](Weights& weights) {
    return forward_backward(weights, c.batch, pass_of(c, 0), 1.0);
  };
  Weights untouched = made();
  const double plain = loss_of(untouched);
  for (const bool is_whole : {true, false}) {
    Weights swapped = made();
    swap_heads(swapped, 0, 3, is_whole);
    const double wanted = loss_of(swapped);
    EXPECT_EQ(std::abs(wanted - plain) < 1e-11, is_whole) << wanted << " and " << plain;
    for (const GridPlan& plan : some_plans()) {
      SCOPED_TRACE(to_text(plan));
      std::mutex mutex;
      double loss = 0;
      on_grid(plan, [&](TensorGrid& grid, Rank rank) {
        const GridPlace place{plan, coord_of(plan.mesh, rank)};
        Weights weights = make_weights(c.family, 7, kInDouble, {}, c.tokens(), place);
        for (std::size_t p = 0; p < weights.parameters.size(); ++p) {
          const at::NoGradGuard no_grad;
          weights.parameters[p].value.copy_(
              shard_from(swapped.parameters[p].value.detach(), place, weights.spec.parameters[p]));
        }
        Pass pass = pass_of(c, 0);
        pass.grid = &grid;
        const double mine = forward_backward(weights, c.batch, pass, 1.0);
        const std::lock_guard lock(mutex);
        loss += mine;
      });
      EXPECT_NEAR(loss, wanted, 1e-11);
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
