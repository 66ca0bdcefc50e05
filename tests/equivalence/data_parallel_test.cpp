// Any number of data-parallel ranks trains the model that one process trains.
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/reduce/test_model.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/run_hooks.hpp"
#include "laconic/train/step.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/flat_blocks.hpp"
#include "laconic/update/learning_rate.hpp"

namespace laconic {
namespace {

// Sums the ranks' gradients of a step: by rank, the flat buffer of each block.
using Reduce = std::function<void(std::vector<FlatBlocks>& by_rank, std::int64_t step)>;

void sum_in_rank_order(std::vector<FlatBlocks>& by_rank, std::int64_t) {
  for (std::size_t b = 0; b < by_rank.front().size(); ++b)
    for (std::size_t r = 1; r < by_rank.size(); ++r)
      by_rank.front().buffer(b).add_(by_rank[r].buffer(b));
}

class DataParallel : public testing::Test {
 protected:
  DataParallel() {
    std::string text;
    for (int i = 0; i < 700; ++i)
      text += fmt::format("Line {} of a text that repeats itself. ", i % 37);
    std::ofstream(folder_ / "text.txt") << text;
    prepare(
        {.inputs = {folder_ / "text.txt"}, .output = folder_ / "data", .validation_share = 0.1});
  }

  RunConfig config(const std::string& name, std::int64_t dp) {
    RunConfig c;
    c.run.folder = folder_ / name;
    c.model = {.layers = 2, .width = 16, .heads = 2, .context = 24, .dropout = 0.1};
    c.data.train = folder_ / "data";
    c.data.valid = folder_ / "data-valid";
    c.train.steps = 4;
    c.train.batch = 24;
    c.optimiser.lr = 1e-2;
    c.optimiser.min_lr = 1e-3;
    c.optimiser.warmup = 2;
    c.report.tensorboard = false;
    c.mesh.dp = dp;
    return c;
  }

  // All ranks as threads; the summary of rank 0.
  static TrainSummary run(const RunConfig& c, const std::string& resume = "none",
                          const RunHooks& hooks = {}) {
    TrainSummary first;
    run_ranks(static_cast<int>(c.mesh.dp), [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = transport.size()}, progress_thread);
      const TrainSummary summary =
          train({.config = c, .start = {.resume = resume}, .world = &world}, hooks);
      engine.flush();
      if (transport.rank() == 0) first = summary;
    });
    return first;
  }

  // The same run in one process, rank after rank, with gradients summed by `reduce`.
  static std::vector<at::Tensor> model_of(const RunConfig& c, const Reduce& reduce) {
    Start start = start_run(c, {.resume = "none", .follows = true}, {.vocabulary = 257});
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    const SampleOrder order = sample_order(c, samples_in(data), 0);
    std::vector<FlatBlocks> by_rank;
    for (std::int64_t r = 0; r < c.mesh.dp; ++r) by_rank.emplace_back(start.weights);
    for (std::int64_t step = 0; step < c.train.steps; ++step) {
      for (std::int64_t r = 0; r < c.mesh.dp; ++r) {
        accumulate(c, start.weights, data, order, step, r);
        for (std::size_t b = 0; b < by_rank.front().size(); ++b)
          by_rank[static_cast<std::size_t>(r)].take_gradients(start.weights, b);
        clear_gradients(start.weights);
      }
      {
        const at::NoGradGuard no_grad;
        reduce(by_rank, step);
      }
      by_rank.front().give_gradients(start.weights);
      const double norm = global_norm(start.weights.parameters);
      apply(optimiser_spec(c.optimiser), start.state.optimiser, start.weights.parameters,
            learning_rate(c.optimiser, c.train.steps, step),
            norm > c.train.clip ? c.train.clip / norm : 1);
      clear_gradients(start.weights);
    }
    std::vector<at::Tensor> values;
    for (const Parameter& p : start.weights.parameters) values.push_back(p.value.detach());
    return values;
  }

  static void accumulate(const RunConfig& c, Weights& weights, const Dataset& data,
                         const SampleOrder& order, std::int64_t step, std::int64_t rank) {
    const std::int64_t micro = c.microbatch_size();
    const double weight = static_cast<double>(micro) / static_cast<double>(c.train.batch);
    Stage stage(weights, {0, block_count(weights.spec)}, {});
    for (std::int64_t first = 0; first < c.local_batch(); first += micro) {
      std::vector<std::int64_t> ids;
      for (std::int64_t s = 0; s < micro; ++s)
        ids.push_back(static_cast<std::int64_t>(
            sample_at(order, static_cast<std::uint64_t>(step * c.train.batch +
                                                        rank * c.local_batch() + first + s))));
      const Pass pass{
          .dropout = c.model.dropout,
          .sample_keys = dropout_keys(static_cast<std::uint64_t>(c.run.seed), step, ids)};
      const Batch batch = make_batch(task_of(c), data, ids, at::kCPU);
      const at::Tensor loss = stage.forward(0, batch, pass, {})[0];
      stage.backward(0, {at::scalar_tensor(weight, loss.options())}, {});
    }
    for (std::size_t p = 0; p < weights.parameters.size(); ++p) complete_gradient(weights, p);
  }

  // Parameters of a checkpoint, in the order of the model.
  static std::vector<at::Tensor> parameters(const std::string& checkpoint, const RunConfig& c) {
    Weights weights = make_empty_weights(read_family(checkpoint), tensor_options(c));
    TrainState state;
    load_checkpoint(checkpoint, weights, state);
    std::vector<at::Tensor> values;
    for (const Parameter& p : weights.parameters) values.push_back(p.value.detach());
    return values;
  }

  static double largest_difference(const std::vector<at::Tensor>& a,
                                   const std::vector<at::Tensor>& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (std::size_t p = 0; p < a.size(); ++p)
      most = std::max(most, a[p].sub(b[p]).abs().max().item<double>());
    return most;
  }

  static bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    bool same = a.size() == b.size();
    for (std::size_t p = 0; same && p < a.size(); ++p) same = a[p].equal(b[p]);
    return same;
  }

  const TemporaryFolder folder_;
};

TEST_F(DataParallel, InDoublePrecisionAnyNumberOfRanksTrainsTheSameModel) {
  for (const std::int64_t shards : {0, 24}) {
    const auto layout = [&](std::int64_t dp) {
      RunConfig c = config(fmt::format("dp{}-{}", dp, shards), dp);
      c.run.precision = RunPrecision::float64;
      c.data.shards = shards;
      return c;
    };
    const RunConfig one = layout(1);
    const TrainSummary alone = train({.config = one});
    const auto expected = parameters(alone.checkpoint, one);
    for (const std::int64_t dp : {2, 3, 4, 8}) {
      SCOPED_TRACE(fmt::format("dp {}, shards {}", dp, shards));
      const RunConfig c = layout(dp);
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-12);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-12);
      EXPECT_LT(largest_difference(parameters(together.checkpoint, c), expected), 1e-12);
    }
  }
}

TEST_F(DataParallel, InSinglePrecisionTheResultIsTheRankOrderedSumBitForBit) {
  for (const std::int64_t dp : {2, 3, 4, 8})
    for (const std::int64_t micro : {0, 1}) {
      SCOPED_TRACE(fmt::format("dp {}, microbatch {}", dp, micro));
      RunConfig c = config(fmt::format("dp{}-{}", dp, micro), dp);
      c.train.microbatch = micro;
      c.dp_gradient.algorithm = AllReduceKind::direct;
      const TrainSummary together = run(c);
      EXPECT_TRUE(same_bits(parameters(together.checkpoint, c), model_of(c, sum_in_rank_order)));
    }
}

// What SumModel loses, in the one process of model_of().
Reduce lose_like(const RunConfig& c, const std::vector<BlockLayout>& layouts) {
  const auto model =
      std::make_shared<test::SumModel<float>>(policy_of(c), layouts, static_cast<int>(c.mesh.dp));
  return [model](std::vector<FlatBlocks>& by_rank, std::int64_t step) {
    const auto floats = [](const at::Tensor& buffer) {
      return std::vector<float>(buffer.data_ptr<float>(),
                                buffer.data_ptr<float>() + buffer.numel());
    };
    std::vector<std::vector<std::vector<float>>> inputs;
    for (const FlatBlocks& blocks : by_rank) {
      inputs.emplace_back();
      for (std::size_t b = 0; b < blocks.size(); ++b)
        inputs.back().push_back(floats(blocks.buffer(b)));
    }
    const auto sums = model->sum(static_cast<std::uint64_t>(step), inputs);
    for (std::size_t b = 0; b < sums.size(); ++b)
      std::copy(sums[b].begin(), sums[b].end(), by_rank.front().buffer(b).data_ptr<float>());
    model->commit();
  };
}

TEST_F(DataParallel, ALossyCodecIsAModelOfTheSameLossInOneProcess) {
  const std::vector<std::vector<std::string>> policies = {
      {"codec=quantise:bits=4"},
      {"codec=half", "feedback=none"},
      {"codec=top_k:keep=0.05", "down=quantise:bits=8", "feedback=up"},
      {"codec=sign", "warmup=1"},
      {"method=power_sgd", "rank=2"},
      {"method=power_sgd", "rank=4", "codec=quantise:bits=8"}};
  for (std::size_t i = 0; i < policies.size(); ++i)
    for (const std::int64_t dp : {2, 3}) {
      RunConfig c = config(fmt::format("lossy{}-{}", i, dp), dp);
      for (const std::string& set : policies[i])
        ASSERT_TRUE(apply_set("dp.gradient." + set, c).empty()) << set;
      SCOPED_TRACE(fmt::format("{}, dp {}", policies[i].front(), dp));
      const TrainSummary together = run(c);
      const Weights weights = make_weights(read_family(together.checkpoint), 1, tensor_options(c));
      EXPECT_TRUE(same_bits(parameters(together.checkpoint, c),
                            model_of(c, lose_like(c, block_layouts(weights)))));
    }
}

TEST_F(DataParallel, OverlapChangesNothing) {
  RunConfig c = config("with", 3);
  const auto with = parameters(run(c).checkpoint, c);
  c.run.folder = folder_ / "without";
  c.dp_gradient.overlap = false;
  EXPECT_TRUE(same_bits(parameters(run(c).checkpoint, c), with));
}

// Every policy: interrupted after some steps and resumed, the run is the one that never stopped.
TEST_F(DataParallel, EveryPolicyResumesBitForBit) {
  const std::vector<std::vector<std::pair<std::string, std::string>>> policies = {
      {{"dp.gradient.codec", "quantise:bits=4"}},
      {{"dp.gradient.codec", "top_k:keep=0.1"}, {"dp.gradient.feedback", "up"}},
      {{"dp.gradient.method", "power_sgd"}, {"dp.gradient.rank", "2"}},
      {{"dp.gradient.method", "compressed_adam"},
       {"dp.gradient.codec", "sign"},
       {"dp.gradient.warmup", "2"}},
      {{"local.steps", "2"}, {"dp.gradient.codec", "quantise:bits=8"}}};
  for (std::size_t i = 0; i < policies.size(); ++i) {
    RunConfig c = config(fmt::format("whole{}", i), 3);
    c.train.steps = 6;
    c.evaluate.every = 0;
    for (const auto& [key, value] : policies[i])
      ASSERT_TRUE(apply_set(key + "=" + value, c).empty()) << key;
    SCOPED_TRACE(fmt::format("{} {}", name_in(kGradientMethodNames, c.dp_gradient.method),
                             c.dp_gradient.codec));
    const auto whole = parameters(run(c).checkpoint, c);
    RunConfig parts = c;
    parts.run.folder = folder_ / fmt::format("parts{}", i);
    for (const std::int64_t steps : {2, 4, 6}) {
      parts.train.steps = steps;
      parts.optimiser.decay_steps = 6;
      run(parts, "auto");
    }
    const std::string last = parts.run.folder + "/checkpoints/step-00000006";
    EXPECT_TRUE(same_bits(parameters(last, c), whole));
  }
}

// What the ranks of a checkpoint owe together, element by element: by block, contributions and what
// owners of chunks have lost. Read from the files alone.
std::map<std::string, std::vector<double>> owed_in(const std::string& checkpoint,
                                                   const GradientPolicy& policy,
                                                   const std::vector<BlockLayout>& layouts,
                                                   int dp) {
  std::map<std::string, std::vector<double>> totals;
  for (int r = 0; r < dp; ++r) {
    const std::string path = fmt::format("{}/rank-{:05}.safetensors", checkpoint, r);
    if (!std::filesystem::exists(path)) continue;
    const SafetensorsFile file(path);
    for (const BlockLayout& layout : layouts) {
      std::vector<double>& total = totals[layout.name];
      total.resize(elements_of(layout));
      const auto offsets = offsets_of(policy, total.size(), dp);
      const auto add = [&](const std::string& name, std::size_t from) {
        const SafetensorsEntry* entry = file.find(name);
        if (entry == nullptr) return;
        const at::Tensor values = tensor_from_bytes(file.bytes(*entry), Dtype::f32, entry->shape);
        for (std::int64_t i = 0; i < values.numel(); ++i)
          total.at(from + static_cast<std::size_t>(i)) += values[i].item<double>();
      };
      add("gradient." + layout.name + ".up", 0);
      add("gradient." + layout.name + ".down", offsets[static_cast<std::size_t>(r)]);
    }
  }
  return totals;
}

// The first step after a change of ranks is one of the sums that the new ranks make of all that the
// old ones owed: with an update that is skipped, the checkpoint behind it has it all still.
TEST_F(DataParallel, ACheckpointWithResidualsReloadsAtAnyNumberOfRanks) {
  RunConfig c = config("a", 4);
  c.dp_gradient.codec = "quantise:bits=2";
  c.train.steps = 3;
  const std::string from = run(c).checkpoint;
  const std::vector<BlockLayout> layouts =
      block_layouts(make_weights(read_family(from), 1, tensor_options(c)));
  const auto expected = owed_in(from, policy_of(c), layouts, 4);
  double outstanding = 0;
  for (const auto& [name, total] : expected)
    for (const double x : total) outstanding += std::abs(x);
  ASSERT_GT(outstanding, 0.1);
  for (const std::int64_t dp : {1, 2, 3, 8}) {
    SCOPED_TRACE(dp);
    RunConfig other = c;
    other.mesh.dp = dp;
    other.train.steps = 4;
    other.train.non_finite = NonFinite::skip;
    other.run.folder = folder_ / fmt::format("to{}", dp);
    const TrainSummary summary = run(other, from, {.spoiled = {3}});
    EXPECT_EQ(summary.first_step, 3);
    EXPECT_EQ(summary.skipped, 1);
    EXPECT_TRUE(same_bits(parameters(summary.checkpoint, other), parameters(from, c)));
    const auto found = owed_in(summary.checkpoint, policy_of(other), layouts, static_cast<int>(dp));
    for (const auto& [name, total] : expected)
      for (std::size_t i = 0; i < total.size(); ++i)
        ASSERT_NEAR(found.at(name)[i], total[i], 2e-7 * std::abs(total[i]) + 1e-12)
            << name << ", element " << i;
    other.train.steps = 6;
    EXPECT_LT(run(other, summary.checkpoint).loss, std::log(257.0));
  }
}

TEST_F(DataParallel, AGradientThatIsNotFiniteIsSkippedByAllAndLeavesNoTrace) {
  for (const char* method : {"codec", "power_sgd"}) {
    RunConfig c = config(method, 2);
    ASSERT_TRUE(apply_set(std::string("dp.gradient.method=") + method, c).empty());
    c.dp_gradient.codec = "quantise:bits=4";
    c.dp_gradient.rank = 2;
    c.train.non_finite = NonFinite::skip;
    c.optimiser.lr = c.optimiser.min_lr = 1e30;  // the second step's loss is not finite
    c.optimiser.warmup = 0;
    c.train.steps = 3;
    c.checkpoint.every = 1;
    c.checkpoint.keep = 0;
    EXPECT_EQ(run(c).skipped, 2);
    const auto file = [&](int step, const std::string& name) {
      const MappedFile mapped(
          fmt::format("{}/checkpoints/step-{:08}/{}", c.run.folder, step, name));
      return std::string(mapped.text());
    };
    for (const char* name : {"model.safetensors", "optimiser.safetensors", "rank-00000.safetensors",
                             "rank-00001.safetensors"})
      for (const int step : {2, 3})
        EXPECT_TRUE(file(step, name) == file(1, name)) << name << " after step " << step;
  }
}

TEST_F(DataParallel, LocalUpdatesThatNeverRecoverEndTheRunOnAllRanks) {
  RunConfig c = config("a", 2);
  c.local.steps = 4;
  c.checkpoint.every = 0;
  c.train.non_finite = NonFinite::skip;
  c.optimiser.lr = c.optimiser.min_lr = 1e30;
  c.optimiser.warmup = 0;
  c.train.steps = 40;
  try {
    run(c);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("does not recover. The last good state is in"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(DataParallel, RanksThatBeginWithDifferentModelsAreRefused) {
  RunConfig c = config("a", 2);
  try {
    run_ranks(2, [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = 2}, progress_thread);
      RunConfig mine = c;
      mine.run.seed += transport.rank();
      train({.config = mine, .world = &world});
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 and rank 0 hold different models"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(DataParallel, ARefusalOfRankZeroIsEverybodysRefusal) {
  const RunConfig c = config("a", 2);
  run(c);
  try {
    run(c);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("already holds step-00000004"), std::string::npos)
        << error.what();
  }
}

TEST_F(DataParallel, AMeshOfAnotherSizeIsRefused) {
  EXPECT_THROW(train({.config = config("a", 4)}), ConfigError);
}

}  // namespace
}  // namespace laconic
