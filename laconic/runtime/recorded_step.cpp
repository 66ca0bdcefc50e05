#include "laconic/runtime/recorded_step.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/report/trace.hpp"

namespace laconic {

namespace {

constexpr int kAlikeBefore = 3;  // kernels are chosen and memory is found in these

// What each microbatch counts.
std::vector<double> weights_of(const PipelineStep& step) {
  std::vector<double> weights;
  for (const PipelineInput& input : step.inputs) weights.push_back(step.weight * input.weight);
  return weights;
}

}  // namespace

RecordedStep::RecordedStep(Weights& weights, Options options)
    : weights_(weights), options_(std::move(options)) {}

// A masked BERT looks for hidden tokens first, and how many there are is for the host to know.
bool RecordedStep::can_record(const Weights& weights) {
  if (!weights.device().is_cuda()) return false;
  const auto* bert = std::get_if<BertShape>(&weights.family);
  return bert == nullptr || (bert->head != BertHead::masked && bert->head != BertHead::pretraining);
}

// Everything that is in the graph and not in what fill() fills in. Second terms are those of models
// that cannot be recorded.
std::vector<double> RecordedStep::shape_of(const PipelineStep& step) {
  std::vector<double> shape;
  for (const PipelineInput& input : step.inputs) {
    const Pass& pass = input.pass;
    for (const double number :
         {pass.dropout, pass.label_smoothing, static_cast<double>(pass.dropout_tokens)})
      shape.push_back(number);
    for (const auto& [name, field] : input.batch.fields()) {
      shape.push_back(static_cast<double>(field.dim()));
      for (const std::int64_t size : field.sizes()) shape.push_back(static_cast<double>(size));
    }
  }
  return shape;
}

StepLoss RecordedStep::run(const PipelineStep& step, const Go& walk) {
  for (const Parameter& p : weights_.parameters)
    LACONIC_ASSERT(!p.gradient.defined(), p.name + " has a gradient before the step");
  // Keys of dropout that come from the host in every operation cannot be recorded, nor can
  // negatives, nor rows of tables that lie elsewhere: other steps read others, and more or fewer.
  const auto is_on_device = [](const PipelineInput& input) {
    return !input.pass.negatives && input.pass.rows == nullptr &&
           (input.pass.dropout == 0 || input.pass.device_keys.defined());
  };
  if (step.is_shadow || is_given_up_ || !std::ranges::all_of(step.inputs, is_on_device))
    return walk_in_room(step, walk);
  std::vector<double> shape = shape_of(step);
  if (graph_ != nullptr && shape == shape_) return repeat(step);
  alike_ = shape == last_ ? alike_ + 1 : 0;
  last_ = std::move(shape);
  if (graph_ != nullptr || alike_ < kAlikeBefore) return walk_in_room(step, walk);
  return record(step, walk);
}

StepLoss RecordedStep::walk_in_room(const PipelineStep& step, const Go& walk) {
  if (graph_ == nullptr) return walk(step);
  try {
    return walk(step);
  } catch (const c10::OutOfMemoryError&) {
    // Once more without what the graph holds.
  }
  clear_gradients(weights_);
  forget();
  return walk(step);
}

StepLoss RecordedStep::record(const PipelineStep& step, const Go& walk) {
  graph_ = options_.make_graph();
  if (graph_ == nullptr) {
    is_given_up_ = true;
    return walk(step);
  }
  copy_inputs(step);
  const std::string problem = graph_->record([&] { loss_ = walk(own_); });
  if (!problem.empty()) {
    is_given_up_ = true;
    clear_gradients(weights_);
    forget();
    if (options_.tell) options_.tell("steps are not recorded as a CUDA graph: " + problem);
    return walk(step);
  }
  for (const Parameter& p : weights_.parameters) gradients_.push_back(p.gradient);
  shape_ = last_;
  return repeat(step);
}

void RecordedStep::copy_inputs(const PipelineStep& step) {
  factors_ = at::empty({static_cast<std::int64_t>(step.inputs.size())}, weights_.master_options());
  inputs_.assign(step.inputs.begin(), step.inputs.end());
  for (std::size_t m = 0; m < inputs_.size(); ++m) {
    PipelineInput& input = inputs_[m];
    Batch fields;
    for (const auto& [name, field] : input.batch.fields()) fields.add(name, field.clone());
    input.batch = std::move(fields);
    if (input.pass.device_keys.defined()) input.pass.device_keys = input.pass.device_keys.clone();
    input.device_weight = factors_.select(0, static_cast<std::int64_t>(m));
  }
  own_ = step;
  own_.inputs = inputs_;
  own_.block_done = {};
}

void RecordedStep::fill(const PipelineStep& step) {
  for (std::size_t m = 0; m < inputs_.size(); ++m) {
    const auto& from = step.inputs[m].batch.fields();
    const auto& to = inputs_[m].batch.fields();
    for (std::size_t f = 0; f < to.size(); ++f) to[f].second.copy_(from[f].second, true);
    if (inputs_[m].pass.device_keys.defined())
      inputs_[m].pass.device_keys.copy_(step.inputs[m].pass.device_keys, true);
  }
  const std::vector<double> weights = weights_of(step);
  at::Tensor host = at::empty(
      factors_.sizes(),
      at::TensorOptions().dtype(factors_.scalar_type()).pinned_memory(factors_.is_cuda()));
  for (std::size_t m = 0; m < weights.size(); ++m)
    host.select(0, static_cast<std::int64_t>(m)).fill_(weights[m]);
  factors_.copy_(host, true);
}

StepLoss RecordedStep::repeat(const PipelineStep& step) {
  static Trace disabled;
  const TraceSpan span(options_.trace != nullptr ? *options_.trace : disabled, "repeat", "repeat",
                       "compute");
  const at::NoGradGuard no_grad;
  fill(step);
  graph_->repeat();
  ++repeated_;
  for (std::size_t p = 0; p < gradients_.size(); ++p)
    weights_.parameters[p].gradient = gradients_[p];
  if (step.block_done)
    for (std::int64_t b = block_count(weights_.spec); b-- > 0;) step.block_done(b);
  return loss_.with(weights_of(step));
}

void RecordedStep::forget() {
  loss_ = {};
  gradients_.clear();
  own_ = {};
  inputs_.clear();
  factors_.reset();
  shape_.clear();
  alike_ = 0;
  graph_.reset();
}

}  // namespace laconic
