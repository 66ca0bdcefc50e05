// Counts against tables and formulas that were derived by themselves: elements of a GPT with b = 8
// samples of s = 5 tokens, h = 48 and 2 layers.
#include "laconic/architecture/grid_cost.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

constexpr GptShape kGpt{.layers = 2, .width = 48, .heads = 4, .context = 5, .vocabulary = 64};
constexpr std::int64_t kSamples = 8;
constexpr double kRows = 8 * 5, kWidth = 48;  // bs, h
constexpr double kBsh = kRows * kWidth, kSquare = kWidth * kWidth;

GridPlan plan_of(TensorMethod method, std::array<int, 3> grid, TableCut table = TableCut::split) {
  return {.method = method, .mesh = {.tp = grid}, .table = table};
}

bool is_linear(const GridTraffic& t) {
  return t.use == CollectiveUse::input || t.use == CollectiveUse::weight ||
         t.use == CollectiveUse::output;
}

// Sums over some rows: what a table of counts has in one cell.
template <class F>
double sum_where(const std::vector<GridTraffic>& traffic, F holds) {
  std::vector<GridTraffic> rows;
  for (const GridTraffic& t : traffic)
    if (holds(t)) rows.push_back(t);
  return elements_of(rows);
}

std::vector<GridTraffic> traffic_of(GridPlan plan, GridKeep keep, const Family& family = kGpt) {
  plan.keep = keep;
  return grid_traffic(model_spec(family, 5), plan, {.samples = kSamples});
}

// Maps of the layers alone.
double layers(const GridPlan& plan, GridKeep keep, bool is_backward) {
  return sum_where(traffic_of(plan, keep), [&](const GridTraffic& t) {
    return is_linear(t) && t.is_backward == is_backward && (t.block == 1 || t.block == 2);
  });
}

// docs/tensor.md has the same table; a simulator that computes with all ranks counted these.
TEST(GridCost, ThreeDimensionalGridsMoveWhatASimulatorCounted) {
  struct Row {
    std::array<int, 3> grid;
    double forward, backward_cache, backward_nocache, norms, vectors;
  };
  for (const Row& row :
       {Row{{2, 2, 2}, 14592, 14592, 24864, 100, 504}, Row{{1, 4, 1}, 11520, 11520, 17280, 0, 504},
        Row{{4, 1, 1}, 41472, 41472, 82944, 0, 1008}, Row{{1, 2, 2}, 15360, 15360, 22080, 200, 336},
        Row{{2, 4, 1}, 12672, 12672, 22464, 0, 672}, Row{{1, 4, 2}, 11520, 11520, 16800, 100, 336},
        Row{{1, 1, 4}, 34560, 34560, 48960, 600, 504}}) {
    const GridPlan plan = plan_of(TensorMethod::three_d, row.grid);
    SCOPED_TRACE(to_text(plan.mesh));
    EXPECT_EQ(layers(plan, GridKeep::gathered, false), row.forward);
    EXPECT_EQ(layers(plan, GridKeep::gathered, true), row.backward_cache);
    EXPECT_EQ(layers(plan, GridKeep::nothing, false), row.forward);
    EXPECT_EQ(layers(plan, GridKeep::nothing, true), row.backward_nocache);
    for (const bool is_backward : {false, true}) {
      const auto traffic = traffic_of(plan, GridKeep::gathered);
      EXPECT_EQ(sum_where(traffic,
                          [&](const GridTraffic& t) {
                            return t.use == CollectiveUse::norm && t.is_backward == is_backward;
                          }),
                row.norms);
      EXPECT_EQ(sum_where(traffic,
                          [&](const GridTraffic& t) {
                            return t.use == CollectiveUse::vector && t.block > 0 &&
                                   t.is_backward == is_backward;
                          }),
                row.vectors);
    }
  }
}

TEST(GridCost, CallsAreThoseOfTheSimulator) {
  const auto traffic = traffic_of(plan_of(TensorMethod::three_d, {2, 2, 2}), GridKeep::gathered);
  const auto calls = [&](bool is_backward, GridCollective collective, bool is_of_linear) {
    int sum = 0;
    for (const GridTraffic& t : traffic)
      if (t.is_backward == is_backward && t.collective == collective &&
          (is_of_linear ? is_linear(t) && (t.block == 1 || t.block == 2)
                        : t.use == CollectiveUse::norm))
        sum += t.calls;
    return sum;
  };
  EXPECT_EQ(calls(false, GridCollective::all_gather, true), 16);
  EXPECT_EQ(calls(false, GridCollective::reduce_scatter, true), 8);
  EXPECT_EQ(calls(true, GridCollective::all_gather, true), 8);
  EXPECT_EQ(calls(true, GridCollective::reduce_scatter, true), 16);
  EXPECT_EQ(calls(false, GridCollective::all_reduce, false), 10);
  EXPECT_EQ(calls(true, GridCollective::all_reduce, false), 5);
}

TEST(GridCost, OneDimensionMovesWhatMegatronDoes) {
  for (const int p : {2, 4}) {
    const double each = 2 * 4.0 * (p - 1) / p * kBsh;  // 2 layers
    const GridPlan whole = plan_of(TensorMethod::one_d, {1, p, 1}),
                   sequence = plan_of(TensorMethod::one_d_sequence, {1, p, 1});
    EXPECT_EQ(layers(whole, GridKeep::nothing, false), each);
    EXPECT_EQ(layers(whole, GridKeep::nothing, true), each);
    EXPECT_EQ(layers(sequence, GridKeep::nothing, false), each);
    EXPECT_EQ(layers(sequence, GridKeep::gathered, true), each);
    EXPECT_EQ(layers(sequence, GridKeep::nothing, true), each * 6 / 4);
  }
}

// Weights are cut over the depth, too, and gathered over it: (q d - 1) / (q q d) of them come,
// instead of (q - 1) / (q q) and sums of their gradients over the depth.
TEST(GridCost, TwoAndMoreDimensionsMoveInputsAlongRowsAndWeightsAlongColumnsAndDepth) {
  for (const auto& [q, d] : {std::pair{2, 1}, {4, 1}, {2, 2}, {4, 2}}) {
    const GridPlan plan =
        plan_of(d == 1 ? TensorMethod::two_d : TensorMethod::two_and_half_d, {q, q, d});
    const double ranks = q * q * d;
    const double each = 2 * (7 * (q - 1) * kBsh + 12 * (q * d - 1) * kSquare) / ranks;
    EXPECT_EQ(layers(plan, GridKeep::nothing, false), each) << q << " " << d;
    EXPECT_EQ(layers(plan, GridKeep::gathered, true), each) << q << " " << d;
    EXPECT_EQ(layers(plan, GridKeep::nothing, true), 2 * each) << q << " " << d;
  }
}

// Sums of each axis by the formulas of docs/tensor.md.
TEST(GridCost, AxesCarryWhatTheFormulasSay) {
  for (const std::array<int, 3>& grid : {std::array{2, 2, 2}, {1, 4, 2}, {4, 2, 1}}) {
    const GridPlan plan = plan_of(TensorMethod::three_d, grid);
    const ModelSpec spec = model_spec(kGpt, 5);
    auto traffic = forward_of_layers(spec, grid_traffic(spec, plan, {.samples = kSamples}));
    std::erase_if(traffic, [](const GridTraffic& t) { return !is_linear(t); });
    const double ranks = tp_size(plan.mesh);
    const auto [pi, pj, pl] = grid;
    EXPECT_EQ(carried(traffic, plan.mesh),
              (std::array{2 * 12 * (pi - 1) * kSquare / ranks, 2 * 4 * (pj - 1) * kBsh / ranks,
                          2 * 12 * (pl - 1) * kBsh / ranks}));
  }
  const Mesh mesh{.tp = {2, 1, 4}};
  EXPECT_EQ(carried({{.axes = {Axis::tp0, Axis::tp2}, .calls = 1, .elements = 7}}, mesh),
            (std::array{4.0, 0.0, 3.0}));
}

TEST(GridCost, TablesMoveByTheirCut) {
  const std::array grid = {2, 2, 2};
  const auto table = [&](TableCut cut, std::size_t block, bool is_backward) {
    const auto traffic = traffic_of(plan_of(TensorMethod::three_d, grid, cut), GridKeep::gathered);
    return sum_where(traffic, [&](const GridTraffic& t) {
      return is_linear(t) && t.block == block && t.is_backward == is_backward;
    });
  };
  const double vh = 64 * kWidth, bsv = kRows * 64;
  for (const bool is_backward : {false, true}) {
    EXPECT_EQ(table(TableCut::split, 0, is_backward), (vh + kBsh) / 8);
    EXPECT_EQ(table(TableCut::split, 3, is_backward), (kBsh + vh + bsv) / 8);
    EXPECT_EQ(table(TableCut::gathered, 0, is_backward), (3 * vh + kBsh) / 8);
    EXPECT_EQ(table(TableCut::gathered, 3, is_backward), (kBsh + 3 * vh) / 8);
  }
}

TEST(GridCost, ALossGathersThreeNumbersOfARow) {
  const GridPlan plan = plan_of(TensorMethod::three_d, {1, 4, 2});
  for (const bool has_smoothing : {false, true}) {
    const auto traffic = grid_traffic(model_spec(kGpt, 5), plan,
                                      {.samples = kSamples, .has_smoothing = has_smoothing});
    EXPECT_EQ(sum_where(traffic, [](const GridTraffic& t) { return t.use == CollectiveUse::loss; }),
              3 * (has_smoothing ? 4 : 3) * kRows / 2);
  }
}

int calls_of(const std::vector<GridTraffic>& traffic, std::size_t block, CollectiveUse use) {
  int sum = 0;
  for (const GridTraffic& t : traffic)
    if (t.block == block && !t.is_backward && t.use == use) sum += t.calls;
  return sum;
}

TEST(GridCost, MapsOfOneInputAreOne) {
  const GridPlan plan = plan_of(TensorMethod::three_d, {2, 2, 2});
  const LlamaShape llama{.layers = 1,
                         .width = 48,
                         .heads = 4,
                         .key_heads = 2,
                         .head_width = 16,
                         .hidden = 64,
                         .context = 5,
                         .vocabulary = 64,
                         .has_qkv_bias = true,
                         .has_qk_norm = true};
  const auto traffic = traffic_of(plan, GridKeep::gathered, llama);
  EXPECT_EQ(calls_of(traffic, 1, CollectiveUse::input), 4);  // qkv, o, gate and up, down
  EXPECT_EQ(calls_of(traffic, 1, CollectiveUse::weight), 4);
  EXPECT_EQ(calls_of(traffic, 1, CollectiveUse::output), 4);
  EXPECT_EQ(calls_of(traffic, 1, CollectiveUse::vector), 3);  // stream, inner, common
  EXPECT_EQ(calls_of(traffic, 1, CollectiveUse::norm), 2);    // RMSNorm: one each
  const BertShape bert{
      .layers = 1, .width = 48, .heads = 4, .hidden = 96, .context = 5, .vocabulary = 64};
  EXPECT_EQ(calls_of(traffic_of(plan, GridKeep::gathered, bert), 1, CollectiveUse::input), 4);
}

// Queries of a decoder's second attention take the stream, keys and values the memory, which may
// have another length.
TEST(GridCost, AttentionToAMemoryTakesTwoInputs) {
  const Seq2SeqShape shape{.layers = 1,
                           .decoder_layers = 1,
                           .width = 48,
                           .heads = 4,
                           .hidden = 96,
                           .context = 10,
                           .target_context = 5,
                           .vocabulary = 64};
  const ModelSpec spec = model_spec(shape, 10, 5);
  const GridPlan plan = plan_of(TensorMethod::three_d, {1, 2, 1});
  const auto traffic = grid_traffic(spec, plan, {.samples = kSamples});
  const std::size_t encoder = 1, decoder = 3;
  EXPECT_EQ(calls_of(traffic, encoder, CollectiveUse::input), 2);  // rows are gathered by `up`
  EXPECT_EQ(calls_of(traffic, decoder, CollectiveUse::input), 4);
  const auto inputs = [&](std::size_t block) {
    return sum_where(traffic, [&](const GridTraffic& t) {
      return t.block == block && !t.is_backward && t.use == CollectiveUse::input;
    });
  };
  EXPECT_EQ(inputs(encoder), 2 * 80 * kWidth / 2);
  EXPECT_EQ(inputs(decoder), (3 * 40 + 80) * kWidth / 2);
  // The norm of what the encoder left, where features are cut.
  const GridPlan cut = plan_of(TensorMethod::three_d, {1, 1, 2});
  EXPECT_EQ(sum_where(grid_traffic(spec, cut, {.samples = kSamples}),
                      [&](const GridTraffic& t) {
                        return t.block == 2 && !t.is_backward && t.use == CollectiveUse::norm;
                      }),
            2 * 80);
}

TEST(GridCost, OneRankReceivesNothing) {
  for (const auto& row : kTensorMethodNames)
    EXPECT_TRUE(traffic_of(plan_of(row.value, {1, 1, 1}), GridKeep::nothing).empty()) << row.name;
}

TEST(GridCost, NormsAreSharedButForTheWholeStreamOfOneD) {
  const ModelSpec spec = model_spec(kGpt, 5);
  for (const auto& [plan, parts] : {std::pair{GridPlan{}, 1},
                                    {plan_of(TensorMethod::one_d, {1, 4, 1}), 1},
                                    {plan_of(TensorMethod::one_d_sequence, {1, 4, 1}), 4},
                                    {plan_of(TensorMethod::two_and_half_d, {2, 2, 2}), 8},
                                    {plan_of(TensorMethod::three_d, {2, 2, 2}), 8}}) {
    EXPECT_EQ(grid_normed_elements(spec, plan, 0, kSamples), 0) << "the embedding has none";
    EXPECT_EQ(grid_normed_elements(spec, plan, 1, kSamples), 2 * kBsh / parts);
    EXPECT_EQ(grid_normed_elements(spec, plan, 3, kSamples), kBsh / parts);
  }
}

}  // namespace
}  // namespace laconic
