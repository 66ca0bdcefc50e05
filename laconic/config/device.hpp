// config/device.hpp — run.device: where tensors live.
//
//   cpu       the host
//   cuda      the GPU of this rank's number on its machine: 0, 1, ..., and from the first again
//   when
//             ranks are more than GPUs
//   cuda:2    that GPU, for every rank that is told so
//
// GPUs are counted as CUDA does, which leaves out what CUDA_VISIBLE_DEVICES hides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  static constexpr int kByLocalRank = -1;

  DeviceKind kind = DeviceKind::cpu;
  int index = kByLocalRank;  // of a GPU
  bool is_cuda() const { return kind == DeviceKind::cuda; }
  bool operator==(const Device&) const = default;
};

inline constexpr int kMostGpus = 64;  // that libtorch counts

std::optional<Device> parse_device(std::string_view text);
std::string to_text(const Device& device);  // as it is written

// Some of what may be written, for messages and completion.
std::vector<std::string> device_words();

// Why a machine with so many GPUs has not what is asked for; none for the CPU. `why_none` is why
// there are none (no_gpu_reason(), base/gpu.hpp).
Problems check_device(const Device& device, int gpus, const std::string& why_none);
// Which GPU the rank of that number on its machine takes. Requires: check_device() is empty.
int choose_gpu(const Device& device, int gpus, int local_rank);

}  // namespace laconic
