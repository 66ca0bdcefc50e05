// config/run_config.hpp — everything a run can be told, one struct per component.
//
// The structs are plain data with working defaults. Each lists its keys once,
// in visit(); reading, printing, overriding and documenting all walk that
// list, so a key cannot be read but not shown, or shown but not documented.
//
// To add a key: a member with its default, and a line in visit(). If it has a fixed set of values,
// an enum and its names in config/option.hpp. If some values are impossible, a line in check()
// (run_config.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/architecture/family.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/config/option.hpp"
#include "laconic/config/steps_or_share.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/transport/transport_kind.hpp"

namespace laconic {

// A mark in visit(): the text may also be written as a list of whole numbers, [2, 3] for "2,3".
struct AlsoAsList {};

// pp.*.store when references are kept in memory; anything else is a folder.
inline constexpr const char* kInRam = "ram";
// pipeline.split when it is no list of layers.
inline constexpr const char* kSplitAuto = "auto";
inline constexpr const char* kSplitMeasured = "measured";

struct RunSection {
  std::string folder = "runs/gpt";
  std::int64_t seed = 1;
  Device device = Device::cpu;
  Dtype dtype = Dtype::f32;
  std::int64_t threads = 0;
  std::int64_t memory = 0;

  template <class V>
  void visit(V& v) {
    v("folder", folder, "where checkpoints, logs and the resolved configuration go");
    v("seed", seed, "initialisation, data order and dropout all follow from it");
    v("device", device, "where tensors live", kDeviceNames);
    v("dtype", dtype, "of parameters and arithmetic", kRunDtypeNames);
    v("threads", threads, "compute threads; 0: one per available core");
    v("memory", memory,
      "bytes that the ranks of one machine may need together, by estimate; 0: what the machine or "
      "its container has");
  }
};

struct ModelSection {
  ModelKind kind = ModelKind::gpt;
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t key_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 128;
  std::int64_t vocabulary = 0;
  bool tied = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  double rope_low_turns = 1;
  double rope_high_turns = 4;
  std::int64_t rope_trained_context = 8192;
  double dropout = 0.0;
  bool dropout_by_sample = false;
  bool recompute = false;
  std::string start = "";

  template <class V>
  void visit(V& v) {
    v("kind", kind, "architecture", kModelKindNames);
    v("layers", layers, "Transformer layers");
    v("width", width, "of the residual stream");
    v("heads", heads, "attention heads; must divide width, unless head_width is given");
    v("key_heads", key_heads,
      "llama: heads of keys and values (grouped queries); must divide heads; 0: heads");
    v("head_width", head_width, "llama: width of a head, an even number; 0: width / heads");
    v("hidden", hidden,
      "llama: width of the feed-forward part; 0: 8/3 of width, rounded up to a multiple of 64");
    v("context", context, "tokens per sample, and the longest position");
    v("vocabulary", vocabulary, "token ids; 0: the tokeniser's size, from the data");
    v("tied", tied, "llama: the head uses the embedding's table (a gpt's always does)");
    v("qkv_bias", qkv_bias, "llama: biases of queries, keys and values, as in Qwen2");
    v("qk_norm", qk_norm, "llama: queries and keys are normed head by head, as in Qwen3");
    v("rope_theta", rope_theta, "llama: base of the rotary positions' angles");
    v("rope_scaling", rope_scaling,
      "llama: how angles are stretched for contexts longer than the trained one",
      kRopeScalingNames);
    v("rope_factor", rope_factor, "llama: by how much they are stretched");
    v("rope_low_turns", rope_low_turns,
      "llama3 scaling: pairs that turn less often within the trained context are stretched whole");
    v("rope_high_turns", rope_high_turns,
      "llama3 scaling: pairs that turn more often stay as they are");
    v("rope_trained_context", rope_trained_context,
      "llama3 scaling: the context that the model was trained with");
    v("dropout", dropout, "after embedding, attention and each residual branch");
    v("dropout_by_sample", dropout_by_sample,
      "a sample's masks are the same in every epoch, so that its activations change less");
    v("recompute", recompute, "keep only block inputs and run forward again in backward");
    v("start", start,
      "begin from these weights: a Hugging Face folder (docs/models.md) or a checkpoint");
  }
};

struct DataSection {
  std::string train = "";
  std::string valid = "";
  bool shuffle = true;
  std::int64_t shards = 0;
  bool mask_prompts = true;

  template <class V>
  void visit(V& v) {
    v("train", train, "prefix of the prepared training set (PREFIX.bin, PREFIX.idx)");
    v("valid", valid, "prefix of the prepared validation set; empty: no evaluation");
    v("shuffle", shuffle, "a new seeded order every epoch");
    v("shards", shards,
      "parts of the data that are shuffled each by itself, an equal share of every batch from "
      "each; "
      "0: mesh.dp where links remember samples, which must then come to the same ranks again, "
      "elsewhere 1");
    v("mask_prompts", mask_prompts,
      "the loss is over completions alone, where the data has prompts and completions");
  }
};

struct TrainSection {
  std::int64_t steps = 1000;
  std::int64_t batch = 8;
  std::int64_t microbatch = 0;
  double clip = 1.0;
  NonFinite non_finite = NonFinite::stop;

  template <class V>
  void visit(V& v) {
    v("steps", steps, "optimiser steps in the whole run");
    v("batch", batch, "samples per step, over all ranks");
    v("microbatch", microbatch,
      "samples per forward pass; gradients add up; 0: all samples that a rank has in a step, or 1 "
      "in a pipeline");
    v("clip", clip, "largest global gradient norm; 0: no clipping");
    v("non_finite", non_finite,
      "when loss or gradient norm is not finite: end the run, or skip the update", kNonFiniteNames);
  }
};

struct OptimiserSection {
  OptimiserKind kind = OptimiserKind::adamw;
  double lr = 3e-4;
  double min_lr = 3e-5;
  LearningRateShape schedule = LearningRateShape::cosine;
  StepsOrShare warmup = 100;
  std::int64_t decay_steps = 0;
  DecayShape decay = DecayShape::linear;
  double decay_length = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double muon_lr = 0;
  double muon_momentum = 0.95;
  MuonScale muon_scale = MuonScale::match_adamw;

  template <class V>
  void visit(V& v) {
    v("kind", kind,
      "algorithm; adam: weight decay is a part of the gradient; muon: matrices inside the layers, "
      "and adamw for all else",
      kOptimiserKindNames);
    v("lr", lr, "learning rate after warm-up");
    v("min_lr", min_lr, "learning rate at the end of the schedule");
    v("schedule", schedule,
      "shape between lr and min_lr; constant: stays at lr; wsd: stays at lr and decays at the end",
      kLearningRateShapeNames);
    v("warmup", warmup,
      "steps of linear growth from 0 to lr; below 1: that share of the schedule's steps");
    v("decay_steps", decay_steps, "step at which min_lr is reached; 0: train.steps");
    v("decay", decay, "wsd: shape of the decay", kDecayShapeNames);
    v("decay_length", decay_length,
      "wsd: length of the decay; below 1: a share of the schedule, otherwise steps");
    v("beta1", beta1, "decay of the first moment; lion: of what the update takes from it");
    v("beta2", beta2, "decay of the second moment; lion: of its only moment");
    v("epsilon", epsilon, "adamw, adam: added to the root of the second moment");
    v("weight_decay", weight_decay,
      "decoupled (adamw, lion, muon) or added to the gradient (adam, sgd); not on one-dimensional "
      "parameters");
    v("momentum", momentum, "sgd: decay of the sum of gradients");
    v("nesterov", nesterov, "sgd: step from where the momentum leads");
    v("muon_lr", muon_lr, "muon: learning rate of its matrices after warm-up; 0: lr");
    v("muon_momentum", muon_momentum, "muon: decay of the sum of gradients");
    v("muon_scale", muon_scale,
      "muon: rate by shape; match_adamw: 0.2 sqrt(larger side), for a lr that suits adamw; "
      "original: sqrt(max(1, outputs / inputs))",
      kMuonScaleNames);
  }
};

struct EvaluateSection {
  std::int64_t every = 0;
  std::int64_t samples = 0;
  std::int64_t patience = 0;
  double min_improvement = 0;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between evaluations; 0: only at the end");
    v("samples", samples, "validation samples per evaluation; 0: all");
    v("patience", patience,
      "evaluations in a row without improvement that end the run (early stopping); 0: never");
    v("min_improvement", min_improvement,
      "patience: by how much, at least, the validation loss must fall to count as improved");
  }
};

struct CheckpointSection {
  std::int64_t every = 0;
  std::int64_t keep = 3;
  bool best = false;
  bool at_end = true;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between checkpoints; 0: only at the end and on interruption");
    v("keep", keep, "newest checkpoints that stay; 0: all");
    v("best", best,
      "also after each evaluation that is the best so far; that checkpoint stays, and "
      "FOLDER/checkpoints/best leads to it");
    v("at_end", at_end,
      "also when all steps are done; false: for measuring, where nobody wants it");
  }
};

struct ReportSection {
  std::int64_t every = 1;
  bool jsonl = true;
  bool tensorboard = true;
  bool trace = false;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between lines on the console and in the log");
    v("jsonl", jsonl, "write FOLDER/log.jsonl");
    v("tensorboard", tensorboard, "write FOLDER/tensorboard/");
    v("trace", trace, "write FOLDER/trace.json, for Perfetto or chrome://tracing");
  }
};

struct MeshSection {
  std::int64_t pp = 1;
  std::int64_t dp = 1;

  template <class V>
  void visit(V& v) {
    v("pp", pp, "pipeline ranks: each holds a part of the layers");
    v("dp", dp, "data-parallel ranks: each takes batch / dp samples of every step");
  }
};

// Who computes what when, along the layers.
struct PipelineSection {
  std::string schedule = "1f1b";
  std::int64_t chunks = 1;
  std::string split = kSplitAuto;

  template <class V>
  void visit(V& v) {
    v("schedule", schedule,
      "gpipe, 1f1b, interleaved, zero_bubble, zb_v, or file:PATH (`laconic schedule` shows and "
      "compares them)");
    v("chunks", chunks,
      "stages of each rank; interleaved needs at least 2, zb_v exactly 2, the others 1");
    v("split", split,
      "layers of each stage, as \"2,3,3,2\" or [2, 3, 3, 2]; auto: equal work, as counted; "
      "measured: as timed before the first step",
      AlsoAsList{});
  }
};

// What happens to activations on their way to the next stage.
struct PpActivationSection {
  std::string codec = "raw";
  LinkMemory memory = LinkMemory::none;
  std::string first = "half";
  Reference reference = Reference::bf16;
  std::string store = kInRam;
  std::int64_t budget = 0;
  std::int64_t hash_every = 16;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of activations, or of their changes (`laconic codec list`)");
    v("memory", memory,
      "delta: both ends remember each sample's last activations, and the change travels (AC-SGD)",
      kActivationMemoryNames);
    v("first", first, "delta: codec of samples that are not remembered yet");
    v("reference", reference, "delta: how they are remembered", kReferenceNames);
    v("store", store, "delta: where: ram, or a folder on a disk of each machine");
    v("budget", budget,
      "delta: bytes for one end of one boundary; samples that find no room travel as first visits; "
      "0: no limit");
    v("hash_every", hash_every, "delta: visits of a sample between comparisons of both ends");
  }
};

// What happens to gradients on their way to the stage before.
struct PpGradientSection {
  std::string codec = "raw";
  LinkMemory memory = LinkMemory::none;
  When when = When::always;
  bool reset = false;
  std::string first = "half";
  Reference reference = Reference::bf16;
  std::string store = kInRam;
  std::int64_t budget = 0;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of gradients at stage boundaries (`laconic codec list`)");
    v("memory", memory,
      "feedback: what a message lost goes into the next one (Optimus-CC's lazy error propagation); "
      "delta: as in pp.activation",
      kLinkMemoryNames);
    v("when", when,
      "which are encoded; epilogue: after the receiver's last forward; critical: those on the "
      "critical path, as estimated from measured costs; the others travel raw",
      kGradientWhenNames);
    v("reset", reset, "feedback: forget at the start of every step");
    v("first", first, "delta: codec of samples that are not remembered yet");
    v("reference", reference, "delta: how they are remembered", kReferenceNames);
    v("store", store, "delta: where: ram, or a folder on a disk of each machine");
    v("budget", budget, "delta: bytes for one end of one boundary; 0: no limit");
  }
};

// The gradient of the embedding, which the first and the last stage share.
struct EmbeddingTiedSection {
  bool fused = true;
  std::string codec = "raw";

  template <class V>
  void visit(V& v) {
    v("fused", fused,
      "one sum over both stages and all data-parallel ranks, instead of one over each and then one "
      "over the pair; without a pipeline there is nothing to fuse");
    v("codec", codec, "of the sum between first and last stage");
  }
};

// How ranks reach each other.
struct NetworkSection {
  TransportKind transport = TransportKind::automatic;
  std::string interface = "";
  std::int64_t port = 0;
  double deadline = 60;
  std::int64_t segment = 256 << 10;
  bool preflight = true;
  std::string shape = "";
  std::string faults = "";

  template <class V>
  void visit(V& v) {
    v("transport", transport, "what carries messages; auto: gloo, or mpi under mpirun without gloo",
      kTransportKindNames);
    v("interface", interface,
      "network interface or address; empty: the one on the route to the rendezvous host");
    v("port", port, "of the rendezvous, for ranks that --ranks starts; 0: any free one");
    v("deadline", deadline, "seconds that any wait for another rank may take");
    v("segment", segment, "bytes that leave before a more urgent message may overtake");
    v("preflight", preflight, "measure every pair of ranks before the first step");
    v("shape", shape, "emulate a slow network, as \"rate=100mbit,latency=5ms\"; empty: as it is");
    v("faults", faults, "for tests: make the network fail, as \"drop:rank=1,at=17\"");
  }
};

// What happens to gradients on their way between data-parallel ranks.
struct DpGradientSection {
  GradientMethod method = GradientMethod::codec;
  std::string codec = "raw";
  std::string down = "";
  FeedbackOf feedback = FeedbackOf::both;
  std::int64_t warmup = 0;
  AllReduceKind algorithm = AllReduceKind::automatic;
  std::int64_t rank = 16;
  double min_ratio = 1.5;
  bool by_block = false;
  bool overlap = true;
  std::string stages = "all";

  template <class V>
  void visit(V& v) {
    v("method", method,
      "codec: each block by itself; power_sgd: low-rank factors; compressed_adam: the first moment "
      "travels, the second is frozen after warm-up",
      kGradientMethodNames);
    v("codec", codec, "of contributions on their way to the owner (`laconic codec list`)");
    v("down", down, "codec of the sum on its way back; empty: the same");
    v("feedback", feedback, "residuals are kept of contributions (up), also of the sum (both)",
      kFeedbackOfNames);
    v("warmup", warmup, "steps that travel exactly before the method begins");
    v("algorithm", algorithm, "of the all-reduce", kAllReduceKindNames);
    v("rank", rank, "power_sgd: columns of the factors");
    v("min_ratio", min_ratio, "power_sgd: matrices that would shrink by less travel raw");
    v("by_block", by_block,
      "power_sgd: a block's factors leave by themselves, during backward, instead of all together");
    v("overlap", overlap, "gradients of a block leave while the block before is in backward");
    v("stages", stages,
      "pipeline ranks whose gradients are encoded; the others' travel raw: all, the first so "
      "many "
      "(\"3\"), a fraction of them (\"0.75\"), or auto: those whose sums would end last");
  }
};

// Several steps of each rank alone, then one common one (DiLoCo).
struct LocalSection {
  std::int64_t steps = 0;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;

  template <class V>
  void visit(V& v) {
    v("steps", steps, "inner steps between two outer ones; 0: ranks agree after every step");
    v("outer_lr", outer_lr, "learning rate of the outer Nesterov step");
    v("outer_momentum", outer_momentum, "momentum of the outer Nesterov step");
  }
};

// What a run may change about its messages while it runs.
struct SteeringSection {
  BypassMode bypass = BypassMode::never;
  std::int64_t after = 8;
  GuardMode guard = GuardMode::off;
  std::int64_t every = 20;
  std::int64_t shadow = 0;
  double min_cosine = 0.5;
  double max_error = 1.0;
  double max_residual = 10.0;
  std::int64_t patience = 2;

  template <class V>
  void visit(V& v) {
    v("bypass", bypass,
      "auto: after so many steps messages of a class travel raw from then on, if encoding them "
      "costs more time than it saves, as measured; the run then depends on the machine",
      kBypassModeNames);
    v("after", after, "bypass: steps that are measured before it is decided");
    v("guard", guard,
      "watch: compare what is sent with what the receiver gets, and warn; fallback: also raise the "
      "bits, or send raw",
      kGuardModeNames);
    v("every", every, "guard: steps between those that are measured");
    v("shadow", shadow,
      "steps between shadow steps, whose gradient is computed once more without any loss and "
      "compared; 0: none");
    v("min_cosine", min_cosine, "guard: least cosine of decoded and true messages of a class");
    v("max_error", max_error, "guard: largest norm of what is lost, by that of the true messages");
    v("max_residual", max_residual, "guard: largest norm of residuals, by that of the messages");
    v("patience", patience, "guard: measurements in a row that must be bad before it acts");
  }
};

struct RunConfig {
  // Requires, for all of these: check() is empty.
  std::int64_t local_batch() const { return train.batch / mesh.dp; }  // samples of one rank
  std::int64_t microbatch_size() const {
    if (train.microbatch > 0) return train.microbatch;
    return mesh.pp > 1 ? 1 : local_batch();
  }
  std::int64_t microbatches() const { return local_batch() / microbatch_size(); }  // of a rank
  std::int64_t stages() const { return mesh.pp * pipeline.chunks; }
  // Whether what travels depends on what ranks saw of a sample before.
  bool remembers_samples() const {
    return pp_activation.memory == LinkMemory::delta || pp_gradient.memory == LinkMemory::delta;
  }
  // Not a matter of mesh.pp: without a pipeline samples come in the same order.
  std::int64_t shards() const {
    if (data.shards > 0) return data.shards;
    return remembers_samples() ? mesh.dp : 1;
  }

  RunSection run;
  ModelSection model;
  DataSection data;
  TrainSection train;
  OptimiserSection optimiser;
  EvaluateSection evaluate;
  CheckpointSection checkpoint;
  ReportSection report;
  MeshSection mesh;
  PipelineSection pipeline;
  PpActivationSection pp_activation;
  PpGradientSection pp_gradient;
  EmbeddingTiedSection embedding_tied;
  NetworkSection network;
  DpGradientSection dp_gradient;
  LocalSection local;
  SteeringSection steering;

  template <class V>
  void visit(V& v) {
    v("run", run);
    v("model", model);
    v("data", data);
    v("train", train);
    v("optimiser", optimiser);
    v("evaluate", evaluate);
    v("checkpoint", checkpoint);
    v("report", report);
    v("mesh", mesh);
    v("pipeline", pipeline);
    v("pp.activation", pp_activation);
    v("pp.gradient", pp_gradient);
    v("embedding.tied", embedding_tied);
    v("network", network);
    v("dp.gradient", dp_gradient);
    v("local", local);
    v("steering", steering);
  }
};

// The ranks that the configuration asks for. Requires: check() is empty.
Mesh mesh_of(const RunConfig& config);
// Whether the first and the last stage lie on different ranks: not in a V. Where those of a
// schedule's file lie is unknown here, and they count as if they did.
bool has_ends_apart(const RunConfig& config);

// Steps of warm-up in a run of `steps` steps: never more than the schedule has.
std::int64_t warmup_steps(const OptimiserSection& optimiser, std::int64_t steps);

// What a run will do otherwise than it was told, for people: "optimiser.warmup = 60 ...".
std::vector<std::string> warnings_of(const RunConfig& config);

// Every impossible value and combination, named by key ("model.heads").
Problems check(const RunConfig& config);
// The part of it that asks for the model's layers. With model.start a folder decides those, and
// check() leaves this to whoever has read it.
Problems check_stages(const RunConfig& config, std::int64_t layers);

}  // namespace laconic
