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

#include "laconic/link/treatment.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

// The same on all ranks of a pipeline.
struct PipelinePlan {
  Schedule schedule;               // lowered
  std::vector<BlockRange> stages;  // by stage
  GradientSends encoded;           // gradients that do not travel whole; empty: all are encoded
  LinkSpec activation;             // names get the edge's number
  LinkSpec gradient;
};
// One rank, one stage: F0 B0 F1 B1 ...
PipelinePlan plan_for_one(const GptShape& shape, int microbatches);

// Blocks that a rank holds.
HeldBlocks held_blocks(const PipelinePlan& plan, std::int64_t blocks, int rank);

struct PipelineOptions {
  bool recompute = false;
  Trace* trace = nullptr;
};

// One microbatch with the names of its samples.
struct PipelineInput {
  Microbatch microbatch;
  std::vector<std::uint64_t> samples;
};

struct PipelineStep {
  std::uint64_t step = 0;
  std::span<const PipelineInput> inputs;  // one per microbatch
  double weight = 1;                      // of each microbatch's mean loss in the step's
  // Of the next step, by microbatch; empty: not known.
  std::span<const std::vector<std::uint64_t>> next_samples;
  // Everything travels whole and nothing is remembered, whatever the plan says; tags are those of
  // the step. Requires: all ranks have ended such a run before any begins the next, and abandon it.
  bool is_shadow = false;
  // The gradients of a block are complete, the tied one's two shares folded where both are here.
  std::function<void(std::int64_t block)> block_done;
};

// What a rank has spent on computing, shadows not counted, for estimates and reports.
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
  // Throws ConfigError when links cannot be as the plan says.
  Pipeline(const Gpt& gpt, PipelinePlan plan, Engine* engine, const Group& ranks, int rank,
           const PipelineOptions& options = {});
  ~Pipeline();

  const PipelinePlan& plan() const { return plan_; }
  bool is_first() const { return rank_ == 0; }
  bool is_last() const { return plan_.schedule.placement.back() == rank_; }

  // Returns this rank's share of the loss: 0 but at the last stage. Throws PeerLost, Timeout,
  // WireError. What links have remembered is provisional until commit() or abandon().
  double run(const PipelineStep& step);
  void commit();
  void abandon();

  // The mean loss of a microbatch, without gradients and memories, whole; 0 but at the last stage.
  // All ranks call it for the same microbatches in the same order; `number` counts them.
  double evaluate(const Microbatch& microbatch, std::uint64_t number);

  // What links remember. Files are FOLDER/PREFIX + name of the link, in a folder that exists.
  // Requires: no step is open. load() throws FileError when something there is not of such links.
  bool has_memory() const;
  void save(const std::string& prefix);
  void load(const std::string& prefix);

  // Whether to look at what is sent, in steps that begin from here on; true also forgets what was
  // seen before.
  void watch(bool looks);
  std::map<Traffic, Fidelity> seen() const;  // of this rank's messages; classes that had any

  // From the next step on, messages of pp.activation or pp.gradient are treated so, instead of how
  // they were; the same on all ranks of the pipeline. `Treatment{}` is as the plan says. Memories
  // stay: see link/link.hpp. Other classes do not concern a pipeline. Throws ConfigError when links
  // cannot be so. Requires: no step is open; before load(), for a run that goes on.
  void treat(Traffic traffic, const Treatment& treatment);

  const ComputeTimes& times() const { return times_; }
  // Samples that an end did not understand, and that were sent again as first visits.
  std::uint64_t repaired() const;
  // Of all delta stores of this rank.
  DeltaStoreStats references();

 private:
  struct Edge;
  struct Walk;

  Stage& stage_of(int stage);
  Edge* edge_at(int edge);
  void serve();
  void settle(std::uint64_t step);
  Treatment treatment_of(Traffic traffic) const;

  const Gpt& gpt_;
  PipelinePlan plan_;
  Engine* engine_;
  int rank_;
  std::vector<std::unique_ptr<Stage>> stages_;  // by stage; null where another rank's
  std::map<int, std::unique_ptr<Edge>> edges_;  // by edge; those to other ranks
  std::vector<std::size_t> last_gradient_;      // by stage: place in the list
  std::map<Traffic, Treatment> treatments_;
  ComputeTimes times_;
};

}  // namespace laconic
