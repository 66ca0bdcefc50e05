// Losses over completions alone: every target counts the same, whichever microbatch, stage or rank
// it is in.
#include <ATen/ops/log_softmax.h>
#include <nlohmann/json.hpp>

#include "laconic/base/target.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/train/batch.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class PromptRun : public PipelineParallel {
 protected:
  // Completions of very different lengths, so that samples differ in how many targets they have.
  PromptRun() {
    std::ofstream file(folder_ / "pairs.jsonl");
    for (int i = 0; i < 150; ++i)
      file << nlohmann::json{{"prompt", fmt::format("What is {} and {}? ", i % 13, i % 7)},
                             {"completion", std::string(static_cast<std::size_t>(i % 11 * 4 + 1),
                                                        static_cast<char>('a' + i % 5))}}
           << "\n";
    file.close();
    const PrepareReport report = prepare({.inputs = {folder_ / "pairs.jsonl"},
                                          .output = folder_ / "pairs",
                                          .validation_share = 0.1});
    EXPECT_EQ(report.train.prompts, 135u);
    EXPECT_EQ(report.valid.prompts, 15u);
  }

  RunConfig config_of(const std::string& name, std::int64_t pp, std::int64_t dp = 1) {
    RunConfig c = config(name, pp, dp);
    c.run.precision = RunPrecision::float64;
    c.model.layers = 2;
    c.model.dropout = 0;
    c.data.train = folder_ / "pairs";
    c.data.valid = folder_ / "pairs-valid";
    return c;
  }
};

TEST_F(PromptRun, TheLossIsTheMeanOverTokensOfCompletions) {
  RunConfig c = config_of("one", 1);
  c.train.steps = 1;
  const TrainSummary summary = train({.config = c});
  const Dataset data = open_dataset(c.data.train, c.model.context, 257);
  ASSERT_TRUE(has_prompts(data));
  const SampleOrder order = sample_order(c, samples_in(data), 0);
  std::vector<std::int64_t> ids;
  for (std::uint64_t s = 0; s < 16; ++s)
    ids.push_back(static_cast<std::int64_t>(sample_at(order, s)));
  const Batch batch = make_batch(Completion{}, data, ids, at::kCPU);
  const Weights weights =
      make_weights(GptShape{.layers = 2, .width = 16, .heads = 2, .context = 24, .vocabulary = 257},
                   1, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor log_p = at::log_softmax(forward_logits(weights, batch["ids"]), -1);
  const at::Tensor targets = batch["targets"].flatten();
  double nats = 0;
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < targets.numel(); ++r) {
    const auto target = targets[r].item<std::int64_t>();
    if (target == kNoTarget) continue;
    nats -= log_p[r][target].item<double>();
    ++count;
  }
  EXPECT_GT(count, 50);
  EXPECT_LT(count, targets.numel() - 50) << "there is something to leave out";
  EXPECT_NEAR(summary.loss, nats / static_cast<double>(count), 1e-12);
  EXPECT_LT(summary.evaluation->tokens, summary.evaluation->samples * c.model.context);
}

TEST_F(PromptRun, AnyMeshAndAnyMicrobatchTrainTheSameModel) {
  const RunConfig one = config_of("one", 1);
  const TrainSummary alone = train({.config = one});
  for (const auto& [pp, dp, micro] :
       {std::tuple{1, 1, 1}, {1, 1, 16}, {1, 2, 4}, {1, 4, 1}, {2, 1, 4}, {2, 2, 2}, {4, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{}x{}, microbatches of {}", pp, dp, micro));
    RunConfig c = config_of(fmt::format("{}x{}x{}", pp, dp, micro), pp, dp);
    c.train.microbatch = micro;
    const TrainSummary together = run(c);
    EXPECT_NEAR(together.loss, alone.loss, 1e-12);
    EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-12);
    EXPECT_EQ(together.evaluation->tokens, alone.evaluation->tokens);
    EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-11);
  }
  RunConfig all = config_of("all", 1);
  all.data.mask_prompts = false;
  const TrainSummary unmasked = train({.config = all});
  EXPECT_GT(std::abs(unmasked.loss - alone.loss), 1e-3);
  EXPECT_GT(unmasked.evaluation->tokens, alone.evaluation->tokens);
}

TEST_F(PromptRun, APipelineIsOneProcessBitForBitAndGoesOnAsIfNeverStopped) {
  RunConfig one = config_of("one", 1);
  one.run.precision = RunPrecision::float32;
  const std::string expected = model_bytes(train({.config = one}).checkpoint);
  RunConfig c = config_of("three", 3);
  c.run.precision = RunPrecision::float32;
  EXPECT_TRUE(model_bytes(run(c).checkpoint) == expected);
  RunConfig parts = config_of("parts", 3);
  parts.run.precision = RunPrecision::float32;
  parts.optimiser.decay_steps = 3;
  parts.train.steps = 2;
  run(parts);
  parts.optimiser.decay_steps = 0;
  parts.train.steps = 3;
  EXPECT_TRUE(model_bytes(run(parts, "auto").checkpoint) == expected);
}

}  // namespace
}  // namespace laconic
