#include "laconic/update/optimiser.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numeric>

#include "laconic/update/kernel/update.hpp"

namespace laconic {

namespace {

// Elements per task, and per partial sum of the norm.
constexpr std::int64_t kChunk = 1 << 16;

struct Chunk {
  std::size_t parameter;
  std::int64_t first;
  std::int64_t size;
};

// All parameters that have a gradient, cut in chunks, so that one large matrix and a hundred small
// biases share the threads evenly.
std::vector<Chunk> chunks_of(const std::vector<Parameter>& parameters) {
  std::vector<Chunk> chunks;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].gradient.defined()) continue;
    const std::int64_t size = parameters[p].value.numel();
    for (std::int64_t first = 0; first < size; first += kChunk)
      chunks.push_back({p, first, std::min(kChunk, size - first)});
  }
  return chunks;
}

// In the type of the parameters, whatever they added up in.
std::vector<at::Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const Parameter& p : parameters)
    gradients.push_back(p.gradient.defined() ? p.gradient.to(p.value.scalar_type()).contiguous()
                                             : at::Tensor());
  return gradients;
}

// Threads take chunks in turn, not in halves of the list: biases and matrices lie unevenly in it.
template <class Body>
void for_each_chunk(const std::vector<Chunk>& chunks, const Body& body) {
  const auto threads = static_cast<std::size_t>(at::get_num_threads());
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (auto c = static_cast<std::size_t>(t); c < chunks.size(); c += threads) body(c);
  });
}

template <class T>
std::vector<double> squares_on_cpu(const std::vector<Parameter>& parameters) {
  const std::vector<Chunk> chunks = chunks_of(parameters);
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  std::vector<double> sums(chunks.size());
  for_each_chunk(chunks, [&](std::size_t c) {
    const T* data = gradients[chunks[c].parameter].data_ptr<T>();
    sums[c] = kernel::update<T>().sum_of_squares(data + chunks[c].first, chunks[c].size);
  });
  std::vector<double> squares(parameters.size());
  for (std::size_t c = 0; c < chunks.size(); ++c) squares[chunks[c].parameter] += sums[c];
  return squares;
}

std::vector<double> squares_on_device(const std::vector<Parameter>& parameters) {
  std::vector<double> squares;
  for (const Parameter& p : parameters) {
    const at::Tensor& gradient = p.gradient;
    const double norm = gradient.defined() ? gradient.norm().item<double>() : 0;
    squares.push_back(norm * norm);
  }
  return squares;
}

double decay_of(const AdamW& adamw, const at::Tensor& parameter) {
  return parameter.dim() >= 2 ? adamw.weight_decay : 0;
}

template <class T>
void apply_on_cpu(const kernel::AdamWRule& rule, const AdamW& adamw, OptimiserState& state,
                  const std::vector<Parameter>& parameters) {
  const std::vector<Chunk> chunks = chunks_of(parameters);
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  for_each_chunk(chunks, [&](std::size_t c) {
    const auto [p, first, size] = chunks[c];
    kernel::AdamWRule chunk_rule = rule;
    chunk_rule.weight_decay = decay_of(adamw, parameters[p].value);
    kernel::update<T>().adamw(parameters[p].value.data_ptr<T>() + first,
                              gradients[p].data_ptr<T>() + first,
                              state.moment1[p].data_ptr<T>() + first,
                              state.moment2[p].data_ptr<T>() + first, size, chunk_rule);
  });
}

// The same arithmetic, one tensor operation at a time.
void apply_on_device(const kernel::AdamWRule& rule, const AdamW& adamw, OptimiserState& state,
                     const std::vector<Parameter>& parameters) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    at::Tensor value = parameters[p].value;
    if (!parameters[p].gradient.defined()) continue;
    const at::Tensor g = parameters[p].gradient.mul(rule.gradient_scale);
    at::Tensor& m = state.moment1[p];
    at::Tensor& v = state.moment2[p];
    m.mul_(rule.beta1).add_(g, 1 - rule.beta1);
    v.mul_(rule.beta2).addcmul_(g, g, 1 - rule.beta2);
    const at::Tensor denominator =
        v.sqrt().mul_(1 / std::sqrt(rule.correction2)).add_(rule.epsilon);
    value.mul_(1 - rule.lr * decay_of(adamw, value));
    value.addcdiv_(m, denominator, -rule.lr / rule.correction1);
  }
}

// Counts one more update.
kernel::AdamWRule next_rule(const AdamW& adamw, OptimiserState& state, double lr) {
  ++state.updates;
  const auto t = static_cast<double>(state.updates);
  return {.lr = lr,
          .beta1 = adamw.beta1,
          .beta2 = adamw.beta2,
          .epsilon = adamw.epsilon,
          .correction1 = 1 - std::pow(adamw.beta1, t),
          .correction2 = 1 - std::pow(adamw.beta2, t)};
}

void apply_rule(const kernel::AdamWRule& rule, const AdamW& adamw, OptimiserState& state,
                const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = parameters.front().value;
  if (!first.is_cpu())
    apply_on_device(rule, adamw, state, parameters);
  else if (first.scalar_type() == at::kDouble)
    apply_on_cpu<double>(rule, adamw, state, parameters);
  else
    apply_on_cpu<float>(rule, adamw, state, parameters);
}

}  // namespace

OptimiserState make_optimiser_state(const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  OptimiserState state;
  for (const Parameter& p : parameters) {
    state.moment1.push_back(at::zeros_like(p.value));
    state.moment2.push_back(at::zeros_like(p.value));
  }
  return state;
}

std::vector<double> squared_norms(const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = parameters.front().value;
  if (!first.is_cpu()) return squares_on_device(parameters);
  return first.scalar_type() == at::kDouble ? squares_on_cpu<double>(parameters)
                                            : squares_on_cpu<float>(parameters);
}

double norm_of(const std::vector<double>& squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

double global_norm(const std::vector<Parameter>& parameters) {
  return norm_of(squared_norms(parameters));
}

void apply(const AdamW& adamw, OptimiserState& state, const std::vector<Parameter>& parameters,
           double lr, double gradient_scale) {
  kernel::AdamWRule rule = next_rule(adamw, state, lr);
  rule.gradient_scale = gradient_scale;
  apply_rule(rule, adamw, state, parameters);
}

void apply_moment(const AdamW& adamw, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr) {
  kernel::AdamWRule rule = next_rule(adamw, state, lr);
  rule.beta1 = 0;  // moment1 = "gradient"
  rule.beta2 = 1;  // moment2 = moment2
  apply_rule(rule, adamw, state, parameters);
}

}  // namespace laconic
