// Any pipeline trains the model that one process trains.
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <fstream>

#include "laconic/tensor/host.hpp"
#include "laconic/tensor/tensor_link.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/learning_rate.hpp"
#include "laconic/train/update_rule.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

// Parameters, moments and losses: the files of the checkpoint are the same, byte for byte.
TEST_F(PipelineParallel, EveryScheduleTrainsTheModelOfOneProcessBitForBit) {
  const TrainSummary alone = train({.config = config("one", 1)});
  const std::string expected = model_bytes(alone.checkpoint);
  for (const std::int64_t pp : {1, 2, 3, 4, 8})
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
      for (const bool recompute : {false, true}) {
        const bool is_interleaved = std::string(kind) == "interleaved";
        if (is_interleaved && (pp == 3 || pp == 8)) continue;  // 8 microbatches, 8 blocks
        if (recompute && pp != 2) continue;
        SCOPED_TRACE(fmt::format("{} on {}, recompute {}", kind, pp, recompute));
        RunConfig c = config(fmt::format("{}{}{}", kind, pp, recompute), pp);
        c.pipeline.schedule = kind;
        c.pipeline.chunks = is_interleaved ? 2 : 1;
        c.model.recompute = recompute;
        const TrainSummary together = run(c);
        EXPECT_EQ(together.loss, alone.loss);
        EXPECT_EQ(together.evaluation->loss, alone.evaluation->loss);
        EXPECT_TRUE(model_bytes(together.checkpoint) == expected);
      }
}

TEST_F(PipelineParallel, InDoublePrecisionAnyMeshTrainsTheSameModel) {
  RunConfig one = config("one", 1);
  one.run.dtype = "float64";
  const TrainSummary alone = train({.config = one});
  for (const std::int64_t pp : {1, 2, 3, 4})
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble"})
      for (const bool is_fused : {false, true}) {
        const bool is_interleaved = std::string(kind) == "interleaved";
        if (is_interleaved && pp == 3) continue;
        SCOPED_TRACE(fmt::format("{} on {}, fused {}", kind, pp, is_fused));
        RunConfig c = config(fmt::format("{}{}{}", kind, pp, is_fused), pp, 2);
        c.run.dtype = "float64";
        c.pipeline.schedule = kind;
        c.pipeline.chunks = is_interleaved ? 2 : 1;
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

// A run in one process that loses what the links of a pipeline lose: stage after stage, with the
// two ends of each link between.
class LossyModel {
 public:
  LossyModel(const RunConfig& config, const WindowedDataset& data)
      : config_(config),
        data_(data),
        start_(start_run(config, {.resume = "none", .follows = true}, {257, ""})),
        decisions_(decide_pipeline(config, start_.gpt.shape, {}, tensor_options(config))),
        plan_(plan_of(config, decisions_)) {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      stages_.emplace_back(start_.gpt, plan_.stages[s], StageOptions{});
    for (std::size_t e = 0; e + 1 < plan_.stages.size(); ++e) {
      up_.emplace_back(named(plan_.activation, "pp.activation", e));
      down_.emplace_back(named(plan_.gradient, "pp.gradient", e));
    }
  }

  void step(std::int64_t number) {
    for (std::vector<Link>* links : {&up_, &down_})
      for (Link& link : *links) link.begin(static_cast<std::uint64_t>(number));
    for (std::int64_t m = 0; m < config_.microbatches(); ++m) pass(number, m);
    fold_tied_gradient(start_.gpt);
    const double norm = global_norm(start_.gpt.parameters);
    apply(adamw_of(config_.optimiser), start_.state.optimiser, start_.gpt.parameters,
          learning_rate(config_.optimiser, config_.train.steps, number),
          norm > config_.train.clip ? config_.train.clip / norm : 1);
    clear_gradients(start_.gpt.parameters);
    for (std::vector<Link>* links : {&up_, &down_})
      for (Link& link : *links) link.commit();
  }

  void treat(Traffic traffic, const Treatment& treatment) {
    const bool is_up = traffic == Traffic::pp_activation;
    (is_up ? is_up_whole_ : is_down_whole_) = treatment.is_bypassed;
    const CodecSpec codec =
        codec_under(treatment, is_up ? plan_.activation.codec : plan_.gradient.codec);
    for (Link& link : is_up ? up_ : down_) {
      link.sender.recode(codec);
      link.receiver.recode(codec);
    }
  }

  const Gpt& gpt() const { return start_.gpt; }

 private:
  struct Link {
    explicit Link(const LinkSpec& spec) : sender(spec), receiver(spec) {}
    void begin(std::uint64_t step) {
      sender.begin(step);
      receiver.begin(step);
    }
    void commit() {
      sender.commit();
      receiver.commit();
    }
    Sender sender;
    Receiver receiver;
  };

  static LinkSpec named(LinkSpec link, const char* traffic, std::size_t edge) {
    link.name = fmt::format("{}.{}", traffic, edge);
    return link;
  }

  at::Tensor over(Link& link, const at::Tensor& x, Use use, std::int64_t microbatch,
                  const std::vector<std::uint64_t>& ids) {
    const bool by_sample =
        std::holds_alternative<Delta>(link.sender.spec().memory) && use == Use::train;
    const auto samples = static_cast<std::int64_t>(ids.size());
    const at::Tensor viewed = by_sample ? x.reshape({samples, -1, x.size(1)}) : x;
    const EdgeSpec edge{.link = link.sender.spec(),
                        .microbatches = static_cast<int>(config_.microbatches())};
    const MessageSpec message{
        .use = use,
        .keys = by_sample ? std::span<const std::uint64_t>(ids) : std::span<const std::uint64_t>(),
        .number = frame_number(edge, {.microbatch = static_cast<int>(microbatch)})};
    const Bytes bytes = pack(link.sender, viewed, message);
    return unpack(link.receiver, bytes, spec_of(viewed), at::kCPU, message).tensor.view(x.sizes());
  }

  void pass(std::int64_t step, std::int64_t microbatch) {
    const std::int64_t micro = config_.microbatch_size();
    const SampleOrder order = sample_order(config_, data_.samples(), 0);
    std::vector<std::int64_t> ids;
    for (std::int64_t s = 0; s < micro; ++s)
      ids.push_back(static_cast<std::int64_t>(sample_at(
          order, static_cast<std::uint64_t>(step * config_.train.batch + microbatch * micro + s))));
    const std::vector<std::uint64_t> keys(ids.begin(), ids.end());
    Microbatch input = make_microbatch(data_, ids, at::kCPU);
    input.dropout = config_.model.dropout;
    input.sample_keys = dropout_keys(config_, step, ids);
    at::Tensor x;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      x = stages_[s].forward(0, input, x);
      if (s + 1 < stages_.size())
        x = over(up_[s], x, is_up_whole_ ? Use::bypass : Use::train, microbatch, keys);
    }
    const double weight = static_cast<double>(micro) / static_cast<double>(config_.train.batch);
    at::Tensor gradient = at::scalar_tensor(weight, x.options());
    for (std::size_t s = stages_.size(); s-- > 0;) {
      gradient = stages_[s].backward(0, gradient, {});
      if (s == 0) break;
      const bool is_encoded =
          !is_down_whole_ && (decisions_.encoded.empty() ||
                              decisions_.encoded[s - 1][static_cast<std::size_t>(microbatch)]);
      gradient =
          over(down_[s - 1], gradient, is_encoded ? Use::train : Use::bypass, microbatch, keys);
    }
  }

  RunConfig config_;
  const WindowedDataset& data_;
  Start start_;
  PipelineDecisions decisions_;
  PipelinePlan plan_;
  std::deque<Stage> stages_;
  std::vector<Link> up_, down_;
  bool is_up_whole_ = false, is_down_whole_ = false;
};

struct LossyCase {
  const char* name;
  std::vector<std::string> sets;
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
      "pp.gradient.when=epilogue"}},
    {"critical",
     {"pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback",
      "pp.gradient.when=critical"}},
    {"always", {"pp.gradient.codec=low_rank:rank=4", "pp.gradient.memory=feedback"}},
    {"no feedback", {"pp.gradient.codec=low_rank:rank=4"}},
    {"reset",
     {"pp.gradient.codec=top_k:keep=0.1", "pp.gradient.memory=feedback", "pp.gradient.reset=true"}},
};

TEST_F(PipelineParallel, ALossyPipelineIsAModelOfTheSameLossInOneProcess) {
  for (const LossyCase& lossy : kLossy)
    for (const char* kind : {"gpipe", "1f1b", "zero_bubble"}) {
      SCOPED_TRACE(fmt::format("{}, {}", lossy.name, kind));
      RunConfig c = config(fmt::format("{}-{}", lossy.name, kind), 3);
      c.data.train = folder_ / "few";
      c.train.steps = 7;
      c.pipeline.schedule = kind;
      set(c, lossy.sets);
      const TrainSummary together = run(c);
      const WindowedDataset data = open_dataset(c.data.train, c.model.context, 257);
      LossyModel model(c, data);
      for (std::int64_t step = 0; step < c.train.steps; ++step) model.step(step);
      Gpt found = make_empty_gpt(model.gpt().shape, tensor_options(c));
      read_gpt_weights(together.checkpoint, found);
      for (std::size_t p = 0; p < found.parameters.size(); ++p)
        EXPECT_TRUE(found.parameters[p].value.equal(model.gpt().parameters[p].value))
            << found.parameters[p].name;
    }
}

const Treatment kBypassed{.is_bypassed = true};
const Treatment kFiner{.codec = Quantise{.bits = 8}};

// A class is bypassed, recoded, and goes back to what it was.
std::map<std::int64_t, Treatments> changes_of(const LossyCase& lossy) {
  const bool has_activation = lossy.sets.front().starts_with("pp.activation");
  const Traffic one = has_activation ? Traffic::pp_activation : Traffic::pp_gradient;
  return {{1, {{one, kBypassed}}},
          {3, {{one, kFiner}, {Traffic::pp_gradient, kBypassed}}},
          {5, {{one, {}}, {Traffic::pp_gradient, {}}}}};
}

TEST_F(PipelineParallel, ALossyPipelineThatIsSteeredIsThatModelToo) {
  for (const LossyCase& lossy : kLossy) {
    SCOPED_TRACE(lossy.name);
    RunConfig c = config(fmt::format("{}-steered", lossy.name), 3);
    c.data.train = folder_ / "few";
    c.train.steps = 7;
    set(c, lossy.sets);
    const auto changes = changes_of(lossy);
    const TrainSummary together = run(c, "none", changes);
    const WindowedDataset data = open_dataset(c.data.train, c.model.context, 257);
    LossyModel model(c, data);
    for (std::int64_t step = 0; step < c.train.steps; ++step) {
      if (const auto found = changes.find(step); found != changes.end())
        for (const auto& [traffic, treatment] : found->second) model.treat(traffic, treatment);
      model.step(step);
    }
    Gpt found = make_empty_gpt(model.gpt().shape, tensor_options(c));
    read_gpt_weights(together.checkpoint, found);
    for (std::size_t p = 0; p < found.parameters.size(); ++p)
      EXPECT_TRUE(found.parameters[p].value.equal(model.gpt().parameters[p].value))
          << found.parameters[p].name;
  }
}

TEST_F(PipelineParallel, BypassedFromTheBeginningItIsThePlainOne) {
  RunConfig c = config("plain", 2, 2);
  const std::string plain = model_bytes(run(c).checkpoint);
  c.run.folder = folder_ / "bypassed";
  set(c,
      {"pp.activation.codec=quantise:bits=2", "pp.activation.memory=delta",
       "pp.gradient.codec=quantise:bits=2", "dp.gradient.codec=sign", "embedding.tied.codec=sign"});
  Treatments all;
  for (const Traffic traffic : kTreatable) all[traffic] = kBypassed;
  const TrainSummary whole = run(c, "none", {{0, all}});
  EXPECT_TRUE(model_bytes(whole.checkpoint) == plain);
  EXPECT_EQ(whole.treatments.size(), 4U);
}

TEST_F(PipelineParallel, TreatmentsArePartOfACheckpoint) {
  for (const LossyCase& lossy : kLossy) {
    SCOPED_TRACE(lossy.name);
    RunConfig c = config(fmt::format("{}-treated", lossy.name), 2, 2);
    c.data.train = folder_ / "few";
    c.train.steps = 6;
    c.steering.bypass = "auto";  // that a treatment may stay
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
  for (const LossyCase& lossy : kLossy) {
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

TEST_F(PipelineParallel, ADamagedActivationIsSentAgainAndCounted) {
  RunConfig c = config("a", 2);
  c.data.train = folder_ / "few";
  c.train.steps = 6;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "network.faults=flip:rank=0,traffic=pp.activation,at=30,bit=2000"});
  const TrainSummary summary = run(c);
  EXPECT_EQ(summary.step, 6);
  EXPECT_GE(summary.pipeline.repaired, 1U);
  EXPECT_LE(summary.pipeline.repaired, 2U);  // the samples of a microbatch
}

// Of gradients the receiver says that it has all: rank 0 sends nothing else of this traffic.
TEST_F(PipelineParallel, ADamagedAcknowledgementIsOneNevertheless) {
  for (const int bit : {5, 90}) {
    RunConfig c = config(fmt::format("a{}", bit), 2);
    set(c, {"pp.gradient.codec=quantise:bits=4", "pp.gradient.memory=delta",
            fmt::format("network.faults=flip:rank=0,traffic=pp.gradient,at=1,bit={}", bit)});
    EXPECT_EQ(run(c).step, 3);
  }
}

TEST_F(PipelineParallel, AStepThatIsNotFiniteLeavesNoTraceInLinks) {
  RunConfig c = config("a", 3);
  c.data.train = folder_ / "few";
  c.train.non_finite = "skip";
  c.optimiser.lr = c.optimiser.min_lr = 1e30;
  c.optimiser.warmup = 0;
  set(c, {"pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback"});
  EXPECT_GT(run(c).skipped, 0);
}

TEST_F(PipelineParallel, ACheckpointGoesOnWithAnyOtherMesh) {
  RunConfig c = config("from", 2, 2);
  c.data.train = folder_ / "few";
  set(c, {"pp.activation.codec=quantise:bits=8", "pp.activation.memory=delta",
          "dp.gradient.codec=quantise:bits=4"});
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
