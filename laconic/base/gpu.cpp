#include "laconic/base/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/text.hpp"

namespace laconic {
namespace {

// GB/s of one lane, both directions apart, after encoding.
double lane_gb_per_second(int generation) {
  switch (generation) {
    case 1: return 0.25;
    case 2: return 0.5;
    case 3: return 0.985;
    case 4: return 1.97;
    case 5: return 3.94;
    case 6: return 7.56;
  }
  return 0;
}

std::string called(const GpuFacts& gpu) {
  return gpu.name.empty() ? fmt::format("cuda:{}", gpu.index)
                          : fmt::format("cuda:{} ({})", gpu.index, gpu.name);
}

bool is_too_old(const CudaFacts& cuda) {
  return cuda.driver > 0 && cuda.runtime > 0 && cuda.driver / 1000 < cuda.runtime / 1000;
}

void examine_driver(const GpuFacts& gpu, std::vector<GpuWarning>& out) {
  const CudaFacts& cuda = gpu.cuda;
  if (cuda.driver == 0 || cuda.runtime <= cuda.driver) return;
  out.push_back({fmt::format("the driver is for CUDA {}, older than the runtime, {}",
                             cuda_version_text(cuda.driver), cuda_version_text(cuda.runtime)),
                 is_too_old(cuda) ? "install a newer driver: nothing will run"
                                  : "install a newer driver: kernels that are compiled when the "
                                    "program runs may fail"});
}

void examine_pcie(const GpuFacts& gpu, std::vector<GpuWarning>& out) {
  if (gpu.pcie_generation > 0 &&
      (gpu.pcie_generation < gpu.most_pcie_generation || gpu.pcie_width < gpu.most_pcie_width))
    out.push_back(
        {fmt::format("its PCIe link is generation {} x{}, and could be generation {} x{}",
                     gpu.pcie_generation, gpu.pcie_width, gpu.most_pcie_generation,
                     gpu.most_pcie_width),
         "put the card into another slot, or see what the firmware sets; copies to and from the "
         "host are slow"});
  const double most = lane_gb_per_second(gpu.pcie_generation) * gpu.pcie_width;
  for (const auto& [rate, which] : {std::pair{gpu.to_device_gb_per_second, "to the GPU"},
                                    {gpu.to_host_gb_per_second, "to the host"}})
    if (most > 0 && rate > 0 && rate < 0.5 * most)
      out.push_back({fmt::format("copies {} run at {:.1f} GB/s, and the link carries {:.0f}", which,
                                 rate, most),
                     "run on the processor that the GPU hangs on (numactl --cpunodebind, see "
                     "nvidia-smi topo -m), with nothing else on the link"});
}

void examine_use(const GpuFacts& gpu, std::vector<GpuWarning>& out) {
  if (gpu.ranks > 1)
    out.push_back({fmt::format("{} ranks share it: they take turns", gpu.ranks),
                   "as many ranks on a machine as it has GPUs; or one, with a larger batch"});
  const auto total = static_cast<double>(gpu.total_bytes),
             taken = total - static_cast<double>(gpu.free_bytes);
  if (gpu.free_bytes > 0 && taken > 0.1 * total && gpu.ranks <= 1)
    out.push_back({fmt::format("{} of its {} are taken, by other programs or by its own",
                               gib_text(taken), gib_text(total)),
                   "nvidia-smi says by whom"});
}

void examine_health(const GpuFacts& gpu, std::vector<GpuWarning>& out) {
  if (!gpu.slowed_by.empty())
    out.push_back({fmt::format("its clocks are held down: {}", join(gpu.slowed_by, ", ")),
                   "better cooling or a higher power limit (nvidia-smi -q -d PERFORMANCE)"});
  if (gpu.memory_errors > 0)
    out.push_back(
        {fmt::format("its memory has had {} errors that could not be corrected", gpu.memory_errors),
         "reset or replace it (nvidia-smi -q -d ECC): results cannot be trusted"});
  if (gpu.major > 0 && gpu.major < 8)
    out.push_back({fmt::format("compute capability {}.{} has neither bfloat16 nor TF32", gpu.major,
                               gpu.minor),
                   "expect fp32's speed; GPUs from 2020 on have both"});
}

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string gib_text(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / (1 << 30));
}

std::string to_text(const GpuFacts& gpu) {
  std::vector<std::string> parts = {gpu.name.empty() ? "GPU" : gpu.name};
  if (gpu.total_bytes > 0)
    parts.push_back(fmt::format("{} ({:.1f} free)", gib_text(static_cast<double>(gpu.total_bytes)),
                                static_cast<double>(gpu.free_bytes) / (1 << 30)));
  if (gpu.major > 0) parts.push_back(fmt::format("compute capability {}.{}", gpu.major, gpu.minor));
  const CudaFacts& cuda = gpu.cuda;
  if (cuda.driver > 0)
    parts.push_back(fmt::format("driver {}for CUDA {}",
                                cuda.driver_version.empty() ? "" : cuda.driver_version + " ",
                                cuda_version_text(cuda.driver)));
  if (cuda.runtime > 0) parts.push_back("runtime " + cuda_version_text(cuda.runtime));
  if (gpu.pcie_generation > 0)
    parts.push_back(fmt::format("PCIe {} x{}", gpu.pcie_generation, gpu.pcie_width));
  return join(parts, ", ");
}

std::string rates_text(const GpuFacts& gpu) {
  std::vector<std::string> parts;
  if (gpu.copy_gb_per_second > 0)
    parts.push_back(fmt::format("copies on the GPU {:.0f} GB/s", gpu.copy_gb_per_second));
  if (gpu.to_device_gb_per_second > 0)
    parts.push_back(fmt::format("from the host {:.1f}, to the host {:.1f} GB/s",
                                gpu.to_device_gb_per_second, gpu.to_host_gb_per_second));
  if (gpu.bf16_tflops > 0)
    parts.push_back(fmt::format("bf16 products {:.0f} TFLOP/s", gpu.bf16_tflops));
  return join(parts, ", ");
}

std::vector<GpuWarning> warnings_of(const GpuFacts& gpu) {
  std::vector<GpuWarning> warnings;
  examine_driver(gpu, warnings);
  examine_pcie(gpu, warnings);
  examine_use(gpu, warnings);
  examine_health(gpu, warnings);
  return warnings;
}

std::string no_gpu_reason(const CudaFacts& cuda, int gpus) {
  if (!cuda.torch_has_cuda)
    return "this libtorch was built without CUDA (docs/gpu.md says how to build with another)";
  if (cuda.driver == 0) return "there is no driver of NVIDIA's here";
  if (is_too_old(cuda))
    return fmt::format(
        "the driver{} is for CUDA {}, and this program needs {}: install a newer one",
        cuda.driver_version.empty() ? "" : " " + cuda.driver_version,
        cuda_version_text(cuda.driver), cuda_version_text(cuda.runtime));
  if (gpus == 0) return "the driver has no GPU here, or CUDA_VISIBLE_DEVICES hides all of them";
  return fmt::format("the driver has {}, but libtorch cannot use {}: `laconic doctor` says more",
                     gpus == 1 ? "one" : std::to_string(gpus), gpus == 1 ? "it" : "them");
}

Problems check_gpu(const GpuFacts& gpu, const GpuWish& wish) {
  if (gpu.major == 0 || gpu.major >= 8) return {};
  Problems problems;
  const auto refuse = [&](const char* type, const char* word) {
    problems.push_back(
        {"run.precision",
         fmt::format(
             "precision = \"{}\", and {} of compute capability {}.{} has no {}, which begins "
             "with 8.0: use \"float32\"",
             word, called(gpu), gpu.major, gpu.minor, type)});
  };
  if (wish.bfloat16) refuse("bfloat16", "bfloat16");
  if (wish.tf32) refuse("TF32", "tf32");
  return problems;
}

bool is_gpu_failure(std::string_view what) {
  return std::ranges::any_of(
      std::to_array<std::string_view>({"CUDA", "cuda", "CUBLAS", "cuBLAS", "CUDNN", "cuDNN"}),
      [&](std::string_view word) { return what.find(word) != std::string_view::npos; });
}

std::string describe(const GpuFailure& failure, const GpuFacts& gpu) {
  std::string what = failure.what.substr(0, failure.what.find('\n'));
  const std::string where =
      fmt::format("{}{}{}", failure.rank >= 0 ? fmt::format("rank {}, ", failure.rank) : "",
                  called(gpu), failure.activity.empty() ? "" : ", " + failure.activity);
  if (!failure.is_out_of_memory)
    return fmt::format(
        "{}: {}. The GPU's state is lost with this process: go on from the last "
        "checkpoint with --resume auto",
        where, what);
  // Libtorch goes on with the numbers below, and advice of its own.
  what = what.substr(0, what.find(" GPU "));
  const std::string left = gpu.total_bytes == 0
                               ? ""
                               : fmt::format(" {} of its {} are free now.",
                                             human_bytes(static_cast<double>(gpu.free_bytes)),
                                             human_bytes(static_cast<double>(gpu.total_bytes)));
  return fmt::format(
      "{}: out of memory: {}{} A smaller train.microbatch, model.recompute = true, "
      "a shorter precision or fewer ranks on the GPU help; go on from the last "
      "checkpoint with --resume auto",
      where, what, left);
}

}  // namespace laconic
