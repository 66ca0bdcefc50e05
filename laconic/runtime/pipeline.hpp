// runtime/pipeline.hpp — one rank's part of a step: walks its list of a schedule.
//
//   F  I B W     runtime/stage.hpp      tensors in, tensors out
//   >a <a >g <g  runtime/edge.hpp       pack and send, receive and unpack
//   P            links are told which samples come next
//
// Everything that could be decided is in the plan, which all ranks share; what is
// left here is to do it. One process is a pipeline of one rank, which has no
// edges: training knows no other way.
//
// Sends never hold up the computation: a message is packed where it arises and
// leaves in the background. Receives wait, and while they wait answer for what
// was sent (see runtime/edge.hpp). How many microbatches are under way is the
// schedule's business.
//
// Not thread-safe: belongs to the computing thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "laconic/link/codec_override.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/policy/pipeline_plan.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

struct PipelineEdge;
class RecordedStep;  // runtime/recorded_step.hpp

struct PipelineOptions {
  bool recompute = false;
  bool records = true;  // alone on a GPU: see runtime/recorded_step.hpp
  // The tensor grid of this stage, if the weights are those of one. Must outlive the pipeline.
  TensorGrid* grid = nullptr;
  Trace* trace = nullptr;
  // Says to people what they should know of it; empty: standard error does.
  std::function<void(const std::string& text)> tell = {};
};

// One microbatch with the names of its samples.
struct PipelineInput {
  Batch batch;
  Pass pass = {};
  std::vector<std::uint64_t> samples;
  double weight = 1;  // a factor of the step's: below 1 where padding was cut off the mean's rows
  // What the microbatch counts, weight times the step's, in the memory of a GPU: for a step that is
  // repeated with other weights. Undefined: it is brought there.
  at::Tensor device_weight = {};
};

struct PipelineStep {
  std::uint64_t step = 0;
  std::span<const PipelineInput> inputs;  // one per microbatch
  double weight = 1;                      // of each microbatch's mean over rows in the step's loss
  // Samples of the next step, by microbatch; empty: not known.
  std::span<const std::vector<std::uint64_t>> next_samples;
  // Everything travels raw and nothing is remembered, whatever the plan says; tags are those of
  // the step. Requires: all ranks have ended such a run before any begins the next, and abandon it.
  bool is_shadow = false;
  // The parameters of a block are about to be read, in forward of any microbatch. May be empty.
  std::function<void(std::int64_t block)> before_block = {};
  // The gradients of the parameters that a block completes (model/weights.hpp) are there.
  std::function<void(std::int64_t block)> block_done;
};

// A rank's share of a step's loss. On a GPU its parts may still be on their way.
class StepLoss {
 public:
  StepLoss(double known = 0) : known_(known) {}
  void add(double weight, const at::Tensor& loss);
  // Waits for what is not here yet. The same bits whenever it is asked.
  double value() const;
  // The parts where they are, as doubles, and the value that they amount to once they are here.
  // What has none amounts to what is known.
  double known() const { return known_; }
  at::Tensor parts() const;  // undefined: none
  double value_of(std::span<const double> parts) const;
  // The same with other weights. Requires: one for each that was added.
  StepLoss with(std::span<const double> weights) const;

 private:
  double known_;
  std::vector<std::pair<double, at::Tensor>> parts_;  // weights and losses
};

// What a rank has spent on computing, shadows not counted, for estimates and reports. On a GPU that
// is what asking for the work has taken.
struct ComputeTimes {
  struct Total {
    double seconds = 0;
    std::uint64_t count = 0;
    void add(double more) { seconds += more, ++count; }
    double mean() const { return count > 0 ? seconds / static_cast<double>(count) : 0; }
  };
  Total forward, backward, backward_input, backward_weight;
  double waiting = 0;  // for activations and gradients, unpacking them included
};

class Pipeline {
 public:
  // `engine` is null and `ranks` {0} when alone. `ranks` are the pipeline's, by their place in it.
  // Throws ConfigError when links cannot be as the plan says. Requires: the weights hold the blocks
  // of this rank and outlive the pipeline.
  Pipeline(Weights& weights, PipelinePlan plan, Engine* engine, const Group& ranks, int rank,
           const PipelineOptions& options = {});
  ~Pipeline();

  const PipelinePlan& plan() const { return plan_; }

  // Returns this rank's share of the loss: 0 but where the last stage is. Throws PeerLost, Timeout,
  // WireError. What links have remembered is provisional until commit() or abandon().
  StepLoss run(const PipelineStep& step);
  void commit();
  void abandon();

  // The mean loss of a microbatch, without gradients; 0 but where the last stage is. All ranks call
  // it for the same microbatches in the same order; `number` counts them. What travels is raw, or
  // `is_encoded` as in training (Use::encoded_evaluation, link/message.hpp); nothing is remembered.
  double evaluate(const Batch& batch, std::uint64_t number, const Pass& pass = {},
                  bool is_encoded = false);

  // Takes seams through all stages by something else than forward_block(): `visit` gets this rank's
  // blocks, first to last, and returns what crosses, with as many tokens as the batch has. As with
  // evaluate() for the rest. Returns what the last block of all put out; empty on other ranks.
  using BlockVisit = std::function<Seam(std::int64_t block, const Seam& in)>;
  Seam forward(const Batch& batch, std::uint64_t number, const BlockVisit& visit,
               bool is_encoded = false);

  // This rank's ends of links.
  void add_links(LinkRegistry& registry);

  const ComputeTimes& times() const { return times_; }
  // Steps that were repetitions of a recorded one.
  std::uint64_t repeated() const;
  // Samples that an end did not understand, and that were sent again as first visits.
  std::uint64_t repaired() const;
  // Messages of the step under way that a receiver can still ask for again.
  std::size_t kept() const;
  // Adds up all delta stores of this rank.
  DeltaStoreStats references();

 private:
  using Edge = PipelineEdge;
  struct Walk;

  StepLoss walk(const PipelineStep& step);
  Stage& stage_of(int stage);
  Edge* edge_at(int edge);
  void serve();
  void flush();
  void settle(std::uint64_t step);
  const std::vector<SeamTensor>& seam_at(int edge) const;  // what crosses it
  at::TensorOptions options() const;                       // of tensors that arrive
  // This rank's of the samples of a microbatch, as they cross between stages.
  Range stream_samples(std::int64_t samples) const;

  Weights& weights_;
  PipelinePlan plan_;
  Engine* engine_;
  int rank_;
  TensorGrid* grid_;
  std::vector<std::unique_ptr<Stage>> stages_;  // by stage; null where another rank's
  std::map<int, std::unique_ptr<Edge>> edges_;  // by edge; those to other ranks
  std::vector<std::size_t> last_gradient_;      // by stage: place in the list
  ComputeTimes times_;
  std::unique_ptr<RecordedStep> recorded_;  // alone on a GPU
};

}  // namespace laconic
