#include "laconic/doctor/measure.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <time.h>

#include <algorithm>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/doctor/compute_thread.hpp"
#include "laconic/doctor/gpu.hpp"
#include "laconic/tensor/gpu.hpp"

namespace laconic {
namespace {

// libtorch's number of threads, restored at the end of the scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ScopedThreads() { at::set_num_threads(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
};

double best_seconds(const at::Tensor& a, const at::Tensor& b, int repeats) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  at::mm_out(out, a, b);  // wakes the pool and touches the pages
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    at::mm_out(out, a, b);
    best = std::min(best, watch.seconds());
  }
  return best;
}

GemmSpeed measure_gemm(at::ScalarType type, std::int64_t m, std::int64_t n, std::int64_t k,
                       int threads, int repeats) {
  const ScopedThreads scope(threads);
  const at::Tensor a = at::randn({m, k}, at::TensorOptions().dtype(type));
  const at::Tensor b = at::randn({k, n}, at::TensorOptions().dtype(type));
  const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
  const double seconds = best_seconds(a, b, repeats);
  return {.dtype = type == at::kDouble ? "f64" : "f32",
          .m = m,
          .n = n,
          .k = k,
          .threads = threads,
          .gflops = operations / seconds / 1e9,
          .seconds = seconds};
}

std::vector<GemmSpeed> measure_gemms(const DoctorOptions& options, int all_threads) {
  const std::int64_t w = options.width;
  std::vector<int> counts = {1};
  if (all_threads > 1) counts.push_back(all_threads);
  std::vector<GemmSpeed> speeds;
  for (const int threads : counts) {
    speeds.push_back(measure_gemm(at::kFloat, w, w, w, threads, options.repeats));
    // The first product of a feed-forward layer: 1024 tokens, width 384, four times wider inside.
    speeds.push_back(measure_gemm(at::kFloat, w, w * 3 / 2, w * 3 / 8, threads, options.repeats));
    speeds.push_back(measure_gemm(at::kDouble, w, w, w, threads, options.repeats));
  }
  return speeds;
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The peak, and which share of a core we had while we measured: its loops never wait, so what is
// missing went to others.
void measure_peak(DoctorFacts& facts) {
  const Stopwatch watch;
  const double before = thread_cpu_seconds();
  facts.peak = measure_core_peak(0.1);
  facts.core_share = (thread_cpu_seconds() - before) / watch.seconds();
}

// On one thread and not flushing, whatever the process does otherwise.
double measure_denormal_slowdown(const DoctorOptions& options) {
  const ScopedThreads one(1);
  const ScopedDenormals off(false);
  const std::int64_t w = options.width / 2;
  const at::Tensor normal = at::full({w, w}, 1.5f, at::kFloat);
  const at::Tensor denormal = at::full({w, w}, 1e-40f, at::kFloat);
  const double seconds = best_seconds(normal, normal, options.repeats);
  return best_seconds(denormal, normal, std::max(1, options.repeats / 2)) / seconds;
}

void measure_memory(DoctorFacts& facts) {
  const std::int64_t most = std::min(
      std::int64_t{768} << 20, std::max(facts.memory.available_bytes / 4, std::int64_t{3} << 20));
  const std::int64_t l3 = facts.cpu.cache.l3;
  facts.bandwidth_one = measure_bandwidth(1, l3, most);
  facts.bandwidth_all = measure_bandwidth(usable_threads(facts.cpu), l3, most);
  facts.reallocation_gb_per_second = measure_reallocation();
}

Environment in_effect(const std::vector<EnvironmentSetting>& wanted) {
  const Environment current = current_environment();
  Environment chosen;
  for (const EnvironmentSetting& setting : wanted)
    if (const auto found = current.find(setting.name); found != current.end())
      chosen.insert(*found);
  return chosen;
}

}  // namespace

DoctorFacts measure_doctor_facts(const DoctorOptions& options) {
  DoctorFacts facts;
  facts.cpu = detect_cpu();
  facts.memory = detect_memory();
  facts.torch_version = LACONIC_TORCH_VERSION;
  facts.advised = worker_environment(facts.cpu, usable_threads(facts.cpu), {}, facts.torch_version);
  facts.environment = in_effect(facts.advised);
  facts.threads = at::get_num_threads();
  facts.gpus = detect_gpus();
  facts.cuda = examine_cuda();
  for (int gpu = 0; gpu < count_gpus(); ++gpu) {
    facts.gpu_facts.push_back(examine_gpu(gpu));
    measure_rates(facts.gpu_facts.back());
  }
  facts.torch_has_cuda = count_gpus() > 0;
  measure_peak(facts);
  facts.gemm = measure_gemms(options, facts.threads);
  facts.blas = examine_blas();
  facts.is_flushing_denormals = compute_threads_are_prepared();
  facts.denormal_slowdown = measure_denormal_slowdown(options);
  if (options.measure_memory) measure_memory(facts);
  return facts;
}

}  // namespace laconic
