// What ranks of a tensor grid count while they compute is what architecture/grid_cost.hpp says
// without computing: calls and elements, by collective and axes, on every rank.
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "laconic/architecture/grid_cost.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kSamples = 8, kTokens = 5, kSourceTokens = 7, kVocabulary = 32;

at::Tensor token_ids(std::int64_t tokens) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < kSamples * tokens; ++i)
    values.push_back(word_at(key_of(1), static_cast<std::uint64_t>(i)) % kVocabulary);
  return at::tensor(values).view({kSamples, tokens});
}

struct CountCase {
  std::string name;
  Family family;
  Batch batch;
  std::int64_t tokens = kTokens;
  double smoothing = 0;
};

// Of vocabularies that every grid divides. A BERT's words depend on the data: it is asked for
// classes.
std::vector<CountCase> count_cases() {
  const Batch text{{"ids", token_ids(kTokens)}, {"targets", token_ids(kTokens)}};
  const LlamaShape llama{.layers = 2,
                         .width = 48,
                         .heads = 8,
                         .key_heads = 4,
                         .head_width = 8,
                         .hidden = 80,
                         .context = 6,
                         .vocabulary = kVocabulary,
                         .has_qkv_bias = true,
                         .has_qk_norm = true};
  const at::Tensor label = token_ids(1).remainder(4), all = token_ids(1).mul(0);
  return {{"gpt",
           GptShape{.layers = 2, .width = 48, .heads = 4, .context = 6, .vocabulary = kVocabulary},
           text},
          {"llama", llama, text},
          {"bert",
           BertShape{.layers = 2,
                     .width = 48,
                     .heads = 4,
                     .hidden = 64,
                     .context = 6,
                     .vocabulary = kVocabulary,
                     .head = BertHead::classify,
                     .labels = 4},
           Batch{{"ids", token_ids(kTokens)},
                 {"types", token_ids(kTokens).remainder(2)},
                 {"length", all.add(kTokens)},
                 {"label", label}}},
          {"seq2seq",
           Seq2SeqShape{.layers = 1,
                        .decoder_layers = 2,
                        .width = 48,
                        .heads = 4,
                        .hidden = 64,
                        .context = kSourceTokens,
                        .target_context = kTokens,
                        .vocabulary = kVocabulary},
           Batch{{"source", token_ids(kSourceTokens)},
                 {"source_length", all.add(kSourceTokens)},
                 {"ids", token_ids(kTokens)},
                 {"targets", token_ids(kTokens)}},
           kSourceTokens, 0.1}};
}

std::vector<GridPlan> count_plans() {
  return {{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split},
          {TensorMethod::three_d, {.tp = {1, 4, 2}}, TableCut::split},
          {TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::gathered},
          {TensorMethod::three_d, {.tp = {4, 1, 1}}, TableCut::split},
          {TensorMethod::three_d, {.tp = {1, 1, 4}}, TableCut::split},
          {TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split},
          {TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split},
          {TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
          {TensorMethod::two_and_half_d, {.tp = {2, 2, 2}}, TableCut::gathered}};
}

// Calls and elements, by collective and axes.
using CountTable = std::map<std::string, std::pair<double, double>>;

CountTable predicted(const CountCase& c, const GridPlan& plan) {
  constexpr const char* kNames[] = {"gather", "scatter", "sum"};
  CountTable table;
  for (const GridTraffic& t :
       grid_traffic(model_spec(c.family, c.tokens, kTokens), plan,
                    {.samples = kSamples, .has_smoothing = c.smoothing > 0})) {
    auto& [calls, elements] =
        table[fmt::format("{} {}", kNames[static_cast<int>(t.collective)], to_text(t.axes))];
    calls += t.calls;
    elements += t.elements;
  }
  return table;
}

CountTable counted(const TensorGrid& grid) {
  constexpr const char* kNames[] = {"gather", "scatter", "sum"};
  CountTable table;
  for (const auto& [key, count] : grid.counts()) {
    const auto& [call, traffic, axes] = key;
    auto& [calls, elements] =
        table[fmt::format("{} {}", kNames[static_cast<int>(call)], to_text(axes))];
    calls += static_cast<double>(count.calls);
    elements += static_cast<double>(count.elements);
  }
  return table;
}

std::string to_text(const CountTable& table) {
  std::string text;
  for (const auto& [name, count] : table)
    text += fmt::format("{}: {} calls, {} elements\n", name, count.first, count.second);
  return text;
}

TEST(GridCount, RanksReceiveWhatTheCostSays) {
  for (const CountCase& c : count_cases())
    for (const GridPlan& plan : count_plans()) {
      const std::string wanted = to_text(predicted(c, plan));
      std::mutex mutex;
      run_ranks(size(plan.mesh), [&](Transport& transport) {
        Engine engine(transport);
        {
          ProgressThread progress_thread(engine);
          TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank());
          const Pass pass{.label_smoothing = c.smoothing, .grid = &grid};
          Weights weights =
              make_weights(c.family, 7, at::TensorOptions().dtype(at::kDouble), {}, c.tokens,
                           GridPlace{plan, coord_of(plan.mesh, transport.rank())});
          forward_backward(weights, c.batch, pass, 1.0);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(to_text(counted(grid)), wanted)
              << c.name << " by " << name_of(plan.method) << " on " << to_text(plan.mesh);
        }
        engine.flush();
      });
    }
}

}  // namespace
}  // namespace laconic
