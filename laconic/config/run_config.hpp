// config/run_config.hpp — everything a run can be told, one struct per component.
//
// The structs are plain data with working defaults, in the headers *_section.hpp. Each lists its
// keys once, in visit(); reading, printing, overriding and documenting all walk that list, so a key
// cannot be read but not shown, or shown but not documented.
//
// To add a key: a member with its default, and a line in visit(). If it has a fixed set of values,
// an enum and its names in config/option.hpp. If some values are impossible, a line in the
// check_*.cpp of its section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/config/mesh_section.hpp"
#include "laconic/config/model_section.hpp"
#include "laconic/config/optimiser_section.hpp"
#include "laconic/config/task_section.hpp"
#include "laconic/config/traffic_section.hpp"
#include "laconic/config/training_section.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct RunConfig {
  // Requires, for all of these: check() is empty.
  std::int64_t local_batch() const { return train.batch / mesh.dp; }  // samples of one rank
  std::int64_t microbatch_size() const {
    if (pipeline.decided_microbatch > 0) return pipeline.decided_microbatch;
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
  TaskSection task;
  TrainSection train;
  OptimiserSection optimiser;
  EvaluateSection evaluate;
  CheckpointSection checkpoint;
  ReportSection report;
  MeshSection mesh;
  TensorSection tensor;
  PipelineSection pipeline;
  PpActivationSection pp_activation;
  PpGradientSection pp_gradient;
  EmbeddingTiedSection embedding_tied;
  EmbeddingRowsSection embedding_rows;
  TpActivationSection tp_activation;
  TpGradientSection tp_gradient;
  TpWeightSection tp_weight;
  NetworkSection network;
  DpGradientSection dp_gradient;
  LocalSection local;
  SteeringSection steering;

  template <class V>
  void visit(V& v) {
    v("run", run);
    v("model", model);
    v("data", data);
    v("task", task);
    v("train", train);
    v("optimiser", optimiser);
    v("evaluate", evaluate);
    v("checkpoint", checkpoint);
    v("report", report);
    v("mesh", mesh);
    v("tensor", tensor);
    v("pipeline", pipeline);
    v("pp.activation", pp_activation);
    v("pp.gradient", pp_gradient);
    v("embedding.tied", embedding_tied);
    v("embedding.rows", embedding_rows);
    v("tp.activation", tp_activation);
    v("tp.gradient", tp_gradient);
    v("tp.weight", tp_weight);
    v("network", network);
    v("dp.gradient", dp_gradient);
    v("local", local);
    v("steering", steering);
  }
};

// The ranks that the configuration asks for. Requires: check() is empty. With mesh.order = "auto"
// it asks the section [model] what axes carry; a run that begins from a folder has {0, 1, 2}, since
// everybody must know the mesh before anybody has read the folder.
Mesh mesh_of(const RunConfig& config);
// Whether the first and the last stage lie on different ranks: not in a V. Where those of a
// schedule's file lie is unknown here, and they count as if they did.
bool has_ends_apart(const RunConfig& config);

// What all ranks of a run must be told alike. The rest is gone from it: how a machine is equipped
// (device, threads, memory, interface), and where its folder is.
RunConfig common_part(RunConfig config);

// Steps of warm-up in a run of `steps` steps: never more than the schedule has.
std::int64_t warmup_steps(const OptimiserSection& optimiser, std::int64_t steps);

// The outer step of diloco and of streaming_diloco. What is not said depends on how long rounds
// are: over a few steps the changes of ranks agree, and momentum on top of the optimiser's own
// overshoots.
struct OuterStep {
  double lr = 1;
  double momentum = 0;
};
OuterStep outer_step(const LocalSection& local);

// What travels when in a round, of a model of so many blocks. Methods that are neither
// streaming_diloco nor spread have one fragment. When that of linear comes is local_round.hpp's to
// say.
FragmentSpec fragments_of(const LocalSection& local, std::int64_t blocks);

// What a run will do otherwise than it was told, for people: "optimiser.warmup = 60 ...".
std::vector<std::string> warnings_of(const RunConfig& config);

// Every impossible value and combination, named by key ("model.heads").
Problems check(const RunConfig& config);
// The part of it that asks for the model's layers. With model.start a folder decides those, and
// check() leaves this to whoever has read it.
Problems check_stages(const RunConfig& config, std::int64_t layers);
Problems check_fragments(const LocalSection& local, std::int64_t blocks);

}  // namespace laconic
