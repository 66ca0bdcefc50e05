#include "laconic/hosts/known_device.hpp"

#include <array>

namespace laconic {

namespace {

// What a data sheet has of a GPU: dense operations per second (without sparsity, a multiply-add
// being two) in units of 1e12, memory in bytes, its rate in bytes per second.
struct DataSheet {
  std::string_view name;
  double float32, tf32, bfloat16, float64;
  double memory_bytes;
  double memory_rate;
};

// Sources: NVIDIA H100 and H200 Tensor Core GPU data sheets (SXM; figures with sparsity halved),
// NVIDIA A100 80 GB data sheet (SXM), NVIDIA Ada GPU architecture whitepaper (RTX 4090, tensor
// cores with float32 sums), NVIDIA L4 data sheet (with sparsity, halved), NVIDIA V100 data sheet
// (SXM2 32 GB; it has no bfloat16: the rate is that of float16 tensor cores).
constexpr std::array kGpus = {
    DataSheet{"h200", 67, 494.5, 989.5, 34, 141e9, 4.8e12},
    DataSheet{"h100", 67, 494.5, 989.5, 34, 80e9, 3.35e12},
    DataSheet{"a100", 19.5, 156, 312, 9.7, 80e9, 2.039e12},
    DataSheet{"a100-40gb", 19.5, 156, 312, 9.7, 40e9, 1.555e12},
    DataSheet{"v100", 15.7, 15.7, 125, 7.8, 32e9, 0.9e12},
    DataSheet{"rtx-4090", 82.6, 82.6, 165.2, 1.29, 24e9, 1.008e12},
    DataSheet{"l4", 30.3, 60, 121, 0.49, 24e9, 0.3e12},
};

// What training steps reach of a data sheet's operations. GPT-2 on an H200 makes 494,000 tokens/s
// in bfloat16 (bench/results/2026-11-16-gpu-steps.md), 0.40 of the sheet with the 399 million
// multiply-adds that model_spec() counts for a token, forward and backward; 159,200 with tf32,
// 0.26, and 53,300 in float32, 0.63. A Llama of 1.1 B reaches more, 0.5 in bfloat16. The lower one
// counts.
constexpr double kReachedFloat32 = 0.63, kReachedTf32 = 0.26, kReachedHalf = 0.40;

// The same bench: AdamW with masters and copies moves 30 bytes of a parameter at 0.83 of the
// sheet's rate, and codecs take 1.0 to 1.7 times as long as a copy, which reads and writes
// (bench/results/2026-11-16-gpu-codec.md).
constexpr double kBytesOfUpdate = 30, kReachedMemory = 0.83;
struct Copies {
  std::string_view codec;
  double encode, decode;
};
// Of no device here it was measured how fast factors are made: factor_rate() derives that from
// products of float32 and copies.
constexpr std::array kCopiesOnGpu = {Copies{"half", 0.78, 0.94}, Copies{"quantise", 1.18, 1.15}};

// A core of the processor that most of our results come from: an AMD EPYC at 3.6 GHz. `laconic
// doctor` measures 81 to 106 GFLOP/s in products of float32 on it and half of that in float64;
// steps of the lab's models reach 62.6 on a core (four processes on two cores, 31.3 each). Codecs
// are those of bench/results/2026-11-15-codec.md, huffman and transform what `laconic measure`
// found of one of the hosts in bench/results/2026-11-19-plan-cases.jsonl, messages of
// 2026-11-18-tensor-grids-2.md: 234 MB/s and 0.22 ms for each of four ranks on two cores.
constexpr double kCoreFlops = 62.6e9;
constexpr double kCoreCopy = 10.1e9, kCoreHandled = 468e6, kCoreMessage = 0.11e-3,
                 kCoreCall = 0.15e-3;
constexpr std::array kCopiesOnCore = {
    Copies{"half", 0.52, 0.79},
    Copies{"quantise", 0.76, 0.80},
    Copies{"quantise:rotate=true", 1.71, 1.57},
    Copies{"quantise:group=channel", 1.35, 0.81},
    Copies{"quantise:rounding=stochastic,grid=ends", 2.57, 0.80},
    Copies{"sign", 0.54, 0.57},
    Copies{"top_k", 1.20, 1.30},
    Copies{"random_k", 0.50, 0.85},
    Copies{"low_rank", 2.50, 1.11},
    Copies{"huffman", 11.8, 8.4},
    Copies{"transform", 23.5, 27.5},
};

template <class Rows>
std::vector<CodecRate> rates_of(const Rows& rows, double copy) {
  std::vector<CodecRate> rates;
  for (const Copies& row : rows)
    rates.push_back({std::string(row.codec), copy / row.encode, copy / row.decode});
  return rates;
}

// A host with a GPU has cores to spare for messages: one is taken to handle them.
HostDevice device_of(const DataSheet& sheet) {
  const double copy = kReachedMemory * sheet.memory_rate / 2;
  const auto reached = [](double tera, double share) { return tera * 1e12 / 2 * share; };
  return {.name = std::string(sheet.name),
          .is_gpu = true,
          .memory_bytes = sheet.memory_bytes,
          .multiply_adds_per_second = {reached(sheet.float32, kReachedFloat32),
                                       reached(sheet.tf32, kReachedTf32),
                                       reached(sheet.bfloat16, kReachedHalf),
                                       reached(sheet.float64, kReachedFloat32)},
          .updates_per_second = kReachedMemory * sheet.memory_rate / kBytesOfUpdate,
          .codecs = rates_of(kCopiesOnGpu, copy),
          .copy_bytes_per_second = copy,
          .handled_bytes_per_second = kCoreHandled,
          .message_seconds = kCoreMessage,
          .call_seconds = kCoreCall};
}

HostDevice core() {
  return {.name = "core",
          .multiply_adds_per_second = {kCoreFlops / 2, 0, 0, kCoreFlops / 4},
          .updates_per_second = 2 * kCoreCopy / 32,  // 28 bytes of a parameter move, 4 for its norm
          .codecs = rates_of(kCopiesOnCore, kCoreCopy),
          .copy_bytes_per_second = kCoreCopy,
          .handled_bytes_per_second = kCoreHandled,
          .message_seconds = kCoreMessage,
          .call_seconds = kCoreCall};
}

}  // namespace

std::optional<HostDevice> known_device(std::string_view name) {
  if (name == "core") return core();
  for (const DataSheet& sheet : kGpus)
    if (sheet.name == name) return device_of(sheet);
  return std::nullopt;
}

std::vector<std::string> known_device_names() {
  std::vector<std::string> names = {"core"};
  for (const DataSheet& sheet : kGpus) names.emplace_back(sheet.name);
  return names;
}

}  // namespace laconic
