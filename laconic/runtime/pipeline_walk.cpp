// One action after the other: see the table in pipeline.hpp.
#include "laconic/runtime/pipeline_walk.hpp"

#include <ATen/ops/scalar_tensor.h>

#include "laconic/base/clock.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

void Pipeline::Walk::act(const Action& a, bool completes_stage) {
  const Place place{a.stage, a.microbatch};
  switch (a.op) {
    case Op::forward: return forward(a);
    case Op::backward: return backward(a, completes_stage);
    case Op::backward_input: {
      const Stopwatch watch;
      at::Tensor gradient =
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
    case Op::recv_activation: inputs[place] = recv(a, true); return;
    case Op::send_gradient: return send(a, false);
    case Op::recv_gradient: above[place] = recv(a, false); return;
    case Op::prefetch: return prefetch();
  }
}

void Pipeline::Walk::forward(const Action& a) {
  const Place place{a.stage, a.microbatch};
  Stage& stage = pipeline.stage_of(a.stage);
  const Stopwatch watch;
  at::Tensor output =
      stage.forward(a.microbatch, step.inputs[static_cast<std::size_t>(a.microbatch)].microbatch,
                    take(inputs, place));
  if (stage.is_last()) loss += step.weight * output.item<double>();
  pipeline.times_.forward.add(watch.seconds());
  if (stage.is_last()) return;
  if (is_neighbour_here(a.stage + 1))
    inputs[{a.stage + 1, a.microbatch}] = std::move(output);
  else
    outputs[place] = std::move(output);
}

at::Tensor Pipeline::Walk::gradient_of_output(const Action& a) {
  if (a.stage + 1 < shape().stages) return take(above, {a.stage, a.microbatch});
  const at::Tensor& like = pipeline.gpt_.parameters.front().value;
  return at::scalar_tensor(step.weight, like.options().requires_grad(false));
}

Stage::AfterBlock Pipeline::Walk::hook(bool completes_stage) {
  if (!completes_stage) return {};
  return [this](std::int64_t block) { complete(block); };
}

// A rank that holds both ends has not got the tied gradient before both have added to it, and a
// schedule may put the head's W last.
void Pipeline::Walk::complete(std::int64_t block) {
  const std::int64_t head = block_count(pipeline.gpt_.shape) - 1;
  is_embedding_done |= block == 0;
  is_head_done |= block == head;
  if (block != 0) announce(block);
  const bool is_end = block == 0 || block == head;
  if (!is_end || !is_embedding_done || (!is_head_done && pipeline.gpt_.holds(head))) return;
  fold_tied_gradient(pipeline.gpt_);
  announce(0);
}

void Pipeline::Walk::announce(std::int64_t block) const {
  if (step.block_done) step.block_done(block);
}

void Pipeline::Walk::backward(const Action& a, bool completes_stage) {
  const Stopwatch watch;
  at::Tensor gradient = pipeline.stage_of(a.stage).backward(a.microbatch, gradient_of_output(a),
                                                            hook(completes_stage));
  pipeline.times_.backward.add(watch.seconds());
  pass_down(a, std::move(gradient));
}

void Pipeline::Walk::pass_down(const Action& a, at::Tensor gradient) {
  if (a.stage == 0) return;
  if (is_neighbour_here(a.stage - 1))
    above[{a.stage - 1, a.microbatch}] = std::move(gradient);
  else
    below[{a.stage, a.microbatch}] = std::move(gradient);
}

// Both ends evaluate this for the same message, from the same plan.
EdgeMessage Pipeline::Walk::message(const Action& a, int edge, bool is_activation) const {
  const GradientSends& encoded = pipeline.plan_.encoded;
  const bool is_selected =
      is_activation || encoded.empty() ||
      encoded[static_cast<std::size_t>(edge)][static_cast<std::size_t>(a.microbatch)];
  const bool is_whole =
      !is_selected ||
      pipeline.treatment_of(is_activation ? Traffic::pp_activation : Traffic::pp_gradient)
          .is_bypassed;
  return {.microbatch = a.microbatch,
          .use = is_whole || step.is_shadow ? Use::bypass : Use::train,
          .samples = step.inputs[static_cast<std::size_t>(a.microbatch)].samples};
}

void Pipeline::Walk::send(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage : a.stage - 1;
  Edge& at = *pipeline.edge_at(edge);
  const at::Tensor tensor = take(is_activation ? outputs : below, {a.stage, a.microbatch});
  // Before all that only the next step waits for.
  const DeadlineKey key = deadline_key(step.step, 0, 0);
  at.sender.send(tensor, message(a, edge, is_activation), key);
}

at::Tensor Pipeline::Walk::recv(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage - 1 : a.stage;
  Edge& at = *pipeline.edge_at(edge);
  const at::Tensor& like = pipeline.gpt_.parameters.front().value;
  const auto& input = step.inputs[static_cast<std::size_t>(a.microbatch)].microbatch;
  const TensorSpec expected{.dtype = dtype_of(like.scalar_type()),
                            .shape = {input.ids.numel(), pipeline.gpt_.shape.width}};
  const Stopwatch watch;
  at::Tensor tensor = at.receiver.recv(expected, like.device(), message(a, edge, is_activation),
                                       [this] { pipeline.serve(); });
  pipeline.times_.waiting += watch.seconds();
  if (!is_activation) at.sender.release(a.microbatch);  // its activation has been understood
  const std::size_t next = ++taken[edge];
  if (next < at.awaited.size()) at.receiver.post(at.awaited[next]);
  return tensor;
}

void Pipeline::Walk::prefetch() {
  const auto uses_references = [&](const EdgeSpec& end) {
    return !pipeline.treatment_of(end.traffic).is_bypassed;
  };
  for (const auto& [number, edge] : pipeline.edges_)
    for (const std::vector<std::uint64_t>& samples : step.next_samples) {
      if (uses_references(edge->sender.spec())) edge->sender.link().prefetch(samples);
      if (uses_references(edge->receiver.spec())) edge->receiver.link().prefetch(samples);
    }
}

}  // namespace laconic
