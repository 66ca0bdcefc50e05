// Any pipeline trains the model that one process trains.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>

#include "laconic/base/test_effort.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/file/test_size_limit.hpp"
#include "lossy_model.hpp"
#include "pipeline_ranks.hpp"

#include "laconic/policy/class_policy.hpp"

namespace laconic {
namespace {

void flip_bit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
  file.seekg(middle);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle).put(byte);
}

// Parameters, moments and losses: the files of the checkpoint are the same, byte for byte.
TEST_F(PipelineParallel, EveryScheduleTrainsTheModelOfOneProcessBitForBit) {
  const TrainSummary alone = train({.config = config("one", 1)});
  const std::string expected = model_bytes(alone.checkpoint);
  for (const std::int64_t pp : {1, 2, 3, 4, 8})
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v"})
      for (const bool recompute : {false, true}) {
        const bool is_interleaved = std::string(kind) == "interleaved";
        const bool is_v = std::string(kind) == "zb_v";
        if ((is_interleaved && pp == 3) || ((is_interleaved || is_v) && pp == 8))
          continue;  // 8 microbatches, 8 blocks
        if (recompute && pp != 2) continue;
        SCOPED_TRACE(fmt::format("{} on {}, recompute {}", kind, pp, recompute));
        RunConfig c = config(fmt::format("{}{}{}", kind, pp, recompute), pp);
        c.pipeline.schedule = kind;
        c.pipeline.chunks = is_interleaved || is_v ? 2 : 1;
        c.model.recompute = recompute;
        const TrainSummary together = run(c);
        EXPECT_EQ(together.loss, alone.loss);
        EXPECT_EQ(together.evaluation->loss, alone.evaluation->loss);
        EXPECT_TRUE(model_bytes(together.checkpoint) == expected);
      }
}

TEST_F(PipelineParallel, InDoublePrecisionAnyMeshTrainsTheSameModel) {
  RunConfig one = config("one", 1);
  one.run.precision = RunPrecision::float64;
  const TrainSummary alone = train({.config = one});
  for (const std::int64_t pp : {1, 2, 3, 4})
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v"})
      for (const bool is_fused : {false, true}) {
        const bool is_interleaved = std::string(kind) == "interleaved";
        const bool is_v = std::string(kind) == "zb_v";
        if (is_interleaved && pp == 3) continue;
        SCOPED_TRACE(fmt::format("{} on {}, fused {}", kind, pp, is_fused));
        RunConfig c = config(fmt::format("{}{}{}", kind, pp, is_fused), pp, 2);
        c.run.precision = RunPrecision::float64;
        c.pipeline.schedule = kind;
        c.pipeline.chunks = is_interleaved || is_v ? 2 : 1;
        c.embedding_tied.fused = is_fused;
        const TrainSummary together = run(c);
        EXPECT_NEAR(together.loss, alone.loss, 1e-12);
        EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-12);
        EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-12);
      }
}

TEST_F(PipelineParallel, AnyNumberOfMicrobatchesIsThatOfOneProcess) {
  for (const std::int64_t micro : {1, 4, 8, 16}) {
    SCOPED_TRACE(micro);
    RunConfig c = config(fmt::format("one{}", micro), 1);
    c.train.microbatch = micro;
    const std::string expected = model_bytes(train({.config = c}).checkpoint);
    for (const char* kind : {"gpipe", "1f1b", "zero_bubble"}) {
      c.run.folder = folder_ / fmt::format("{}{}", kind, micro);
      c.mesh.pp = 3;
      c.pipeline.schedule = kind;
      EXPECT_TRUE(model_bytes(run(c).checkpoint) == expected) << kind;
    }
  }
}

struct LossyCase {
  const char* name;
  std::vector<std::string> sets;
  bool depends_on_schedule = false;
};
const std::vector<LossyCase> kLossy = {
    {"direct", {"pp.activation.codec=quantise:bits=4", "pp.gradient.codec=quantise:bits=8"}},
    {"delta",
     {"pp.activation.codec=quantise:bits=3", "pp.activation.memory=delta",
      "pp.activation.first=quantise:bits=8", "pp.gradient.codec=quantise:bits=6",
      "model.dropout_by_sample=true"}},
    {"delta both ways",
     {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
      "pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
      "pp.activation.reference=q8"}},
    {"small budget",
     {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
      "pp.activation.budget=65536"}},
    {"rotated",
     {"pp.activation.codec=quantise:bits=4,block=32,rotate=true",
      "pp.gradient.codec=quantise:bits=6"}},
    {"epilogue",
     {"pp.gradient.codec=low_rank:rank=4", "pp.gradient.memory=feedback",
      "pp.gradient.when=epilogue"},
     true},
    {"critical",
     {"pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback",
      "pp.gradient.when=critical"},
     true},
    {"the last boundary",
     {"pp.activation.codec=quantise:bits=3", "pp.activation.memory=delta",
      "pp.activation.boundaries=last half", "pp.gradient.codec=low_rank:rank=2",
      "pp.gradient.memory=feedback", "pp.gradient.boundaries=last half"}},
    {"the first boundary",
     {"pp.activation.codec=quantise:bits=4", "pp.activation.boundaries=0",
      "pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
      "pp.gradient.boundaries=first half"}},
    {"slots", {"pp.activation.codec=top_k:keep=0.1", "pp.activation.memory=slot_feedback"}},
    {"always", {"pp.gradient.codec=low_rank:rank=4", "pp.gradient.memory=feedback"}},
    {"no feedback", {"pp.gradient.codec=low_rank:rank=4"}},
    {"reset",
     {"pp.gradient.codec=top_k:keep=0.1", "pp.gradient.memory=feedback", "pp.gradient.reset=true"}},
};

void expect_weights(const RunConfig& config, const std::string& checkpoint,
                    const Weights& expected) {
  const Weights found = read_model(checkpoint, tensor_options(config));
  for (std::size_t p = 0; p < found.parameters.size(); ++p)
    EXPECT_TRUE(found.parameters[p].value.equal(expected.parameters[p].value))
        << found.parameters[p].name;
}

TEST_F(PipelineParallel, ALossyPipelineIsAModelOfTheSameLossInOneProcess) {
  constexpr std::array kSchedules = {"gpipe", "1f1b", "zero_bubble"};
  for (std::size_t i = 0; i < kLossy.size(); ++i) {
    const LossyCase& lossy = kLossy[i];
    for (std::size_t k = 0; k < kSchedules.size(); ++k) {
      // Where a schedule does not decide what is encoded, links see the same messages with any.
      const bool is_another = !lossy.depends_on_schedule && k != i % kSchedules.size();
      if (is_another && !is_thorough()) continue;
      SCOPED_TRACE(fmt::format("{}, {}", lossy.name, kSchedules[k]));
      RunConfig c = config(fmt::format("{}-{}", lossy.name, kSchedules[k]), 3);
      c.data.train = folder_ / "few";
      c.train.steps = 7;
      c.pipeline.schedule = kSchedules[k];
      set(c, lossy.sets);
      const TrainSummary together = run(c);
      const Dataset data = open_dataset(c.data.train, c.model.context, 257);
      LossyModel model(c, data);
      for (std::int64_t step = 0; step < c.train.steps; ++step) model.step(step);
      expect_weights(c, together.checkpoint, model.weights());
    }
  }
}

// Losses rather than weights: Adam makes as much of a gradient that is rounding alone, like that of
// the keys' bias, as of any other.
TEST_F(PipelineParallel, WhatLosesNothingOrLittleTrainsWithTheLossesOfOneProcess) {
  struct Case {
    const char* name;
    std::vector<std::string> sets;
    double bound;
  };
  const auto with = [&](const std::string& name, std::int64_t pp) {
    RunConfig c = config(name, pp);
    c.data.train = folder_ / "few";
    c.train.steps = 12;
    return c;
  };
  const TrainSummary alone = train({.config = with("one", 1)});
  ASSERT_LT(alone.loss, 4);
  for (const Case& near : std::vector<Case>{
           {"full rank",
            {"pp.gradient.codec=low_rank:rank=16", "pp.gradient.memory=feedback"},
            1e-5},
           {"eight bits",
            {"pp.activation.codec=quantise:bits=8", "pp.gradient.codec=quantise:bits=8"},
            0.01}}) {  // 3e-4
    SCOPED_TRACE(near.name);
    RunConfig c = with(near.name, 3);
    set(c, near.sets);
    const TrainSummary together = run(c);
    EXPECT_NEAR(together.loss, alone.loss, near.bound);
    EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, near.bound);
  }
}

const CodecOverride kBypassed{.is_bypassed = true};
const CodecOverride kFiner{.codec = Quantise{.bits = 8}};

// A class is bypassed, recoded, and goes back to what it was.
std::map<std::int64_t, CodecOverrides> changes_of(const LossyCase& lossy) {
  const bool has_activation = lossy.sets.front().starts_with("pp.activation");
  const Traffic one = has_activation ? Traffic::pp_activation : Traffic::pp_gradient;
  return {{1, {{one, kBypassed}}},
          {3, {{one, kFiner}, {Traffic::pp_gradient, kBypassed}}},
          {5, {{one, {}}, {Traffic::pp_gradient, {}}}}};
}

TEST_F(PipelineParallel, ALossyPipelineThatIsSteeredIsThatModelToo) {
  for (const LossyCase& lossy : some_of(kLossy, 3, 2)) {
    SCOPED_TRACE(lossy.name);
    RunConfig c = config(fmt::format("{}-steered", lossy.name), 3);
    c.data.train = folder_ / "few";
    c.train.steps = 7;
    set(c, lossy.sets);
    const auto changes = changes_of(lossy);
    const TrainSummary together = run(c, "none", changes);
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    LossyModel model(c, data);
    for (std::int64_t step = 0; step < c.train.steps; ++step) {
      if (const auto found = changes.find(step); found != changes.end())
        for (const auto& [traffic, codec_override] : found->second)
          model.override_codec(traffic, codec_override);
      model.step(step);
    }
    expect_weights(c, together.checkpoint, model.weights());
  }
}

TEST_F(PipelineParallel, BypassedFromTheBeginningItIsThePlainOne) {
  RunConfig c = config("plain", 2, 2);
  c.data.shards = 2;  // as links that remember samples have it
  const std::string plain = model_bytes(run(c).checkpoint);
  c.run.folder = folder_ / "bypassed";
  set(c,
      {"pp.activation.codec=quantise:bits=2", "pp.activation.memory=delta",
       "pp.gradient.codec=quantise:bits=2", "dp.gradient.codec=sign", "embedding.tied.codec=sign"});
  CodecOverrides all;
  for (const Traffic traffic : kClassesWithPolicy) all[traffic] = kBypassed;
  const TrainSummary whole = run(c, "none", {{0, all}});
  EXPECT_TRUE(model_bytes(whole.checkpoint) == plain);
  EXPECT_EQ(whole.overrides.size(), all.size());
}

TEST_F(PipelineParallel, TreatmentsArePartOfACheckpoint) {
  for (const LossyCase& lossy : some_of(kLossy, 3)) {
    SCOPED_TRACE(lossy.name);
    RunConfig c = config(fmt::format("{}-treated", lossy.name), 2, 2);
    c.data.train = folder_ / "few";
    c.train.steps = 6;
    c.steering.bypass = BypassMode::automatic;  // that a codec_override may stay
    c.steering.after = 1000;
    set(c, lossy.sets);
    set(c, {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=sign"});
    auto changes = changes_of(lossy);
    changes[1][Traffic::dp_gradient] = {.codec = Quantise{.bits = 5}};
    changes[2][Traffic::dp_gradient] = kBypassed;
    changes[3][Traffic::embedding_tied] = {.codec = Quantise{.bits = 4}};
    const std::string whole = model_bytes(run(c, "none", changes).checkpoint);
    c.run.folder = folder_ / fmt::format("{}-treated-parts", lossy.name);
    c.optimiser.decay_steps = 6;
    for (const std::int64_t steps : {2, 4, 6}) {
      c.train.steps = steps;
      run(c, "auto", changes);
    }
    EXPECT_TRUE(model_bytes(c.run.folder + "/checkpoints/step-00000006") == whole);
  }
}

TEST_F(PipelineParallel, WhatLinksRememberIsPartOfACheckpoint) {
  for (const LossyCase& lossy : some_of(kLossy, 3, 1)) {
    SCOPED_TRACE(lossy.name);
    RunConfig c = config(fmt::format("{}-whole", lossy.name), 2, 2);
    c.data.train = folder_ / "few";
    c.train.steps = 6;
    set(c, lossy.sets);
    const std::string whole = model_bytes(run(c).checkpoint);
    c.run.folder = folder_ / fmt::format("{}-parts", lossy.name);
    c.optimiser.decay_steps = 6;
    for (const std::int64_t steps : {2, 4, 6}) {
      c.train.steps = steps;
      run(c, "auto");
    }
    EXPECT_TRUE(model_bytes(c.run.folder + "/checkpoints/step-00000006") == whole);
  }
}

// What every rank has: residuals of sums, residuals of links, references of both ends.
TEST_F(PipelineParallel, ADamagedFileOfAnyRankIsNamedAndTheCheckpointBeforeIsTaken) {
  RunConfig c = config("a", 2, 2);
  c.data.train = folder_ / "few";
  c.train.steps = 4;
  c.checkpoint.every = 2;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback",
          "dp.gradient.codec=quantise:bits=4"});
  const std::string newest = run(c).checkpoint, good = model_bytes(newest);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(newest))
    if (entry.path().filename().string().starts_with("rank-"))
      files.push_back(entry.path().filename());
  EXPECT_EQ(files.size(), 12U) << fmt::format("{}", fmt::join(files, "\n"));
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    flip_bit(newest + "/" + file);
    try {
      run(c, newest);
      ADD_FAILURE() << "a damaged file was read";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find(file + ": check sum"), std::string::npos)
          << error.what();
    }
    testing::internal::CaptureStdout();
    const TrainSummary again = run(c, "auto");
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_NE(said.find("passing over a damaged checkpoint: " + newest), std::string::npos) << said;
    EXPECT_NE(said.find(file), std::string::npos) << said;
    EXPECT_EQ(again.first_step, 2);
    EXPECT_TRUE(model_bytes(newest) == good);
  }
}

// The references of an activation link outgrow every other file of the checkpoint after some steps.
TEST_F(PipelineParallel, ADiskThatIsFullOfReferencesCostsOneCheckpointOnly) {
  RunConfig c = config("whole", 2);
  c.model.layers = 2;
  c.train.steps = 8;
  c.checkpoint.every = 4;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.activation.reference=f32"});
  const std::string whole = model_bytes(run(c).checkpoint);
  c.run.folder = folder_ / "full";
  try {
    const SizeLimit limit(150'000);  // 64 samples fit, 128 do not
    run(c);
    ADD_FAILURE() << "the disk was not full";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(".pp.activation."), std::string::npos) << error.what();
  }
  const TrainSummary on = run(c, "auto");
  EXPECT_EQ(on.first_step, 4);
  EXPECT_TRUE(model_bytes(on.checkpoint) == whole);
}

TEST_F(PipelineParallel, ReferencesOnDiskAreThoseInRam) {
  RunConfig c = config("ram", 3);
  c.data.train = folder_ / "few";
  c.train.steps = 7;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.activation.budget=1000000"});
  const TrainSummary in_ram = run(c);
  EXPECT_GT(in_ram.pipeline.references, 0U);
  c.run.folder = folder_ / "disk";
  c.pp_activation.store = folder_ / "store";
  EXPECT_TRUE(model_bytes(run(c).checkpoint) == model_bytes(in_ram.checkpoint));
}

// 36 samples, 16 a step: each comes again two or three steps later, when its reference is on disk
// alone. All that a step needs was asked for in the step before.
TEST_F(PipelineParallel, ReferencesOnDiskAreReadAheadForTheComingStep) {
  RunConfig c = config("disk", 2);
  c.data.train = folder_ / "few";
  c.train.steps = 9;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.activation.budget=1000000", "pp.activation.store=" + (folder_ / "store")});
  const PipelineTotal total = run(c).pipeline;
  EXPECT_EQ(total.prefetch_misses, 0U);
  EXPECT_GT(total.prefetch_hits, 0U);
}

TEST_F(PipelineParallel, AStoreThatCannotBeIsRefusedByItsKey) {
  RunConfig c = config("a", 2);
  std::ofstream(folder_ / "file") << "no folder";
  set(c, {"pp.activation.memory=delta", "pp.activation.budget=100000",
          "pp.activation.store=" + (folder_ / "file")});
  try {
    run(c);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("pp.activation.store: rank "))
        << error.what();
  }
}

TEST_F(PipelineParallel, ABudgetThatIsTooSmallIsSaidOfBothLinks) {
  RunConfig c = config("a", 2, 2);
  c.train.steps = 1;
  c.optimiser.warmup = 1;
  set(c, {"pp.activation.memory=delta", "pp.gradient.memory=delta", "pp.activation.budget=400000",
          "pp.gradient.budget=77824"});
  testing::internal::CaptureStdout();
  run(c);
  const std::string said = testing::internal::GetCapturedStdout();
  // 377 samples in two shards, one page of 4096 bytes each.
  for (const char* line :
       {"references of pp.activation: 774.1 kB for 189 samples at each end of a boundary, in ram; "
        "pp.activation.budget = 400.0 kB has room for 52 % of them",
        "references of pp.gradient: 774.1 kB for 189 samples at each end of a boundary, in ram; "
        "pp.gradient.budget = 77.8 kB has room for 10 % of them"})
    EXPECT_NE(said.find(line), std::string::npos) << said;
}

// What the last ranks hold, three times over, is far more than the few tensors that may wait.
TEST_F(PipelineParallel, RankZeroHoldsFewTensorsWhileItCollectsACheckpoint) {
  for (const std::int64_t pp : {2, 4}) {
    RunConfig c = config(fmt::format("collected{}", pp), pp);
    c.model.width = 256;
    c.model.dropout = 0;
    c.train.steps = 1;
    c.train.microbatch = 1;
    std::uint64_t held = 0;
    run_ranks(make_in_process(static_cast<int>(pp)), [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      train({.config = c, .world = &world});
      engine.flush();
      world.gather({});
      engine.flush();
      if (transport.rank() == 0) held = transport.most_held_bytes();
    });
    const std::uint64_t largest = 4 * 256 * 256 * sizeof(float);  // of a layer's four products
    const std::uint64_t layer = 3 * largest * 3;  // twelve squares, each with two moments
    EXPECT_GT(held, largest);
    EXPECT_LT(held, (4 << 20) + 2 * largest);  // 4 MiB ahead, and one that is more than that
    EXPECT_GT(3 * layer, 4 * ((4 << 20) + 2 * largest));  // of what other ranks hold at least
  }
}

at::Tensor decoded_of_encoded(const CodecSpec& codec, const at::Tensor& x) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous(), out = at::empty_like(rows);
  const TensorSpec spec = spec_of(rows);
  Bytes payload(max_payload_bytes(codec, spec));
  payload.resize(encode(codec, {spec, rows.data_ptr()}, {}, payload));
  decode(codec, payload, {}, {spec, out.data_ptr()});
  return out.view(x.sizes());
}

// One process that applies decode(encode(x)) where stages hand on what they have computed.
double evaluated_by_hand(const RunConfig& c, const std::string& checkpoint,
                         const std::map<std::size_t, CodecSpec>& at_boundary) {
  const Weights weights = read_model(checkpoint, tensor_options(c));
  const PipelinePlan plan = plan_of(c, decide_pipeline(c, weights.family, {}, tensor_options(c)));
  const Dataset valid = open_dataset(c.data.valid, c.model.context, 257);
  World alone;
  const auto forward = [&](const Batch& batch, std::uint64_t, const Pass& pass) {
    const at::NoGradGuard no_grad;
    Seam seam;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      for (std::int64_t b = plan.stages[s].begin; b < plan.stages[s].end; ++b)
        seam = forward_block(weights, b, seam, batch, pass);
      if (const auto codec = at_boundary.find(s); codec != at_boundary.end())
        seam = {decoded_of_encoded(codec->second, seam[0])};
    }
    return seam[0].item<double>();
  };
  return evaluate(forward, valid,
                  {.task = task_of(c, valid), .batch = c.microbatch_size(), .bytes_of_token = {}},
                  alone)
      .loss;
}

// Evaluations come in between steps, and training is the same with them and without.
TEST_F(PipelineParallel, EncodedEvaluationsLoseWhatTrainingLosesAndChangeNothing) {
  const CodecSpec two = parse_codec("quantise:bits=2,block=16"), f16 = parse_codec("half:kind=f16");
  struct Case {
    const char* name;
    std::vector<std::string> sets;
    std::map<std::size_t, CodecSpec> at_boundary;
  };
  const std::vector<Case> cases = {
      {"stateless", {}, {{0, two}, {1, two}}},
      {"the last boundary", {"pp.activation.boundaries=1"}, {{1, two}}},
      {"references",
       {"pp.activation.memory=delta", "pp.activation.first=half:kind=f16"},
       {{0, f16}, {1, f16}}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    RunConfig c = config(one.name, 3);
    c.data.train = folder_ / "few";
    set(c, {"pp.activation.codec=quantise:bits=2,block=16"});
    set(c, one.sets);
    const TrainSummary whole = run(c);
    EXPECT_EQ(whole.evaluation->loss, evaluated_by_hand(c, whole.checkpoint, {}));
    RunConfig encoded = c;
    encoded.run.folder = folder_ / fmt::format("{} encoded", one.name);
    encoded.evaluate.encoded = true;
    encoded.evaluate.every = 1;
    const TrainSummary lossy = run(encoded);
    EXPECT_TRUE(model_bytes(lossy.checkpoint) == model_bytes(whole.checkpoint));
    EXPECT_EQ(lossy.evaluation->loss, evaluated_by_hand(c, lossy.checkpoint, one.at_boundary));
    EXPECT_NE(lossy.evaluation->loss, whole.evaluation->loss);
  }
}

std::uint64_t sent_bytes(const TrainSummary& summary, Traffic traffic) {
  for (const TrafficTotal& total : summary.traffic)
    if (total.traffic == traffic) return total.sent.wire_bytes;
  return 0;
}

// 20 samples are ten messages over each of two boundaries.
TEST_F(PipelineParallel, EncodedEvaluationsSendWhatTheCodecSays) {
  const TensorSpec rows{Dtype::f32, {2 * 24, 16}};
  const CodecSpec four = parse_codec("quantise:bits=4,block=16");
  const auto bytes_of = [&](bool is_encoded, std::int64_t samples) {
    RunConfig c = config(fmt::format("{}-{}", is_encoded, samples), 3);
    c.checkpoint.at_end = false;
    c.train.steps = 2;
    c.evaluate.samples = samples;
    c.evaluate.encoded = is_encoded;
    set(c, {"pp.activation.codec=" + to_text(four)});
    return sent_bytes(run(c), Traffic::pp_activation);
  };
  const auto evaluation = [&](bool is_encoded) {
    return bytes_of(is_encoded, 20) - bytes_of(is_encoded, 2);
  };
  const std::uint64_t messages = 2 * (10 - 1);
  const auto message = [&](const CodecSpec& codec) {
    return max_frame_bytes({.codec = codec, .tensor = rows}) + kSegmentTrailer;
  };
  EXPECT_EQ(evaluation(false), messages * message(Raw{}));
  EXPECT_EQ(evaluation(true), messages * message(four));
}

// Frames are of fixed length here, and both ends remember all 37 samples.
TEST_F(PipelineParallel, BoundariesThatAreNotChosenSendWholeRowsAndRememberNothing) {
  const TensorSpec rows{Dtype::f32, {2 * 24, 16}};
  const auto message = [&](const CodecSpec& codec) {
    return max_frame_bytes({.codec = codec, .tensor = rows}) + kSegmentTrailer;
  };
  struct Case {
    const char* boundaries;
    std::uint64_t encoded;  // of three
  };
  for (const auto& [boundaries, encoded] :
       std::vector<Case>{{"all", 3}, {"last half", 2}, {"first half", 1}, {"[2]", 1}})
    for (const bool is_delta : {false, true}) {
      SCOPED_TRACE(boundaries);
      RunConfig c = config(fmt::format("{}-{}", boundaries, is_delta), 4);
      c.data.train = folder_ / "few";
      c.data.valid.clear();
      c.checkpoint.at_end = false;
      set(c, {"pp.activation.codec=quantise:bits=4,block=16",
              fmt::format("pp.activation.boundaries={}", boundaries)});
      if (is_delta) set(c, {"pp.activation.memory=delta"});
      const TrainSummary summary = run(c);
      EXPECT_EQ(summary.pipeline.references, is_delta ? 2 * encoded * 37 : 0);
      const std::uint64_t messages = 3 * 8;
      if (is_delta) continue;
      EXPECT_EQ(sent_bytes(summary, Traffic::pp_activation),
                messages * ((3 - encoded) * message(Raw{}) +
                            encoded * message(parse_codec("quantise:bits=4,block=16"))));
    }
}

TEST_F(PipelineParallel, ACheckpointGoesOnWithAnyOtherMesh) {
  RunConfig c = config("from", 2, 2);
  c.data.train = folder_ / "few";
  set(c, {"pp.activation.codec=quantise:bits=8", "pp.activation.memory=delta",
          "pp.activation.boundaries=last half", "dp.gradient.codec=quantise:bits=4"});
  const std::string from = run(c).checkpoint;
  for (const auto& [pp, dp] :
       std::vector<std::pair<int, int>>{{1, 1}, {4, 1}, {1, 4}, {3, 2}, {2, 1}}) {
    SCOPED_TRACE(fmt::format("pp {} x dp {}", pp, dp));
    RunConfig to = c;
    to.run.folder = folder_ / fmt::format("to-{}-{}", pp, dp);
    to.mesh.pp = pp;
    to.mesh.dp = dp;
    to.data.shards = dp;
    to.train.steps = 6;
    const TrainSummary summary = run(to, from);
    EXPECT_EQ(summary.first_step, 3);
    EXPECT_EQ(summary.step, 6);
    EXPECT_LT(summary.loss, std::log(257.0));
  }
}

TEST_F(PipelineParallel, ASplitByHandIsAsGoodAsAnyOther) {
  const TrainSummary alone = train({.config = config("one", 1)});
  const std::string expected = model_bytes(alone.checkpoint);
  for (const char* split : {"1,2,3", "0,6,0", "measured"}) {
    RunConfig c = config(split, 3);
    c.pipeline.split = split;
    EXPECT_TRUE(model_bytes(run(c).checkpoint) == expected) << split;
  }
}

TEST_F(PipelineParallel, AScheduleFromAFileIsWalked) {
  const TrainSummary alone = train({.config = config("one", 1)});
  std::ofstream(folder_ / "own.txt")
      << "# two microbatches ahead, then in turns\n"
         "rank 0: F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7\n"
         "rank 1: F0 B0 F1 I1 W1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7\n";
  RunConfig c = config("file", 2);
  c.pipeline.schedule = "file:" + (folder_ / "own.txt");
  EXPECT_TRUE(model_bytes(run(c).checkpoint) == model_bytes(alone.checkpoint));
}

std::string refusal(const RunConfig& c) {
  Problems problems = check(c);
  if (problems.empty()) problems = check_mesh(c, size(mesh_of(c)));
  return to_text(problems);
}

TEST_F(PipelineParallel, WhatCannotBeIsRefusedWithItsReason) {
  std::ofstream(folder_ / "dead.txt") << "rank 0: F0 F1 B1 B0\nrank 1: F0 F1 B0 B1\n";
  struct Case {
    std::vector<std::string> sets;
    std::string expected;
  };
  for (const Case& bad : std::vector<Case>{
           {{"mesh.pp=9"}, "9 stages"},
           {{"mesh.pp=2", "pipeline.split=1,2"}, "6"},
           {{"mesh.pp=3", "pipeline.schedule=interleaved", "pipeline.chunks=2"}, "8"},
           {{"mesh.pp=4", "pipeline.schedule=interleaved", "pipeline.chunks=2",
             "train.microbatch=8"},
            "2"},
           {{"mesh.pp=2", "train.microbatch=8", "pipeline.schedule=file:" + (folder_ / "dead.txt")},
            "rank 0"},
           {{"mesh.pp=2", "pipeline.schedule=file:/nowhere"}, "cannot read /nowhere"},
           {{"mesh.pp=2", "train.microbatch=4", "pipeline.schedule=file:" + (folder_ / "dead.txt")},
            "the file has 2 microbatches, the run 4"},
       }) {
    RunConfig c = config("a", 1);
    set(c, bad.sets);
    const std::string found = refusal(c);
    EXPECT_NE(found.find(bad.expected), std::string::npos) << bad.sets.back() << ": " << found;
  }
}

}  // namespace
}  // namespace laconic
