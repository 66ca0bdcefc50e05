#include "laconic/tensor/gpu.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "laconic/base/clock.hpp"
#include "laconic/tensor/nvml.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kDeviceBytes = std::int64_t{256} << 20;
constexpr std::int64_t kHostBytes = std::int64_t{64} << 20;
constexpr std::int64_t kWidth = 8192;
constexpr int kTimes = 4;

at::Device device_of(int index) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

// Seconds that act() takes, the best of a few; everything on the GPU is waited for.
template <class Act>
double best_seconds_on(const at::Device& device, const Act& act) {
  const at::Tensor probe = at::zeros({1}, at::TensorOptions().device(device));
  const auto wait = [&] { probe.add(1).item<float>(); };  // after all that was queued before
  act();
  wait();
  double best = 1e30;
  for (int i = 0; i < kTimes; ++i) {
    const Stopwatch watch;
    act();
    wait();
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

int count_gpus() {
  return at::hasCUDA() ? static_cast<int>(at::getNumGPUs()) : 0;
}

void use_gpu(int index) {
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device_of(index));
}

void measure_rates(GpuFacts& gpu) {
  const at::Device device = device_of(gpu.index);
  const c10::OptionalDeviceGuard guard(device);
  const at::NoGradGuard no_grad;
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  {
    const at::Tensor from = at::zeros({kDeviceBytes}, bytes.device(device));
    const at::Tensor to = at::zeros({kDeviceBytes}, bytes.device(device));
    const double seconds = best_seconds_on(device, [&] { to.copy_(from); });
    gpu.copy_gb_per_second = 2.0 * static_cast<double>(kDeviceBytes) / seconds / 1e9;
  }
  {
    const at::Tensor host = at::empty({kHostBytes}, bytes.pinned_memory(true)).zero_();
    const at::Tensor there = at::zeros({kHostBytes}, bytes.device(device));
    const auto rate = [&](const at::Tensor& to, const at::Tensor& from) {
      const double seconds =
          best_seconds_on(device, [&] { to.copy_(from, /*non_blocking=*/true); });
      return static_cast<double>(kHostBytes) / seconds / 1e9;
    };
    gpu.to_device_gb_per_second = rate(there, host);
    gpu.to_host_gb_per_second = rate(host, there);
  }
  if (gpu.major >= 8) {
    const at::Tensor a =
        at::ones({kWidth, kWidth}, at::TensorOptions().dtype(at::kBFloat16).device(device));
    at::Tensor out = at::empty_like(a);
    const double seconds = best_seconds_on(device, [&] { at::mm_out(out, a, a); });
    gpu.bf16_tflops = 2.0 * kWidth * kWidth * kWidth / seconds / 1e12;
  }
  free_cached_gpu_memory();
  examine_with_nvml(gpu);  // again: the link and the clocks rest when nothing happens
}

}  // namespace laconic
