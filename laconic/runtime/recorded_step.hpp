// runtime/recorded_step.hpp — forward and backward of a whole step as a CUDA graph.
//
// A step asks a GPU for hundreds of kernels, and a host that asks one by one may be slower than the
// GPU. When a few steps in a row were alike (as many microbatches, fields of the same shapes, the
// same weights of losses), one is recorded, and those that are like it repeat it: only the fields
// are new. Others go the usual way. Results have the same bits either way.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "laconic/runtime/cuda_graph.hpp"
#include "laconic/runtime/pipeline.hpp"

namespace laconic {

class RecordedStep {
 public:
  // Requires: one stage has all blocks of the weights, which outlive this.
  explicit RecordedStep(Weights& weights) : weights_(weights) {}

  // Whether such a model can be recorded at all: it is on a GPU, and nothing in a step depends on
  // the values of fields but numbers.
  static bool can_record(const Weights& weights);

  // Goes through the step by `walk`, or repeats it. What `walk` leaves: complete gradients and the
  // loss. `walk` may be called with other inputs than the step's, of the same shapes.
  using Go = std::function<StepLoss(const PipelineStep& step)>;
  StepLoss run(const PipelineStep& step, const Go& walk);

 private:
  static std::vector<double> shape_of(const PipelineStep& step);
  StepLoss record(const PipelineStep& step, const Go& walk);
  StepLoss repeat(const PipelineStep& step);

  Weights& weights_;
  std::vector<double> last_;  // shape of the last step
  int alike_ = 0;             // steps before this one that had it
  bool is_given_up_ = false;  // it could not be recorded

  std::unique_ptr<CudaGraph> graph_;  // recorded, with all below
  std::vector<double> shape_;
  std::vector<PipelineInput> inputs_;  // fields that the graph reads
  std::vector<at::Tensor> gradients_;  // by place
  StepLoss loss_;
};

}  // namespace laconic
