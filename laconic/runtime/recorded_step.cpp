#include "laconic/runtime/recorded_step.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace laconic {

namespace {

constexpr int kAlikeBefore = 3;  // kernels are chosen and memory is found in these

}  // namespace

// A masked BERT looks for hidden tokens first, and how many there are is for the host to know.
bool RecordedStep::can_record(const Weights& weights) {
  if (!weights.device().is_cuda()) return false;
  const auto* bert = std::get_if<BertShape>(&weights.family);
  return bert == nullptr || (bert->head != BertHead::masked && bert->head != BertHead::pretraining);
}

// Everything that is in the graph and not in the fields' values.
std::vector<double> RecordedStep::shape_of(const PipelineStep& step) {
  std::vector<double> shape = {step.weight};
  for (const PipelineInput& input : step.inputs) {
    const Pass& pass = input.pass;
    for (const double number : {input.weight, pass.dropout, pass.label_smoothing, pass.second_term})
      shape.push_back(number);
    for (const auto& [name, field] : input.batch.fields()) {
      shape.push_back(static_cast<double>(field.dim()));
      for (const std::int64_t size : field.sizes()) shape.push_back(static_cast<double>(size));
    }
  }
  return shape;
}

StepLoss RecordedStep::run(const PipelineStep& step, const Go& walk) {
  // Keys of dropout that come from the host in every operation cannot be recorded.
  const auto is_on_device = [](const PipelineInput& input) {
    return input.pass.dropout == 0 || input.pass.device_keys.defined();
  };
  if (step.is_shadow || is_given_up_ || !std::ranges::all_of(step.inputs, is_on_device))
    return walk(step);
  std::vector<double> shape = shape_of(step);
  if (graph_ != nullptr && shape == shape_) return repeat(step);
  alike_ = shape == last_ ? alike_ + 1 : 0;
  last_ = std::move(shape);
  if (graph_ != nullptr || alike_ < kAlikeBefore) return walk(step);
  return record(step, walk);
}

StepLoss RecordedStep::record(const PipelineStep& step, const Go& walk) {
  graph_ = CudaGraph::make();
  if (graph_ == nullptr) {
    is_given_up_ = true;
    return walk(step);
  }
  inputs_.assign(step.inputs.begin(), step.inputs.end());
  for (PipelineInput& input : inputs_) {
    Batch fields;
    for (const auto& [name, field] : input.batch.fields()) fields.add(name, field.clone());
    input.batch = std::move(fields);
    if (input.pass.device_keys.defined()) input.pass.device_keys = input.pass.device_keys.clone();
  }
  PipelineStep own = step;
  own.inputs = inputs_;
  own.block_done = {};
  if (!graph_->record([&] { loss_ = walk(own); })) {
    is_given_up_ = true;
    graph_.reset();
    inputs_.clear();
    loss_ = {};
    clear_gradients(weights_);
    return walk(step);
  }
  for (const Parameter& p : weights_.parameters) gradients_.push_back(p.gradient);
  shape_ = last_;
  return repeat(step);
}

StepLoss RecordedStep::repeat(const PipelineStep& step) {
  const at::NoGradGuard no_grad;
  for (std::size_t m = 0; m < inputs_.size(); ++m) {
    const auto& from = step.inputs[m].batch.fields();
    const auto& to = inputs_[m].batch.fields();
    for (std::size_t f = 0; f < to.size(); ++f) to[f].second.copy_(from[f].second, true);
    if (inputs_[m].pass.device_keys.defined())
      inputs_[m].pass.device_keys.copy_(step.inputs[m].pass.device_keys, true);
  }
  graph_->repeat();
  for (std::size_t p = 0; p < gradients_.size(); ++p)
    weights_.parameters[p].gradient = gradients_[p];
  if (step.block_done)
    for (std::int64_t b = block_count(weights_.spec); b-- > 0;) step.block_done(b);
  return loss_;
}

}  // namespace laconic
