// Speed of training steps on a GPU, as `laconic train` takes them, and where their time goes.
//
//   gpu_bench FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH PRECISION DETERMINISTIC STEPS
//   [TABLE] gpu_bench limits
//
// FAMILY is gpt, llama (a quarter of the heads have keys) or bert (with two classes). PRECISION is
// a run.precision, DETERMINISTIC yes or no. The loss of a step is read when the next one has been
// asked for. Prints one JSON line: mean and median milliseconds of a
// step, those until everything was asked for (near the step's: the host is the limit), and the peak
// of the GPU's memory. With TABLE the kernels of three more steps go there, by time. `limits`
// measures what steps are compared with: the rate of bfloat16 products and of copies. With
// GPU_BENCH_NO_GRAPH in the environment kernels are asked for one by one. The peer is
// bench/peers/torch_gpu.py; bench/gpu puts them side by side.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "laconic/base/clock.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/read.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Sizes {
  std::int64_t layers, width, heads, tokens, vocabulary, batch;
};

Family family_of(const std::string& name, const Sizes& s) {
  if (name == "llama")
    return LlamaShape{.layers = s.layers,
                      .width = s.width,
                      .heads = s.heads,
                      .key_heads = s.heads / 4,
                      .head_width = s.width / s.heads,
                      .hidden = 4 * s.width,
                      .context = s.tokens,
                      .vocabulary = s.vocabulary};
  if (name == "bert")
    return BertShape{.layers = s.layers,
                     .width = s.width,
                     .heads = s.heads,
                     .hidden = 4 * s.width,
                     .context = s.tokens,
                     .vocabulary = s.vocabulary,
                     .head = BertHead::classify};
  return GptShape{.layers = s.layers,
                  .width = s.width,
                  .heads = s.heads,
                  .context = s.tokens,
                  .vocabulary = s.vocabulary};
}

// Random tokens; a bert's samples have half the context and more.
Batch random_batch(const Family& family, const Sizes& s, at::Device device) {
  const auto numbers = at::TensorOptions().dtype(at::kLong).device(device);
  if (std::holds_alternative<BertShape>(family)) {
    const at::Tensor ids = at::randint(s.vocabulary, {s.batch, s.tokens}, numbers);
    return {{"ids", ids},
            {"types", at::zeros_like(ids)},
            {"length", at::randint(s.tokens / 2, s.tokens + 1, {s.batch, 1}, numbers)},
            {"label", at::randint(2, {s.batch, 1}, numbers)}};
  }
  const at::Tensor ids = at::randint(s.vocabulary, {s.batch, s.tokens + 1}, numbers);
  return {{"ids", ids.narrow(1, 0, s.tokens).contiguous()},
          {"targets", ids.narrow(1, 1, s.tokens).contiguous()}};
}

struct Bench {
  RunConfig config;
  World world;
  Weights weights;
  OptimiserState state;
  std::unique_ptr<UpdateRule> rule;
  Pipeline pipeline;
  std::vector<PipelineInput> inputs;
  double loss = 0;
  int left = 0;  // steps whose loss nobody has read

  Bench(const Family& family, const Sizes& sizes, const RunConfig& run)
      : config(run),
        weights(make_weights(family, 1, tensor_options(run))),
        state(make_optimiser_state(weights.parameters)),
        rule(make_update_rule({config, weights, world, {}, 1})),
        pipeline(weights, plan_for_one(weights.spec, 1), nullptr, {0}, 0,
                 {.records = std::getenv("GPU_BENCH_NO_GRAPH") == nullptr}) {
    inputs.push_back({.batch = random_batch(family, sizes, weights.device()), .samples = {}});
  }

  // Returns when everything was asked for.
  double step(const Stopwatch& watch) {
    const StepLoss coming = pipeline.run({.step = 0, .inputs = inputs, .next_samples = {}});
    if (!rule->leaves_steps()) throw std::runtime_error("steps are waited for");
    rule->leave(coming, 0, state, 1e-4);
    clear_gradients(weights);
    const double asked = watch.seconds();
    if (++left > 1) hear();
    return asked;
  }
  void hear() {
    const Measured measured = rule->hear();
    if (measured.is_skipped) throw std::runtime_error("a step is not finite");
    loss = measured.loss;
    --left;
  }
};

// Milliseconds of kernels in a step, by name.
void write_table(Bench& bench, const std::string& path) {
  constexpr int kSteps = 3;
  const std::set<ActivityType> activities = {ActivityType::CPU, ActivityType::CUDA};
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (int i = 0; i < kSteps; ++i) bench.step(Stopwatch());
  c10::cuda::device_synchronize();
  struct Row {
    double ms = 0;
    int calls = 0;
  };
  std::map<std::string, Row> by_name;
  double total = 0;
  const auto result = profiler::disableProfiler();
  for (const profiler::KinetoEvent& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    const double ms = 1e-6 * static_cast<double>(event.durationNs()) / kSteps;
    by_name[event.name()].ms += ms;
    ++by_name[event.name()].calls;
    total += ms;
  }
  std::vector<std::pair<std::string, Row>> rows(by_name.begin(), by_name.end());
  std::ranges::sort(rows, std::greater<>(), [](const auto& row) { return row.second.ms; });
  std::ofstream out(path);
  out << fmt::format("{:.3f} ms of kernels a step\n", total);
  for (const auto& [name, row] : rows)
    out << fmt::format("{:9.3f} ms {:6.1f} calls  {}\n", row.ms, double(row.calls) / kSteps,
                       name.substr(0, 140));
}

int bench(int argc, char** argv) {
  const Sizes sizes{std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                    std::atoll(argv[5]), std::atoll(argv[6]), std::atoll(argv[7])};
  const int steps = std::atoi(argv[10]);
  RunConfig config;
  if (!apply_set("run.device=cuda", config).empty()) return 1;
  config.run.precision = value_in(kRunPrecisionNames, argv[8]).value();
  config.run.deterministic = std::string(argv[9]) == "yes";
  config.train.clip = 1;
  Bench bench(family_of(argv[1], sizes), sizes, config);
  constexpr int kWarmUp = 10;
  std::vector<double> total, asked;
  double first = 0;
  Stopwatch all;
  for (int i = 0; i < steps + kWarmUp; ++i) {
    if (i == kWarmUp) {
      c10::cuda::device_synchronize();
      all = Stopwatch();
    }
    const Stopwatch watch;
    const double until = bench.step(watch);
    if (i == 1) first = bench.loss;
    if (i < kWarmUp) continue;
    asked.push_back(1e3 * until);
    total.push_back(1e3 * watch.seconds());
  }
  c10::cuda::device_synchronize();
  const double mean = 1e3 * all.seconds() / steps;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  fmt::print(
      "{{\"step_ms\": {:.3f}, \"step_ms_median\": {:.3f}, \"asked_ms\": {:.3f}, "
      "\"tokens_per_second\": {:.0f}, \"samples_per_second\": {:.1f}, \"peak_mb\": {:.0f}, "
      "\"reserved_mb\": {:.0f}, \"first_loss\": {:.6f}, \"last_loss\": {:.6f}}}\n",
      mean, median(total), median(asked),
      1e3 * static_cast<double>(sizes.batch * sizes.tokens) / mean,
      1e3 * static_cast<double>(sizes.batch) / mean,
      static_cast<double>(stats.allocated_bytes[0].peak) / 1e6,
      static_cast<double>(stats.reserved_bytes[0].peak) / 1e6, first, bench.loss);
  std::fflush(stdout);
  if (argc > 11) write_table(bench, argv[11]);
  return 0;
}

// Seconds of one call, from many between two waits.
template <class Call>
double seconds_of(const Call& call) {
  constexpr int kCalls = 20;
  for (int i = 0; i < 3; ++i) call();
  c10::cuda::device_synchronize();
  const Stopwatch watch;
  for (int i = 0; i < kCalls; ++i) call();
  c10::cuda::device_synchronize();
  return watch.seconds() / kCalls;
}

int limits() {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  constexpr std::int64_t kWidth = 8192;
  const at::Tensor a = at::randn({kWidth, kWidth}, options),
                   b = at::randn({kWidth, kWidth}, options);
  at::Tensor c = at::empty({kWidth, kWidth}, options);
  const double product = seconds_of([&] { at::mm_out(c, a, b); });
  const at::Tensor from = at::full({1 << 28}, 1.0, options.dtype(at::kFloat));
  at::Tensor to = at::zeros_like(from);
  const double copy = seconds_of([&] { to.copy_(from); });
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
  fmt::print("{{\"gpu\": \"{}\", \"bf16_tflops\": {:.0f}, \"copy_gb_per_second\": {:.0f}}}\n",
             properties.name, 2e-12 * double(kWidth) * double(kWidth) * double(kWidth) / product,
             2e-9 * double(from.nbytes()) / copy);
  return 0;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "limits") return laconic::limits();
  if (argc < 11) {
    fmt::print(stderr,
               "usage: gpu_bench FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH PRECISION "
               "DETERMINISTIC STEPS [TABLE] | gpu_bench limits\n");
    return 2;
  }
  return laconic::bench(argc, argv);
}
