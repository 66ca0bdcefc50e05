#include "laconic/update/cuda_update.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/update/kernel/device_update.hpp"

namespace laconic::cuda {

namespace {

using kernel::DeviceRow;

cudaStream_t stream_on(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

// Rows of parameters that have a gradient, on their way to the device, and what they point to.
struct Table {
  std::vector<DeviceRow> rows;
  std::vector<std::int64_t> places;  // by row: of the parameter
  std::vector<at::Tensor> gradients;
  std::int64_t chunks = 0;
  at::Tensor on_device;

  void add(std::size_t place, const Parameter& parameter, DeviceRow row) {
    gradients.push_back(parameter.gradient.to(at::kFloat).contiguous());
    row.gradient = gradients.back().data_ptr<float>();
    row.size = parameter.value.numel();
    row.first_chunk = chunks;
    chunks += (row.size + kernel::kDeviceChunk - 1) / kernel::kDeviceChunk;
    rows.push_back(row);
    places.push_back(static_cast<std::int64_t>(place));
  }

  kernel::DeviceTable upload(at::Device device) {
    const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(DeviceRow));
    const at::Tensor host =
        at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    std::memcpy(host.data_ptr(), rows.data(), static_cast<std::size_t>(bytes));
    on_device = host.to(device, at::kByte, /*non_blocking=*/true);
    return {static_cast<const DeviceRow*>(on_device.data_ptr()), static_cast<int>(rows.size()),
            chunks};
  }
};

kernel::DeviceRule rule_of(const OptimiserSpec& spec) {
  switch (spec.kind) {
    case OptimiserKind::adamw:
    case OptimiserKind::muon: return kernel::DeviceRule::adamw;  // what is no hidden matrix
    case OptimiserKind::adam: return kernel::DeviceRule::adam;
    case OptimiserKind::sgd:
      return spec.nesterov ? kernel::DeviceRule::nesterov : kernel::DeviceRule::sgd;
    case OptimiserKind::lion: return kernel::DeviceRule::lion;
  }
  return kernel::DeviceRule::adamw;
}

kernel::DeviceStep step_of(const UpdateTask& task) {
  const kernel::AdamWRule& adam = task.adam;
  const auto real = [](double x) { return static_cast<float>(x); };
  return {.rule = rule_of(task.spec),
          .lr = real(task.lr),
          .scale = real(task.gradient_scale),
          .beta1 = real(adam.beta1),
          .rest1 = real(1 - adam.beta1),
          .beta2 = real(adam.beta2),
          .rest2 = real(1 - adam.beta2),
          .step = real(adam.lr / adam.correction1),
          .root = real(1 / std::sqrt(adam.correction2)),
          .epsilon = real(adam.epsilon),
          .momentum = real(task.spec.momentum)};
}

bool is_on_gpu(const Parameter& parameter) {
  return parameter.value.is_cuda();
}

// The one that all have who are on any.
at::Device gpu_of(const std::vector<Parameter>& parameters) {
  return std::ranges::find_if(parameters, is_on_gpu)->value.device();
}

}  // namespace

bool updates(const std::vector<Parameter>& parameters) {
  return std::ranges::any_of(parameters, is_on_gpu) &&
         std::ranges::all_of(parameters, [](const Parameter& p) {
           if (!is_on_gpu(p)) return !p.gradient.defined();
           return p.value.scalar_type() == at::kFloat && p.value.is_contiguous();
         });
}

at::Tensor squared_norms(const std::vector<Parameter>& parameters) {
  const at::Device device = gpu_of(parameters);
  const auto reals = at::TensorOptions().dtype(at::kDouble).device(device);
  const auto all = static_cast<std::int64_t>(parameters.size());
  Table table;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].gradient.defined()) table.add(p, parameters[p], {});
  if (table.rows.empty()) return at::zeros({all}, reals);
  const auto rows = static_cast<std::int64_t>(table.rows.size());
  const at::Tensor squares = at::empty({rows}, reals);
  const at::Tensor partials = at::empty({table.chunks}, reals);
  kernel::sum_squares(table.upload(device), partials.data_ptr<double>(), squares.data_ptr<double>(),
                      stream_on(device));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (rows == all) return squares;
  const at::Tensor places =
      at::empty({rows}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
  std::copy(table.places.begin(), table.places.end(), places.data_ptr<std::int64_t>());
  return at::zeros({all}, reals).index_copy_(0, places.to(device, at::kLong, true), squares);
}

at::Tensor judge(const JudgeTask& task) {
  const auto own = static_cast<std::int64_t>(Judgement::count);
  const std::int64_t parts = task.parts.defined() ? task.parts.numel() : 0;
  at::Tensor verdict = at::empty({own + parts}, task.squares.options());
  kernel::judge({.squares = task.squares.data_ptr<double>(),
                 .count = static_cast<int>(task.squares.numel()),
                 .parts = parts > 0 ? task.parts.data_ptr<double>() : nullptr,
                 .part_count = static_cast<int>(parts),
                 .is_finite = task.is_finite,
                 .clip = task.clip,
                 .before = task.before.defined() ? task.before.data_ptr<double>() : nullptr,
                 .verdict = verdict.data_ptr<double>()},
                stream_on(verdict.device()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return verdict;
}

void update(const UpdateTask& task, OptimiserState& state,
            const std::vector<Parameter>& parameters) {
  Table table;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (!parameter.gradient.defined()) continue;
    const double decay = parameter.value.dim() >= 2 ? task.spec.weight_decay : 0;
    const bool has_copy = parameter.copy.defined() && !parameter.copy.is_same(parameter.value);
    LACONIC_ASSERT(!has_copy || parameter.copy.scalar_type() == at::kBFloat16,
                   "copies of " + parameter.name + " are neither float nor bfloat16");
    const at::Tensor& second = state.moment2[p];
    table.add(p, parameter,
              {.value = parameter.value.data_ptr<float>(),
               .moment1 = state.moment1[p].data_ptr<float>(),
               .moment2 = second.defined() ? second.data_ptr<float>() : nullptr,
               .copy = has_copy ? parameter.copy.data_ptr() : nullptr,
               .decay = static_cast<float>(decay),
               .shrink = static_cast<float>(1 - task.lr * decay)});
  }
  if (table.rows.empty()) return;
  const at::Device device = gpu_of(parameters);
  const double* verdict = task.verdict.defined() ? task.verdict.data_ptr<double>() : nullptr;
  kernel::update(table.upload(device), step_of(task), verdict, stream_on(device));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace laconic::cuda
