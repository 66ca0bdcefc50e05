// runtime/pipeline_walk.hpp — one step of a pipeline under way. Only pipeline.cpp and
// pipeline_walk.cpp include this.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "laconic/grid/grid.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/runtime/pipeline_edge.hpp"

namespace laconic {

// What is under way in one step.
struct Pipeline::Walk {
  using Cell = std::pair<int, int>;  // stage, microbatch

  Pipeline& pipeline;
  const PipelineStep& step;
  std::map<Cell, Seam> inputs = {};       // of forward: received or handed over
  std::map<Cell, Seam> outputs = {};      // to be sent
  std::map<Cell, Seam> above = {};        // gradients of outputs: received or handed over
  std::map<Cell, Seam> below = {};        // gradients of inputs: to be sent
  std::map<int, std::size_t> taken = {};  // by edge: messages received
  std::vector<bool> is_done = {};         // by block: backward of the last microbatch
  std::vector<bool> is_announced = {};    // by block
  StepLoss loss = {};

  const PipelineShape& shape() const { return pipeline.plan_.schedule.shape; }
  bool is_neighbour_here(int stage) const {
    return stage >= 0 && stage < shape().stages &&
           rank_of_stage(pipeline.plan_.schedule, stage) == pipeline.rank_;
  }
  static Seam take(std::map<Cell, Seam>& from, Cell cell) {
    auto node = from.extract(cell);
    return node.empty() ? Seam() : std::move(node.mapped());
  }

  void act(const Action& action, bool completes_stage);
  void forward(const Action& a);
  void backward(const Action& a, bool completes_stage);
  void pass_down(const Action& a, Seam gradient);
  Stage::AfterBlock hook(bool completes_stage);
  void complete(std::int64_t block);
  void announce_if_complete(std::int64_t block);
  Seam gradient_of_output(const Action& a);
  std::span<const std::uint64_t> of_stream(const std::vector<std::uint64_t>& samples) const;
  MessageSpec message(const Action& a, int edge, bool is_activation) const;
  void send(const Action& a, bool is_activation);
  Seam recv(const Action& a, bool is_activation);
  void prefetch();
};

}  // namespace laconic
