#include "laconic/update/optimiser.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/update/cuda_update.hpp"
#include "laconic/update/kernel/update.hpp"
#include "laconic/update/muon.hpp"
#include "laconic/update/spel.hpp"

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

// Whether some are on a device. Tables whose rows travel are not, and have no gradients here.
bool is_any_on_device(const std::vector<Parameter>& parameters) {
  return std::ranges::any_of(parameters, [](const Parameter& p) { return !p.value.is_cpu(); });
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

double decay_of(const OptimiserSpec& spec, const at::Tensor& parameter) {
  return parameter.dim() >= 2 ? spec.weight_decay : 0;
}

// What an update of all parameters needs to know.
struct Step {
  const OptimiserSpec& spec;
  OptimiserState& state;
  double lr;
  double gradient_scale;
  // Of adamw and adam, without the decay, which depends on the parameter.
  kernel::AdamWRule adam = {};
};

// Counts one more update.
Step next_step(const OptimiserSpec& spec, OptimiserState& state, double lr, double scale) {
  ++state.updates;
  const auto t = static_cast<double>(state.updates);
  return {spec,
          state,
          lr,
          scale,
          {.lr = lr,
           .beta1 = spec.beta1,
           .beta2 = spec.beta2,
           .epsilon = spec.epsilon,
           .correction1 = 1 - std::pow(spec.beta1, t),
           .correction2 = 1 - std::pow(spec.beta2, t),
           .gradient_scale = scale}};
}

// One chunk of the parameter at place `p`.
template <class T>
void update_chunk(const Step& step, std::size_t p, T* value, const T* gradient, std::int64_t first,
                  std::int64_t size, double decay) {
  const OptimiserSpec& spec = step.spec;
  const kernel::Update<T>& update = kernel::update<T>();
  T* moment1 = step.state.moment1[p].template data_ptr<T>() + first;
  const auto moment2 = [&] { return step.state.moment2[p].template data_ptr<T>() + first; };
  kernel::AdamWRule adam = step.adam;
  adam.weight_decay = decay;
  switch (spec.kind) {
    case OptimiserKind::adamw:
    case OptimiserKind::muon:  // what is no hidden matrix
      update.adamw(value + first, gradient + first, moment1, moment2(), size, adam);
      return;
    case OptimiserKind::adam:
      update.adam(value + first, gradient + first, moment1, moment2(), size, adam);
      return;
    case OptimiserKind::sgd:
      update.sgd(value + first, gradient + first, moment1, size,
                 {.lr = step.lr,
                  .momentum = spec.momentum,
                  .weight_decay = decay,
                  .nesterov = spec.nesterov,
                  .gradient_scale = step.gradient_scale});
      return;
    case OptimiserKind::lion:
      update.lion(value + first, gradient + first, moment1, size,
                  {.lr = step.lr,
                   .beta1 = spec.beta1,
                   .beta2 = spec.beta2,
                   .weight_decay = decay,
                   .gradient_scale = step.gradient_scale});
      return;
  }
}

template <class T>
void apply_on_cpu(const Step& step, const std::vector<Parameter>& parameters) {
  const std::vector<Chunk> chunks = chunks_of(parameters);
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  for_each_chunk(chunks, [&](std::size_t c) {
    const auto [p, first, size] = chunks[c];
    update_chunk<T>(step, p, parameters[p].value.data_ptr<T>(), gradients[p].data_ptr<T>(), first,
                    size, decay_of(step.spec, parameters[p].value));
  });
}

void adam_on_device(const Step& step, at::Tensor& m, at::Tensor& v, at::Tensor g, double decay,
                    at::Tensor value) {
  const kernel::AdamWRule& rule = step.adam;
  const bool is_coupled = step.spec.kind == OptimiserKind::adam;
  if (is_coupled) g = g.add(value, decay);
  m.mul_(rule.beta1).add_(g, 1 - rule.beta1);
  v.mul_(rule.beta2).addcmul_(g, g, 1 - rule.beta2);
  const at::Tensor denominator = v.sqrt().mul_(1 / std::sqrt(rule.correction2)).add_(rule.epsilon);
  if (!is_coupled) value.mul_(1 - rule.lr * decay);
  value.addcdiv_(m, denominator, -rule.lr / rule.correction1);
}

void sgd_on_device(const Step& step, at::Tensor& m, const at::Tensor& g, double decay,
                   at::Tensor value) {
  const at::Tensor full = g.add(value, decay);
  m.mul_(step.spec.momentum).add_(full);
  value.sub_(step.spec.nesterov ? full.add(m, step.spec.momentum) : m, step.lr);
}

void lion_on_device(const Step& step, at::Tensor& m, const at::Tensor& g, double decay,
                    at::Tensor value) {
  const at::Tensor direction = m.mul(step.spec.beta1).add_(g, 1 - step.spec.beta1).sign_();
  value.mul_(1 - step.lr * decay).sub_(direction, step.lr);
  m.mul_(step.spec.beta2).add_(g, 1 - step.spec.beta2);
}

// The same arithmetic, one tensor operation at a time.
void apply_on_device(const Step& step, const std::vector<Parameter>& parameters) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& value = parameters[p].value;
    if (!parameters[p].gradient.defined()) continue;
    const at::Tensor g = parameters[p].gradient.mul(step.gradient_scale);
    at::Tensor& m = step.state.moment1[p];
    const double decay = decay_of(step.spec, value);
    switch (step.spec.kind) {
      case OptimiserKind::adamw:
      case OptimiserKind::adam:
      case OptimiserKind::muon:
        adam_on_device(step, m, step.state.moment2[p], g, decay, value);
        break;
      case OptimiserKind::sgd: sgd_on_device(step, m, g, decay, value); break;
      case OptimiserKind::lion: lion_on_device(step, m, g, decay, value); break;
    }
  }
}

// Compute copies follow.
void apply_elementwise(const Step& step, const std::vector<Parameter>& parameters) {
  const at::Tensor& first = parameters.front().value;
  if (cuda::updates(parameters)) {
    cuda::update({step.spec, step.lr, step.gradient_scale, step.adam}, step.state, parameters);
    return;
  }
  if (is_any_on_device(parameters))
    apply_on_device(step, parameters);
  else if (first.scalar_type() == at::kDouble)
    apply_on_cpu<double>(step, parameters);
  else
    apply_on_cpu<float>(step, parameters);
  refresh_copies(parameters);
}

// Bases, and with muon hidden matrices, one by one, each product on all threads; then the rest.
bool is_whole_update(OptimiserKind kind, const Parameter& p) {
  return p.is_basis || (kind == OptimiserKind::muon && p.is_hidden_matrix);
}

void apply_by_matrix(const Step& step, const std::vector<Parameter>& parameters) {
  std::vector<Parameter> rest = parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (!is_whole_update(step.spec.kind, parameter)) continue;
    rest[p].gradient.reset();
    if (!parameter.gradient.defined()) continue;
    const at::Tensor gradient =
        parameter.gradient.to(parameter.value.scalar_type()).mul(step.gradient_scale);
    if (parameter.is_basis) {
      spel_update(step.lr * kBasisRate, step.spec.beta1, gradient, parameter.value.detach(),
                  step.state.moment1[p]);
      continue;
    }
    muon_update({.lr = step.lr * step.spec.muon_rate,
                 .momentum = step.spec.muon_momentum,
                 .weight_decay = step.spec.weight_decay,
                 .scale = step.spec.muon_scale,
                 .is_out_in = parameter.is_out_in},
                gradient, parameter.value, step.state.moment1[p]);
  }
  apply_elementwise(step, rest);
  refresh_copies(parameters);
}

}  // namespace

OptimiserSpec optimiser_spec(const OptimiserSection& o) {
  return {.kind = o.kind,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .epsilon = o.epsilon,
          .weight_decay = o.weight_decay,
          .momentum = o.momentum,
          .nesterov = o.nesterov,
          .muon_rate = o.muon_lr > 0 ? o.muon_lr / o.lr : 1,
          .muon_momentum = o.muon_momentum,
          .muon_scale = o.muon_scale};
}

OptimiserState make_optimiser_state(const std::vector<Parameter>& parameters, OptimiserKind kind) {
  const at::NoGradGuard no_grad;
  OptimiserState state;
  for (const Parameter& p : parameters) {
    const bool has_both = moment_count(kind, p.is_hidden_matrix) == 2;
    state.moment1.push_back(at::zeros_like(p.value));
    state.moment2.push_back(has_both ? at::zeros_like(p.value) : at::Tensor());
  }
  return state;
}

PendingSquares::PendingSquares(const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = parameters.front().value;
  if (cuda::updates(parameters))
    coming_.emplace(cuda::squared_norms(parameters));
  else if (is_any_on_device(parameters))
    known_ = squares_on_device(parameters);
  else
    known_ = first.scalar_type() == at::kDouble ? squares_on_cpu<double>(parameters)
                                                : squares_on_cpu<float>(parameters);
}

std::vector<double> PendingSquares::values() const {
  if (!coming_) return known_;
  const at::Tensor& host = coming_->wait();
  const auto* data = host.data_ptr<double>();
  return {data, data + host.numel()};
}

std::vector<double> squared_norms(const std::vector<Parameter>& parameters) {
  return PendingSquares(parameters).values();
}

double norm_of(const std::vector<double>& squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

double global_norm(const std::vector<Parameter>& parameters) {
  return norm_of(squared_norms(parameters));
}

void apply(const OptimiserSpec& spec, OptimiserState& state,
           const std::vector<Parameter>& parameters, double lr, double gradient_scale) {
  const at::NoGradGuard no_grad;
  const Step step = next_step(spec, state, lr, gradient_scale);
  if (std::ranges::any_of(parameters,
                          [&](const Parameter& p) { return is_whole_update(spec.kind, p); }))
    apply_by_matrix(step, parameters);
  else
    apply_elementwise(step, parameters);
}

at::Tensor judge(const StepLoss& loss, const std::vector<Parameter>& parameters, double clip,
                 const at::Tensor& before) {
  const at::NoGradGuard no_grad;
  const at::Tensor parts = loss.parts();
  const bool is_finite = std::isfinite(loss.known());
  if (cuda::updates(parameters))
    return cuda::judge({.squares = cuda::squared_norms(parameters),
                        .parts = parts,
                        .is_finite = is_finite,
                        .clip = clip,
                        .before = before});
  constexpr auto kOwn = static_cast<std::int64_t>(Judgement::count);
  at::Tensor verdict = at::zeros({kOwn + (parts.defined() ? parts.numel() : 0)}, at::kDouble);
  if (parts.defined()) verdict.narrow(0, kOwn, parts.numel()).copy_(parts);
  auto* v = verdict.data_ptr<double>();
  const auto at = [](double* of, Judgement place) -> double& {
    return of[static_cast<std::int64_t>(place)];
  };
  const double norm = global_norm(parameters);
  const bool was_good = !before.defined() || at(before.data_ptr<double>(), Judgement::is_good) != 0;
  const bool are_finite =
      std::all_of(v + kOwn, v + verdict.numel(), [](double part) { return std::isfinite(part); });
  at(v, Judgement::norm) = norm;
  at(v, Judgement::scale) = clip > 0 && norm > clip ? clip / norm : 1;
  at(v, Judgement::is_good) = was_good && is_finite && are_finite && std::isfinite(norm);
  return verdict;
}

void apply_judged(const OptimiserSpec& spec, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr, const at::Tensor& verdict) {
  LACONIC_ASSERT(can_be_judged(spec, parameters), "such updates need numbers on the host");
  if (verdict.is_cpu()) {
    const auto* v = verdict.data_ptr<double>();
    if (v[static_cast<std::int64_t>(Judgement::is_good)] == 0)
      ++state.updates;
    else
      apply(spec, state, parameters, lr, v[static_cast<std::int64_t>(Judgement::scale)]);
    return;
  }
  const at::NoGradGuard no_grad;
  const Step step = next_step(spec, state, lr, 1);
  cuda::update({step.spec, step.lr, step.gradient_scale, step.adam, verdict}, step.state,
               parameters);
}

bool can_be_judged(const OptimiserSpec& spec, const std::vector<Parameter>& parameters) {
  if (!is_any_on_device(parameters)) return true;
  return cuda::updates(parameters) && std::ranges::none_of(parameters, [&](const Parameter& p) {
           return is_whole_update(spec.kind, p);
         });
}

void apply_moment(const OptimiserSpec& spec, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr) {
  LACONIC_ASSERT(spec.kind == OptimiserKind::adamw, "only adamw has such moments");
  const at::NoGradGuard no_grad;
  Step step = next_step(spec, state, lr, 1);
  step.adam.beta1 = 0;  // moment1 = "gradient"
  step.adam.beta2 = 1;  // moment2 = moment2
  apply_elementwise(step, parameters);
}

void apply_held(const OptimiserSpec& spec, OptimiserState& state,
                const std::vector<Parameter>& parameters, double lr, double gradient_scale,
                const HeldMoment& held) {
  LACONIC_ASSERT(spec.kind == OptimiserKind::adamw, "only adamw has such moments");
  const at::NoGradGuard no_grad;
  Step step = next_step(spec, state, lr, gradient_scale);
  step.adam.correction2 = 1 - std::pow(spec.beta2, static_cast<double>(held.renewals));
  if (!held.renews) step.adam.beta2 = 1;  // moment2 = moment2
  apply_elementwise(step, parameters);
}

at::Tensor held_denominator(const OptimiserSpec& spec, const OptimiserState& state, std::size_t p,
                            std::int64_t renewals) {
  const double correction = 1 - std::pow(spec.beta2, static_cast<double>(renewals));
  return state.moment2[p].sqrt().mul_(1 / std::sqrt(correction)).add_(spec.epsilon);
}

}  // namespace laconic
