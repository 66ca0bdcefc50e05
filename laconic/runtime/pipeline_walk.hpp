// runtime/pipeline_walk.hpp — what a pipeline is made of: its ends of edges, and one step under
// way. Only pipeline.cpp and pipeline_walk.cpp include this.
#pragma once

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "laconic/runtime/pipeline.hpp"

namespace laconic {

// This rank's ends of the two links between stage `edge` and the next.
struct Pipeline::Edge {
  Edge(Engine& engine, const PipelinePlan& plan, int number, Rank peer, bool is_upper)
      : sends_activations(!is_upper),
        has_gradient_delta(std::holds_alternative<Delta>(plan.gradient.memory)),
        tag{.traffic = Traffic::pp_gradient, .unit = static_cast<std::uint32_t>(number)},
        sender(engine, spec(engine, plan, number, peer, !is_upper)),
        receiver(engine, spec(engine, plan, number, peer, is_upper)) {}

  static EdgeSpec spec(const Engine& engine, const PipelinePlan& plan, int number, Rank peer,
                       bool is_activation);

  bool sends_activations;  // and receives gradients
  bool has_gradient_delta;
  TagFields tag;
  std::vector<int> awaited;  // microbatches, in the order in which the list takes them
  EdgeSender sender;
  EdgeReceiver receiver;
};

// What is under way in one step.
struct Pipeline::Walk {
  using Place = std::pair<int, int>;  // stage, microbatch

  Pipeline& pipeline;
  const PipelineStep& step;
  std::map<Place, at::Tensor> inputs;   // of forward: received or handed over
  std::map<Place, at::Tensor> outputs;  // to be sent
  std::map<Place, at::Tensor> above;    // gradients of outputs: received or handed over
  std::map<Place, at::Tensor> below;    // gradients of inputs: to be sent
  std::map<int, std::size_t> taken;     // by edge: messages received
  bool is_embedding_done = false, is_head_done = false;
  double loss = 0;

  const PipelineShape& shape() const { return pipeline.plan_.schedule.shape; }
  bool is_neighbour_here(int stage) const {
    return stage >= 0 && stage < shape().stages &&
           rank_of_stage(pipeline.plan_.schedule, stage) == pipeline.rank_;
  }
  static at::Tensor take(std::map<Place, at::Tensor>& from, Place place) {
    auto node = from.extract(place);
    return node.empty() ? at::Tensor() : std::move(node.mapped());
  }

  void act(const Action& action, bool completes_stage);
  void forward(const Action& a);
  void backward(const Action& a, bool completes_stage);
  void pass_down(const Action& a, at::Tensor gradient);
  Stage::AfterBlock hook(bool completes_stage);
  void complete(std::int64_t block);
  void announce(std::int64_t block) const;
  at::Tensor gradient_of_output(const Action& a);
  EdgeMessage message(const Action& a, int edge, bool is_activation) const;
  void send(const Action& a, bool is_activation);
  at::Tensor recv(const Action& a, bool is_activation);
  void prefetch();
};

}  // namespace laconic
