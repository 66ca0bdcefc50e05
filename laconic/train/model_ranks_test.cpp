// Models that ranks of a tensor grid hold together say what a model in one process says: every
// token, and numbers to 1e-10 in double.
#include "laconic/train/model_ranks.hpp"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "laconic/base/test_effort.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/model/decode.hpp"
#include "laconic/train/generate.hpp"
#include "laconic/train/predict.hpp"
#include "laconic/train/translate.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using Ids = std::vector<std::int64_t>;

// Large numbers, so that what is likely changes from place to place.
Weights lively_weights(const Family& family, const GridPlace& place = {}) {
  Weights weights = make_weights(family, 3, at::TensorOptions().dtype(at::kDouble), {}, 0, place);
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (p.value.dim() == 2) p.value.mul_(6);
  return weights;
}

std::vector<GridPlan> grids() {
  std::vector<GridPlan> all = {
      {TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split},
      {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
      {TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::split},
      {TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split},
      {TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::gathered},
      {TensorMethod::two_and_half_d, {.tp = {2, 2, 2}}, TableCut::gathered},
      {TensorMethod::three_d, {.tp = {1, 2, 2}}, TableCut::split}};
  if (!is_thorough()) all.resize(3);
  return all;
}

// Runs `use` on every rank of the grid, with its part of the model.
void on_grid(const Family& family, const GridPlan& plan,
             const std::function<void(const Weights&, const ModelRanks&)>& use) {
  SCOPED_TRACE(fmt::format("{} on {} {}x{}x{}", to_text(family), name_of(plan.method),
                           plan.mesh.tp[0], plan.mesh.tp[1], plan.mesh.tp[2]));
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      World world(plan.mesh, progress_thread);
      TensorGrid grid(progress_thread, plan, plan.mesh, world.rank());
      use(lively_weights(family, {plan, world.coord()}), {.world = &world, .grid = &grid});
      world.gather({});
    }
    engine.flush();
  });
}

const GptShape kGpt{.layers = 2, .width = 24, .heads = 4, .context = 8, .vocabulary = 29};

LlamaShape llama() {
  return {.layers = 2,
          .width = 24,
          .heads = 4,
          .key_heads = 2,
          .head_width = 8,
          .hidden = 40,
          .context = 8,
          .vocabulary = 31,
          .has_qkv_bias = true,
          .has_qk_norm = true,
          .is_tied = true};
}

BertShape bert(BertHead head) {
  return {.layers = 2,
          .width = 24,
          .heads = 4,
          .hidden = 32,
          .context = 8,
          .vocabulary = 31,
          .head = head,
          .labels = 3};
}

Seq2SeqShape seq2seq(NormPlace norm) {
  const bool is_pre = norm == NormPlace::pre;
  return {.layers = 1,
          .decoder_layers = 2,
          .width = 24,
          .heads = 4,
          .hidden = 32,
          .context = 8,
          .target_context = 7,
          .vocabulary = 13,
          .norm = norm,
          .positions = is_pre ? PositionKind::sinusoidal : PositionKind::learned,
          .sharing = is_pre ? TableSharing::all : TableSharing::none};
}

bool never_ends(std::int64_t) {
  return true;
}

// More tokens than the context holds: it is read anew on the way.
GenerateRequest request(double temperature) {
  return {.prompt = {3, 11, 7}, .tokens = 12, .rule = {.temperature = temperature}, .seed = 5};
}

TEST(ModelRanks, ContinueTextsTokenByTokenAsOneProcessDoes) {
  for (const Family& family : std::vector<Family>{kGpt, llama()}) {
    const Weights whole = lively_weights(family);
    const Ids greedy = generate(whole, request(0), never_ends),
              drawn = generate(whole, request(1), never_ends);
    ASSERT_EQ(drawn.size(), 12U);
    EXPECT_NE(greedy, drawn);
    for (const GridPlan& plan : grids())
      on_grid(family, plan, [&](const Weights& weights, const ModelRanks& ranks) {
        EXPECT_EQ(generate(weights, request(0), never_ends, ranks), greedy) << ranks.world->rank();
        EXPECT_EQ(generate(weights, request(1), never_ends, ranks), drawn) << ranks.world->rank();
      });
  }
}

// Every number of them is computed once.
TEST(ModelRanks, HaveTheSameLogitsBitForBit) {
  for (const Family& family : std::vector<Family>{kGpt, llama()})
    for (const GridPlan& plan : grids())
      on_grid(family, plan, [&](const Weights& weights, const ModelRanks& ranks) {
        Decoder decoder(weights, ranks.grid);
        for (const Ids& ids : {Ids{3, 11, 7}, Ids{5}}) {
          const at::Tensor logits = decoder.read(ids).contiguous();
          const std::vector<double> mine(logits.data_ptr<double>(),
                                         logits.data_ptr<double>() + logits.numel());
          EXPECT_EQ(mine, ranks.of_first(mine)) << ranks.world->rank();
        }
      });
}

// Machines that round differently might draw another token: the draws of rank 0 count.
TEST(ModelRanks, GoOnFromWhatRank0Chose) {
  const Ids wanted = generate(lively_weights(kGpt), request(1), never_ends);
  on_grid(kGpt, grids()[1], [&](const Weights& weights, const ModelRanks& ranks) {
    GenerateRequest mine = request(1);
    mine.seed += static_cast<std::uint64_t>(ranks.world->rank());
    EXPECT_EQ(generate(weights, mine, never_ends, ranks), wanted) << ranks.world->rank();
  });
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-10) << i;
}

void expect_same(const ModelAnswer& got, const ModelAnswer& wanted) {
  expect_near(got.logits, wanted.logits);
  expect_near(got.log_probabilities, wanted.log_probabilities);
  EXPECT_NEAR(got.log_probability, wanted.log_probability, 1e-10);
  EXPECT_EQ(got.begin, wanted.begin);
  EXPECT_EQ(got.end, wanted.end);
  EXPECT_EQ(got.ids, wanted.ids);
  ASSERT_EQ(got.guesses.size(), wanted.guesses.size());
  for (std::size_t g = 0; g < got.guesses.size(); ++g)
    for (std::size_t i = 0; i < got.guesses[g].best.size(); ++i) {
      EXPECT_EQ(got.guesses[g].best[i].first, wanted.guesses[g].best[i].first);
      EXPECT_NEAR(got.guesses[g].best[i].second, wanted.guesses[g].best[i].second, 1e-10);
    }
}

// Three texts, which no grid of ours divides.
const std::vector<PredictInput> kTexts = {
    {.ids = {3, 11, 7, 12, 2}}, {.ids = {9}}, {.ids = {5, 7}}};
const PredictRule kRule{.mask = 7, .translation = {.beam = 2, .begin = 1, .end = 0}};

TEST(ModelRanks, AnswerAsOneProcessDoes) {
  const std::vector<Family> families = {kGpt,
                                        llama(),
                                        bert(BertHead::masked),
                                        bert(BertHead::classify),
                                        bert(BertHead::regress),
                                        bert(BertHead::span),
                                        seq2seq(NormPlace::pre)};
  for (const Family& family : families) {
    const std::vector<ModelAnswer> wanted = predict(lively_weights(family), kTexts, kRule);
    for (const GridPlan& plan : grids())
      on_grid(family, plan, [&](const Weights& weights, const ModelRanks& ranks) {
        const std::vector<ModelAnswer> got = predict(weights, kTexts, kRule, ranks);
        ASSERT_EQ(got.size(), ranks.is_first() ? kTexts.size() : 0U);
        for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], wanted[i]);
      });
  }
}

// Hypotheses of a beam change rows, and texts that have ended leave: both between ranks.
TEST(ModelRanks, TranslateAsOneProcessDoes) {
  const std::vector<Ids> sources = {{3, 11, 7, 12, 2, 0}, {9, 0}, {5, 7, 0}, {8, 8, 0}, {4, 0}};
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post})
    for (const std::int64_t beam : {1, 3}) {
      const TranslationRule rule{.beam = beam, .begin = 1, .end = 0};
      const auto wanted = translate(lively_weights(seq2seq(norm)), sources, rule);
      for (const GridPlan& plan : grids())
        on_grid(seq2seq(norm), plan, [&](const Weights& weights, const ModelRanks& ranks) {
          const auto got = translate(weights, sources, rule, ranks);
          ASSERT_EQ(got.size(), wanted.size());
          for (std::size_t t = 0; t < got.size(); ++t) {
            EXPECT_EQ(got[t].ids, wanted[t].ids) << t << " on rank " << ranks.world->rank();
            EXPECT_EQ(got[t].is_ended, wanted[t].is_ended) << t;
            EXPECT_NEAR(got[t].log_probability, wanted[t].log_probability, 1e-10) << t;
          }
        });
    }
}

}  // namespace
}  // namespace laconic
