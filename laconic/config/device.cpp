#include "laconic/config/device.hpp"

#include <fmt/format.h>

#include <charconv>

namespace laconic {
namespace {

constexpr std::string_view kCpu = "cpu", kCuda = "cuda";

}  // namespace

std::optional<Device> parse_device(std::string_view text) {
  if (text == kCpu) return Device{};
  if (text == kCuda) return Device{DeviceKind::cuda};
  if (!text.starts_with(kCuda) || text.size() < kCuda.size() + 2 || text[kCuda.size()] != ':')
    return std::nullopt;
  const std::string_view digits = text.substr(kCuda.size() + 1);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  // Written as we would: no signs, no zeros in front.
  if (!is_number || index < 0 || index >= kMostGpus || digits != std::to_string(index))
    return std::nullopt;
  return Device{DeviceKind::cuda, index};
}

std::string to_text(const Device& device) {
  if (!device.is_cuda()) return std::string(kCpu);
  if (device.index == Device::kByLocalRank) return std::string(kCuda);
  return fmt::format("{}:{}", kCuda, device.index);
}

std::vector<std::string> device_words() {
  return {"cpu", "cuda", "cuda:0"};
}

Problems check_device(const Device& device, int gpus, const std::string& why_none) {
  if (!device.is_cuda() || (gpus > 0 && device.index < gpus)) return {};
  if (gpus == 0)
    return {{"run.device", fmt::format("device = \"{}\", and there is no GPU to use: {}",
                                       to_text(device), why_none)}};
  const std::string are = gpus == 1
                              ? "there is one GPU, cuda:0"
                              : fmt::format("there are {} GPUs, cuda:0 to cuda:{}", gpus, gpus - 1);
  return {
      {"run.device", fmt::format("device = \"{}\", and {} (CUDA_VISIBLE_DEVICES may hide others)",
                                 to_text(device), are)}};
}

int choose_gpu(const Device& device, int gpus, int local_rank) {
  return device.index == Device::kByLocalRank ? local_rank % gpus : device.index;
}

}  // namespace laconic
