#include "laconic/train/host_measure.hpp"

#include <c10/core/TensorOptions.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "laconic/config/model_family.hpp"
#include "laconic/train/pipeline_plan.hpp"

namespace laconic {
namespace {

RunConfig tiny_run(ModelKind kind) {
  RunConfig config;
  config.model = {
      .kind = kind, .layers = 2, .width = 32, .heads = 2, .context = 16, .vocabulary = 64};
  if (kind == ModelKind::gnmt || kind == ModelKind::seq2seq) config.task.kind = TaskKind::translate;
  if (kind == ModelKind::bert) config.task.kind = TaskKind::masked;
  config.train.batch = config.train.microbatch = 4;
  return config;
}

struct Told {
  std::vector<std::string> lines;
  HostMeasure about(std::vector<RunConfig> models) {
    return {.models = std::move(models),
            .memory_bytes = 1 << 30,
            .cores = 2,
            .tell = [this](const std::string& line) { lines.push_back(line); }};
  }
  bool has(const std::string& part) const {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
};

TEST(HostMeasure, RatesAreThereForEveryPrecisionAndFamily) {
  Told told;
  std::vector<RunConfig> models = {tiny_run(ModelKind::gpt)};
  for (const ModelKind kind :
       {ModelKind::llama, ModelKind::bert, ModelKind::seq2seq, ModelKind::lstm, ModelKind::gnmt})
    models.push_back(tiny_run(kind));
  World alone;
  const std::vector<MeasuredRank> ranks = measure_for_hosts(alone, told.about(models));
  ASSERT_EQ(ranks.size(), 1U);
  const MeasuredRank& rank = ranks.front();
  for (const double rate : rank.passes.multiply_adds_per_second) EXPECT_GT(rate, 0);
  EXPECT_EQ(rank.families[static_cast<std::size_t>(ModelKind::gpt)], PassRates());
  for (std::size_t kind = 1; kind < kModelKindNames.size(); ++kind)
    for (const double rate : rank.families[kind].multiply_adds_per_second)
      EXPECT_GT(rate, 0) << kModelKindNames[kind].name;
  // On a processor one is the other.
  EXPECT_EQ(rank.passes.multiply_adds_per_second[static_cast<std::size_t>(RunPrecision::tf32)],
            rank.passes.multiply_adds_per_second[static_cast<std::size_t>(RunPrecision::float32)]);
  for (std::size_t i = 0; i < rank.encode.size(); ++i) {
    EXPECT_GT(rank.encode[i], 0) << MeasuredRank::kCodecs[i];
    EXPECT_GT(rank.decode[i], 0) << MeasuredRank::kCodecs[i];
  }
  EXPECT_GT(rank.feedback[1], 0);
  EXPECT_LT(rank.feedback[1], rank.encode[1]);
  EXPECT_GT(rank.copy_bytes_per_second, 0);
  EXPECT_GT(rank.factors.product, 0);
  for (const char* part : {"GNMT", "bfloat16", "float64", "4 samples", "copies, codecs"})
    EXPECT_TRUE(told.has(part)) << part;
}

// What would take too long is measured with fewer samples, and says so.
TEST(HostMeasure, TakesFewerSamplesWhereMoreWouldTakeTooLong) {
  Told told;
  HostMeasure asked = told.about({tiny_run(ModelKind::gpt)});
  asked.longest_seconds = 1e-9;
  World alone;
  const PassRates rates = measure_for_hosts(alone, asked).front().passes;
  for (const double rate : rates.multiply_adds_per_second) EXPECT_GT(rate, 0);
  EXPECT_EQ(rates.pass_samples, ByPrecision()) << "a single sample tells nothing about passes";
  EXPECT_TRUE(told.has("1 of 4 samples, which would take"));
}

// As a step computes it, and as its multiply-adds are counted: with the words that were drawn.
TEST(HostMeasure, ASampledSoftmaxIsNotOverAllWords) {
  RunConfig config = tiny_run(ModelKind::lstm);
  config.model.vocabulary = 50'000;
  const auto head_seconds = [&](std::int64_t sampled) {
    config.task.sampled = sampled;
    const BlockTimes times = measure_blocks(config, family_of(config, {}), at::kFloat).back();
    return times.forward + times.backward;
  };
  EXPECT_LT(4 * head_seconds(16), head_seconds(0));
}

}  // namespace
}  // namespace laconic
