// One action after the other: see the table in pipeline.hpp.
#include "laconic/runtime/pipeline_walk.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/tensor/arrival.hpp"

namespace laconic {

void StepLoss::add(double weight, const at::Tensor& loss) {
  parts_.emplace_back(weight, loss);
}

double StepLoss::value() const {
  if (parts_.empty()) return known_;
  const Arrival parts(this->parts());
  return value_of({parts.wait().data_ptr<double>(), parts_.size()});
}

at::Tensor StepLoss::parts() const {
  if (parts_.empty()) return {};
  std::vector<at::Tensor> losses;
  for (const auto& [weight, loss] : parts_) losses.push_back(loss.to(at::kDouble));
  return at::stack(losses);
}

double StepLoss::value_of(std::span<const double> parts) const {
  LACONIC_ASSERT(parts.size() == parts_.size(),
                 fmt::format("{} of {} losses", parts.size(), parts_.size()));
  double sum = known_;
  for (std::size_t i = 0; i < parts.size(); ++i) sum += parts_[i].first * parts[i];
  return sum;
}

StepLoss StepLoss::with(std::span<const double> weights) const {
  LACONIC_ASSERT(weights.size() == parts_.size(),
                 fmt::format("{} weights of {} losses", weights.size(), parts_.size()));
  StepLoss other(known_);
  for (std::size_t i = 0; i < weights.size(); ++i) other.add(weights[i], parts_[i].second);
  return other;
}

void Pipeline::Walk::act(const Action& a, bool completes_stage) {
  const Cell cell{a.stage, a.microbatch};
  if (pipeline.grid_ != nullptr)
    pipeline.grid_->begin(step.step, static_cast<std::uint64_t>(a.microbatch));
  switch (a.op) {
    case Op::forward: return forward(a);
    case Op::backward: return backward(a, completes_stage);
    case Op::backward_input: {
      const Stopwatch watch;
      Seam gradient =
          pipeline.stage_of(a.stage).backward_input(a.microbatch, gradient_of_output(a));
      pipeline.times_.backward_input.add(watch.seconds());
      return pass_down(a, std::move(gradient));
    }
    case Op::backward_weight: {
      const Stopwatch watch;
      pipeline.stage_of(a.stage).backward_weight(a.microbatch, hook(completes_stage));
      pipeline.times_.backward_weight.add(watch.seconds());
      return;
    }
    case Op::send_activation: return send(a, true);
    case Op::recv_activation: inputs[cell] = recv(a, true); return;
    case Op::send_gradient: return send(a, false);
    case Op::recv_gradient: above[cell] = recv(a, false); return;
    case Op::prefetch: return prefetch();
  }
}

void Pipeline::Walk::forward(const Action& a) {
  const Cell cell{a.stage, a.microbatch};
  Stage& stage = pipeline.stage_of(a.stage);
  const PipelineInput& input = step.inputs[static_cast<std::size_t>(a.microbatch)];
  const Stopwatch watch;
  Pass pass = input.pass;
  pass.grid = pipeline.grid_;
  double before = 0;  // seconds that are no part of forward
  const Stage::BeforeBlock before_block = [&](std::int64_t block) {
    const Stopwatch waiting;
    step.before_block(block);
    before += waiting.seconds();
  };
  Seam output = stage.forward(a.microbatch, input.batch, pass, take(inputs, cell),
                              step.before_block ? before_block : Stage::BeforeBlock());
  if (stage.is_last()) loss.add(step.weight * input.weight, output[0]);
  pipeline.times_.forward.add(watch.seconds() - before);
  if (stage.is_last()) return;
  if (is_neighbour_here(a.stage + 1))
    inputs[{a.stage + 1, a.microbatch}] = std::move(output);
  else
    outputs[cell] = std::move(output);
}

Seam Pipeline::Walk::gradient_of_output(const Action& a) {
  if (a.stage + 1 < shape().stages) return take(above, {a.stage, a.microbatch});
  const PipelineInput& input = step.inputs[static_cast<std::size_t>(a.microbatch)];
  if (input.device_weight.defined()) return {input.device_weight};
  return {at::scalar_tensor(step.weight * input.weight, pipeline.weights_.master_options())};
}

Stage::AfterBlock Pipeline::Walk::hook(bool completes_stage) {
  if (!completes_stage) return {};
  return [this](std::int64_t block) { complete(block); };
}

// A block that completes a parameter which other blocks of this rank use, too, waits for those: a
// schedule may put the W of a later stage last. So each block that is done is asked about, and then
// the blocks that may have waited for it.
void Pipeline::Walk::complete(std::int64_t block) {
  is_done[static_cast<std::size_t>(block)] = true;
  announce_if_complete(block);
  const Weights& weights = pipeline.weights_;
  for (const Leaf& leaf : weights.leaves[static_cast<std::size_t>(block)])
    announce_if_complete(completing_block(weights, weights.parameters[leaf.place]));
}

void Pipeline::Walk::announce_if_complete(std::int64_t block) {
  Weights& weights = pipeline.weights_;
  if (is_announced[static_cast<std::size_t>(block)]) return;
  const auto is_waiting_for = [&](std::int64_t user) {
    return weights.holds(user) && !is_done[static_cast<std::size_t>(user)];
  };
  if (is_waiting_for(block)) return;
  std::vector<std::size_t> completed;
  for (const Leaf& leaf : weights.leaves[static_cast<std::size_t>(block)]) {
    const Parameter& parameter = weights.parameters[leaf.place];
    if (completing_block(weights, parameter) != block) continue;
    if (std::ranges::any_of(weights.users[leaf.place], is_waiting_for)) return;
    completed.push_back(leaf.place);
  }
  for (const std::size_t place : completed) complete_gradient(weights, place);
  is_announced[static_cast<std::size_t>(block)] = true;
  if (step.block_done) step.block_done(block);
}

void Pipeline::Walk::backward(const Action& a, bool completes_stage) {
  const Stopwatch watch;
  Seam gradient = pipeline.stage_of(a.stage).backward(a.microbatch, gradient_of_output(a),
                                                      hook(completes_stage));
  pipeline.times_.backward.add(watch.seconds());
  pass_down(a, std::move(gradient));
}

void Pipeline::Walk::pass_down(const Action& a, Seam gradient) {
  if (a.stage == 0) return;
  if (is_neighbour_here(a.stage - 1))
    above[{a.stage - 1, a.microbatch}] = std::move(gradient);
  else
    below[{a.stage, a.microbatch}] = std::move(gradient);
}

std::span<const std::uint64_t> Pipeline::Walk::of_stream(
    const std::vector<std::uint64_t>& samples) const {
  const Range mine = pipeline.stream_samples(static_cast<std::int64_t>(samples.size()));
  return std::span(samples).subspan(static_cast<std::size_t>(mine.begin),
                                    static_cast<std::size_t>(mine.size()));
}

// Both ends evaluate this for the same message, from the same plan.
MessageSpec Pipeline::Walk::message(const Action& a, int edge, bool is_activation) const {
  const GradientSends& encoded = pipeline.plan_.encoded;
  const bool is_selected =
      is_activation || encoded.empty() ||
      encoded[static_cast<std::size_t>(edge)][static_cast<std::size_t>(a.microbatch)];
  Edge& at = *pipeline.edge_at(edge);
  const bool is_raw = !is_selected || (is_activation ? at.activation : at.gradient).is_bypassed;
  return {.number = a.microbatch,
          .use = is_raw || step.is_shadow ? Use::bypass : Use::train,
          .samples = of_stream(step.inputs[static_cast<std::size_t>(a.microbatch)].samples)};
}

void Pipeline::Walk::send(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage : a.stage - 1;
  Edge& at = *pipeline.edge_at(edge);
  const Seam seam = take(is_activation ? outputs : below, {a.stage, a.microbatch});
  // Before all that only the next step waits for.
  const DeadlineKey key = deadline_key(step.step, 0, 0);
  at.send(seam, message(a, edge, is_activation), key);
}

Seam Pipeline::Walk::recv(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage - 1 : a.stage;
  Edge& at = *pipeline.edge_at(edge);
  const Batch& batch = step.inputs[static_cast<std::size_t>(a.microbatch)].batch;
  const Stopwatch watch;
  Seam seam = at.recv(sized_for(batch, pipeline.seam_at(edge)),
                      pipeline.stream_samples(batch.samples()).size(), pipeline.options(),
                      message(a, edge, is_activation), [this] { pipeline.serve(); });
  pipeline.times_.waiting += watch.seconds();
  if (!is_activation)  // its activation has been understood
    for (const auto& ends : at.ends) ends->sender.release(a.microbatch);
  const std::size_t next = ++taken[edge];
  if (next < at.awaited.size()) at.post(at.awaited[next]);
  return seam;
}

void Pipeline::Walk::prefetch() {
  for (const auto& [number, edge] : pipeline.edges_)
    for (const auto& ends : edge->ends)
      for (const std::vector<std::uint64_t>& all : step.next_samples) {
        const std::span<const std::uint64_t> samples = of_stream(all);
        if (!edge->override_of(ends->sender.spec().traffic).is_bypassed)
          ends->sender.link().prefetch(samples);
        if (!edge->override_of(ends->receiver.spec().traffic).is_bypassed)
          ends->receiver.link().prefetch(samples);
      }
}

}  // namespace laconic
