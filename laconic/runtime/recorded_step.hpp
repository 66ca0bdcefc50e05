// runtime/recorded_step.hpp — forward and backward of a whole step as a CUDA graph.
//
// A step asks a GPU for hundreds of kernels, and a host that asks one by one may be slower than the
// GPU. When a few steps in a row were alike (as many microbatches, fields of the same shapes), one
// is recorded, and those that are like it repeat it: only the fields, the keys of dropout and the
// weights of losses are new. Others go the usual way. Results have the same bits either way.
//
// A graph holds the activations of a step for itself. A step that goes the usual way needs them
// once more: where there is no room for both, the graph goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "laconic/runtime/cuda_graph.hpp"
#include "laconic/runtime/pipeline.hpp"

namespace laconic {

class Trace;  // report/trace.hpp

class RecordedStep {
 public:
  using MakeGraph = std::function<std::unique_ptr<CudaGraph>()>;
  struct Options {
    Trace* trace = nullptr;  // gets a span for each repetition
    // Says to people why nothing is recorded any more.
    std::function<void(const std::string& why)> tell = {};
    MakeGraph make_graph = CudaGraph::make;
  };

  // Requires: one stage has all blocks of the weights, which outlive this.
  RecordedStep(Weights& weights, Options options);

  // Whether such a model can be recorded at all: it is on a GPU, and nothing in a step depends on
  // the values of fields but numbers.
  static bool can_record(const Weights& weights);

  // Goes through the step by `walk`, or repeats it. What `walk` leaves: complete gradients and the
  // loss, or, when it throws, nothing under way. `walk` may be called with other inputs than the
  // step's, of the same shapes. Requires: the parameters have no gradients yet.
  using Go = std::function<StepLoss(const PipelineStep& step)>;
  StepLoss run(const PipelineStep& step, const Go& walk);

  std::uint64_t repeated() const { return repeated_; }  // steps

 private:
  static std::vector<double> shape_of(const PipelineStep& step);
  StepLoss walk_in_room(const PipelineStep& step, const Go& walk);
  StepLoss record(const PipelineStep& step, const Go& walk);
  void copy_inputs(const PipelineStep& step);
  void fill(const PipelineStep& step);
  StepLoss repeat(const PipelineStep& step);
  void forget();

  Weights& weights_;
  Options options_;
  std::vector<double> last_;  // shape of the last step
  int alike_ = 0;             // steps before this one that had it
  bool is_given_up_ = false;  // it could not be recorded
  std::uint64_t repeated_ = 0;

  std::unique_ptr<CudaGraph> graph_;  // recorded, with all below
  std::vector<double> shape_;
  PipelineStep own_;                   // the recorded step, of these:
  std::vector<PipelineInput> inputs_;  // fields, keys and weights that the graph reads
  at::Tensor factors_;                 // the weights, by microbatch
  std::vector<at::Tensor> gradients_;  // by place
  StepLoss loss_;
};

}  // namespace laconic
