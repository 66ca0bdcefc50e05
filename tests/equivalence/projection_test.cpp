// A model with projected boundaries is the same model on every mesh, and what crosses is short.
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/base/test_effort.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/file/json.hpp"
#include "laconic/train/basis_start.hpp"
#include "lossy_model.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

class Projected : public PipelineParallel {
 protected:
  RunConfig projected(const std::string& name, std::int64_t pp, std::int64_t dp = 1,
                      const std::vector<std::string>& sets = {}) {
    RunConfig c = config(name, pp, dp);
    set(c,
        {"model.project_after=\"1,3,5\"", "model.project_rank=6", "model.project_anchor=learned"});
    set(c, sets);
    return c;
  }
  // Learned codes where stages end.
  RunConfig coded(const std::string& name, std::int64_t pp, const std::vector<std::string>& sets) {
    RunConfig c = config(name, pp);
    set(c, {"pp.activation.codec=auto_encoder:code=6", pp == 4   ? "pipeline.split=1,2,2,1"
                                                       : pp == 2 ? "pipeline.split=3,3"
                                                                 : "pipeline.split=auto"});
    set(c, sets);
    return c;
  }
  static TrafficTotal total_of(const TrainSummary& summary, Traffic traffic) {
    for (const TrafficTotal& total : summary.traffic)
      if (total.traffic == traffic) return total;
    return {};
  }
};

constexpr const char* kLearned = "model.project_basis=learned";

struct BasisCase {
  const char* name;
  std::vector<std::string> sets;
};
const std::vector<BasisCase> kBases = {
    {"seed", {}},
    {"learned", {kLearned}},
    {"pca", {"model.project_basis=pca", "model.project_anchor=initial"}},
    {"maps",
     {"model.project_basis=maps", "model.project_anchor=none", "model.project_start=noise"}},
    {"tied", {"model.project_basis=tied", "model.project_anchor=none"}}};

// Each with every schedule; quick tests take a third of the pairs.
TEST_F(Projected, EveryScheduleTrainsTheModelOfOneProcessBitForBit) {
  const std::pair<const char*, std::int64_t> schedules[] = {
      {"gpipe", 4}, {"1f1b", 2}, {"zero_bubble", 3}, {"zb_v", 2}, {"1f1b", 8}};
  for (std::size_t i = 0; i < kBases.size(); ++i) {
    const BasisCase& basis = kBases[i];
    const TrainSummary alone =
        train({.config = projected(fmt::format("one-{}", basis.name), 1, 1, basis.sets)});
    const std::string expected = model_bytes(alone.checkpoint);
    for (std::size_t k = 0; k < std::size(schedules); ++k) {
      if ((i + k) % 3 != 0 && !is_thorough()) continue;
      const auto& [kind, pp] = schedules[k];
      SCOPED_TRACE(fmt::format("{} on {}, {}", kind, pp, basis.name));
      RunConfig c = projected(fmt::format("{}{}{}", kind, pp, basis.name), pp, 1, basis.sets);
      c.pipeline.schedule = kind;
      c.pipeline.chunks = std::string(kind) == "zb_v" ? 2 : 1;
      c.model.recompute = pp == 3;
      const TrainSummary together = run(c);
      EXPECT_EQ(together.loss, alone.loss);
      EXPECT_EQ(together.evaluation->loss, alone.evaluation->loss);
      EXPECT_TRUE(model_bytes(together.checkpoint) == expected);
    }
  }
}

TEST_F(Projected, InDoublePrecisionReplicasTrainTheSameModel) {
  for (const BasisCase& basis : kBases) {
    if (basis.sets.empty() && !is_thorough()) continue;  // a part of the others
    SCOPED_TRACE(basis.name);
    std::vector<std::string> sets = basis.sets;
    sets.emplace_back("run.precision=float64");
    const TrainSummary alone =
        train({.config = projected(fmt::format("one-{}", basis.name), 1, 1, sets)});
    for (const bool is_fused : {false, true}) {
      if (!is_fused && std::string(basis.name) != "learned" && !is_thorough()) continue;
      RunConfig c = projected(fmt::format("two-{}-{}", basis.name, is_fused), 2, 2, sets);
      c.embedding_tied.fused = is_fused;
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-12);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-12);
      EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-12);
    }
  }
}

TEST(PrincipalDirections, KeepTheEnergyOfTheLargestEigenvalues) {
  const at::Tensor x = at::randn({50, 9}, at::kDouble).mul(at::arange(1, 10, at::kDouble));
  const at::Tensor square = x.t().mm(x), values = std::get<0>(at::linalg_eigh(square));
  for (const std::int64_t count : {1, 4, 9}) {
    const at::Tensor rows = principal_directions(square, count);
    const double kept = x.mm(rows.t()).square().sum().item<double>();
    const double largest = values.narrow(0, 9 - count, count).sum().item<double>();
    EXPECT_NEAR(kept / largest, 1, 1e-6) << count;
  }
}

// What is frozen is what it was when training began, and is in the folder.
TEST_F(Projected, FixedAnchorsAreTheTablesThatAModelBeginsWith) {
  const std::vector<std::string> sets = {"model.project_anchor=initial"};
  const RunConfig fresh = projected("fresh", 1, 1, sets);
  const auto tensor = [](const Weights& weights, const std::string& name) {
    for (const Parameter& p : weights.parameters)
      if (p.name == name) return p.value.detach();
    ADD_FAILURE() << name;
    return at::Tensor();
  };
  const Weights begun =
      make_weights(family_of(fresh, {.vocabulary = 257}), 1, tensor_options(fresh));
  const Weights trained = read_model(run(fresh).checkpoint, tensor_options(fresh));
  EXPECT_TRUE(tensor(trained, "project.tokens").equal(tensor(begun, "wte.weight")));
  EXPECT_TRUE(tensor(trained, "project.positions").equal(tensor(begun, "wpe.weight")));
  EXPECT_FALSE(tensor(trained, "wte.weight").equal(tensor(begun, "wte.weight")));
  // And of a model that is trained on, the folder's.
  const TrainSummary plain = run(config("plain", 1));
  RunConfig on = projected("on", 2, 1, sets);
  on.model.start = plain.checkpoint;
  EXPECT_TRUE(tensor(read_model(run(on).checkpoint, tensor_options(on)), "project.tokens")
                  .equal(tensor(read_model(plain.checkpoint, tensor_options(on)), "wte.weight")));
}

// Directions of the most energy lose least of rows that a trained model has.
TEST_F(Projected, PrincipalDirectionsOfATrainedModelLoseLessThanDrawnOnes) {
  RunConfig plain = config("plain", 1);
  plain.data.train = folder_ / "few";
  plain.train.steps = 25;
  const TrainSummary before = run(plain);
  const auto lost = [&](const char* basis) {
    RunConfig c =
        projected(basis, 2, 1,
                  {std::string("model.project_basis=") + basis, "model.project_anchor=initial",
                   "optimiser.lr=1e-9", "optimiser.min_lr=0"});
    c.data.train = folder_ / "few";
    c.model.start = before.checkpoint;
    c.train.steps = 1;
    return run(c).evaluation->loss - before.evaluation->loss;
  };
  const double drawn = lost("seed"), principal = lost("pca");
  EXPECT_GT(drawn, 0.01);
  EXPECT_LT(principal, drawn / 10);
  // Of learned codes noise keeps nothing.
  const auto lost_by_codes = [&](const char* start) {
    RunConfig c = coded(
        fmt::format("codes-{}", start), 2,
        {fmt::format("pp.activation.start={}", start), "optimiser.lr=1e-9", "optimiser.min_lr=0"});
    c.data.train = folder_ / "few";
    c.model.start = before.checkpoint;
    c.train.steps = 1;
    return run(c).evaluation->loss - before.evaluation->loss;
  };
  const double noise = lost_by_codes("noise"), orthogonal = lost_by_codes("orthogonal"),
               pca = lost_by_codes("pca");
  EXPECT_LT(pca, orthogonal / 3);
  EXPECT_LT(pca, noise / 3);
}

// The function is that of one process with the same maps where stages end, whoever computes it.
TEST_F(Projected, CodesOfAPipelineAreThoseOfOneProcess) {
  struct Case {
    const char* after;
    std::int64_t pp;
    std::vector<std::string> sets;
  };
  for (const Case& one : std::vector<Case>{
           {"3", 2, {"pp.activation.start=noise"}},
           {"1,3,5", 4, {}},
           {"3,5", 4, {"pp.activation.boundaries=last half", "pp.activation.tied=true"}},
           {"3", 2, {"mesh.tp=2", "tensor.method=1d"}}}) {
    SCOPED_TRACE(fmt::format("{} on {}, {}", one.after, one.pp, fmt::join(one.sets, " ")));
    const auto has = [&](const char* set) {
      return std::ranges::find(one.sets, set) != one.sets.end();
    };
    RunConfig alone = config("alone", 1);
    alone.run.precision = RunPrecision::float64;
    set(alone,
        {fmt::format("model.project_after=\"{}\"", one.after), "model.project_rank=6",
         has("pp.activation.tied=true") ? "model.project_basis=tied" : "model.project_basis=maps",
         has("pp.activation.start=noise") ? "model.project_start=noise"
                                          : "model.project_start=orthogonal"});
    RunConfig c = coded("stages", one.pp, one.sets);
    c.run.precision = RunPrecision::float64;
    const TrainSummary expected = run(alone), found = run(c);
    EXPECT_NEAR(found.loss, expected.loss, 1e-10);
    EXPECT_NEAR(found.evaluation->loss, expected.evaluation->loss, 1e-10);
    EXPECT_LT(largest_difference(found.checkpoint, expected.checkpoint, c), 1e-10);
    for (const char* name : {"alone", "stages"}) std::filesystem::remove_all(folder_ / name);
  }
}

// Stages end elsewhere, or nowhere: the model has its codes where it began with them.
TEST_F(Projected, CodesOfACheckpointStayWhereTheyAreOnAnyMesh) {
  const auto with = [&](const char* name, std::int64_t pp, std::int64_t steps) {
    RunConfig c = coded(name, pp, {});
    c.train.steps = steps;
    c.optimiser.decay_steps = 4;
    return c;
  };
  const std::string expected = model_bytes(run(with("whole", 4, 4)).checkpoint);
  const std::string middle = run(with("half", 4, 2)).checkpoint;
  for (const std::int64_t pp : {4, 2, 1}) {
    if (pp == 2 && !is_thorough()) continue;
    EXPECT_TRUE(model_bytes(run(with("rest", pp, 4), middle).checkpoint) == expected) << pp;
    std::filesystem::remove_all(folder_ / "rest");
  }
  RunConfig other = with("other", 4, 4);
  other.pp_activation.codec = "auto_encoder:code=5";
  try {
    run(other, middle);
    ADD_FAILURE() << "codes of another size go on";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("project_rank"), std::string::npos) << error.what();
  }
}

// Both ways, and rounded where the codec says so.
TEST_F(Projected, CodesWeighWhatTheySay) {
  for (const auto& [values, bytes] : {std::pair{"f32", 4U}, {"f16", 2U}}) {
    RunConfig c =
        coded(values, 4,
              {fmt::format("pp.activation.codec=\"auto_encoder:code=6,values={}\"", values),
               "pp.activation.boundaries=1,2"});
    c.data.valid.clear();
    const TrainSummary summary = run(c);
    const std::uint64_t messages = 3 * 8, rows = 2 * 24;
    const Count there = total_of(summary, Traffic::pp_activation).sent,
                back = total_of(summary, Traffic::pp_gradient).sent;
    EXPECT_EQ(there.raw_bytes, messages * rows * 4 * (16 + 6 + 6));
    EXPECT_EQ(back.raw_bytes, there.raw_bytes);
    const CodecSpec codec = bytes == 2 ? CodecSpec(Half{.kind = Dtype::f16}) : Raw{};
    const auto frame = [&](const CodecSpec& how, std::int64_t width) {
      return kSegmentTrailer +
             max_frame_bytes(
                 {.codec = how, .tensor = {Dtype::f32, {static_cast<std::int64_t>(rows), width}}});
    };
    EXPECT_EQ(there.wire_bytes, messages * (frame(Raw{}, 16) + 2 * frame(codec, 6)));
    EXPECT_EQ(back.wire_bytes, messages * (frame(Raw{}, 16) + 2 * frame(Raw{}, 6)));
  }
}

// Cuts are where rows are short, even if another split were more even; ids never travel.
TEST_F(Projected, RawMessagesWeighTheirCoordinatesAndTheSameHeaders) {
  RunConfig plain = config("plain", 4), c = projected("projected", 4);
  for (RunConfig* run : {&plain, &c}) {
    run->pipeline.split = "1,2,2,1";
    run->evaluate.samples = 16;
  }
  const TrainSummary wide = run(plain), narrow = run(c);
  for (const Traffic traffic : {Traffic::pp_activation, Traffic::pp_gradient}) {
    const Count before = total_of(wide, traffic).sent, after = total_of(narrow, traffic).sent;
    // Three boundaries, microbatches of 2 samples of 24 tokens, 4 bytes.
    EXPECT_EQ(before.raw_bytes, before.messages * 2 * 24 * 16 * 4);
    EXPECT_EQ(after.raw_bytes, after.messages * 2 * 24 * 6 * 4);
    EXPECT_EQ(after.messages, before.messages);
    EXPECT_EQ(after.wire_bytes - after.raw_bytes, before.wire_bytes - before.raw_bytes);
  }
  EXPECT_EQ(total_of(narrow, Traffic::embedding_tied).sent.wire_bytes,
            total_of(wide, Traffic::embedding_tied).sent.wire_bytes)
      << "drawn directions and anchors are nobody else's business";
  c.pipeline.split = "auto";
  const PipelineDecisions decided =
      decide_pipeline(c, model_spec(family_of(c, {.vocabulary = 257}), 24), {}, {});
  EXPECT_EQ(decided.split, (std::vector<std::int64_t>{1, 2, 2, 1}));
}

TEST_F(Projected, DifferencesOfCoordinatesAreThoseOfOneProcess) {
  for (const char* kind : {"gpipe", "1f1b"}) {
    if (std::string(kind) == "gpipe" && !is_thorough()) continue;
    RunConfig c = projected(kind, 4, 1,
                            {"pp.activation.codec=quantise:bits=3", "pp.activation.memory=delta",
                             "pp.activation.first=quantise:bits=8",
                             "pp.gradient.codec=quantise:bits=6", "model.dropout_by_sample=true"});
    c.data.train = folder_ / "few";
    c.train.steps = 7;
    c.pipeline.schedule = kind;
    const TrainSummary together = run(c);
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    LossyModel model(c, data);
    for (std::int64_t step = 0; step < c.train.steps; ++step) model.step(step);
    const Weights found = read_model(together.checkpoint, tensor_options(c));
    for (std::size_t p = 0; p < found.parameters.size(); ++p)
      EXPECT_TRUE(found.parameters[p].value.equal(model.weights().parameters[p].value))
          << found.parameters[p].name;
  }
}

TEST_F(Projected, ARunGoesOnBitForBitOnThisMeshAndOnAnother) {
  constexpr std::int64_t kMeshes[] = {4, 2, 1};
  const std::vector<std::string> cases[] = {
      {},
      {"optimiser.kind=muon", kLearned},
      {"model.project_basis=pca", "model.project_anchor=initial"}};
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    RunConfig whole = projected(fmt::format("whole{}", i), 4, 1, cases[i]);
    whole.train.steps = 4;
    const std::string expected = model_bytes(run(whole).checkpoint);
    RunConfig half = projected(fmt::format("half{}", i), 4, 1, cases[i]);
    half.train.steps = 2;
    half.optimiser.decay_steps = 4;
    const std::string middle = run(half).checkpoint;
    for (std::size_t k = 0; k < std::size(kMeshes); ++k) {
      if (i != k && !is_thorough()) continue;
      SCOPED_TRACE(fmt::format("{} on {}", i, kMeshes[k]));
      RunConfig rest = projected(fmt::format("rest{}on{}", i, k), kMeshes[k], 1, cases[i]);
      rest.train.steps = 4;
      EXPECT_TRUE(model_bytes(run(rest, middle).checkpoint) == expected);
    }
  }
}

TEST_F(Projected, AFolderSaysThatItIsProjectedAndIsRefusedByRunsThatAreNot) {
  const TrainSummary trained = run(projected("trained", 2));
  const nlohmann::json folder = read_json(trained.checkpoint + "/config.json");
  EXPECT_EQ(folder["model_type"], "laconic-projected-gpt2");
  EXPECT_FALSE(folder.contains("architectures"));
  const RunConfig other = config("other", 1);
  try {
    train({.config = other, .start = {.resume = trained.checkpoint}});
    ADD_FAILURE() << "another model goes on from it";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("project_after"), std::string::npos) << error.what();
  }
}

// As when an existing model is trained on: what the folder has not begins anew.
TEST_F(Projected, BoundariesCanBeAddedToAModelThatHasNone) {
  const TrainSummary plain = run(config("plain", 1));
  RunConfig c = projected("added", 1);
  c.model.start = plain.checkpoint;
  const TrainSummary trained = run(c);
  const Weights found = read_model(trained.checkpoint, tensor_options(c));
  EXPECT_EQ(projection_of(found.family).after, (std::vector<std::int64_t>{1, 3, 5}));
  // And a run from that folder has them without being asked.
  RunConfig on = config("on", 1);
  on.model.start = trained.checkpoint;
  EXPECT_EQ(projection_of(read_family(run(on).checkpoint)), projection_of(found.family));
}

// The function is that of the boundaries, too: without them the same weights are another model.
TEST_F(Projected, WithoutItsBoundariesATrainedModelIsWorse) {
  RunConfig c = projected("trained", 1, 1, {"model.dropout=0"});
  c.data.train = folder_ / "few";
  c.train.steps = 30;
  const TrainSummary trained = run(c);
  const Weights with = read_model(trained.checkpoint, tensor_options(c));
  Weights without = make_weights(with_projection(with.family, {}), 1, tensor_options(c));
  const at::NoGradGuard no_grad;
  for (Parameter& p : without.parameters) p.value.copy_(with.value(p.number));
  const Dataset data = open_dataset(c.data.train, c.model.context, 257);
  const std::vector<std::int64_t> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  const Batch batch = make_batch(task_of(c, data), data, samples, at::kCPU);
  const double loss = forward_loss(with, batch);
  EXPECT_LT(loss, 3);
  EXPECT_GT(forward_loss(without, batch), loss + 0.1);
}

}  // namespace
}  // namespace laconic
