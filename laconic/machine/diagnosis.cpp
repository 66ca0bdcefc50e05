#include "laconic/machine/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/text.hpp"

namespace laconic {
namespace {

using Findings = std::vector<Finding>;

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// OpenBLAS's kernel sets from before AVX2. On a processor that has it, one of these means that
// OpenBLAS did not recognise the processor.
bool is_ancient(std::string_view core) {
  constexpr std::array kOld = {"Katmai", "Coppermine",  "Northwood",    "Prescott",  "Banias",
                               "Core2",  "Penryn",      "Dunnington",   "Atom",      "Nehalem",
                               "Athlon", "Opteron",     "Opteron_SSE3", "Barcelona", "Bobcat",
                               "Nano",   "Sandybridge", "Bulldozer",    "Generic"};
  return std::ranges::any_of(kOld, [core](const char* old) { return core == old; });
}

std::string set_core(const Cpu& cpu) {
  if (openblas_core(cpu).empty()) return "use another BLAS";
  return fmt::format("export OPENBLAS_CORETYPE={} (`laconic train` sets it for its workers)",
                     openblas_core(cpu));
}

void examine_processor(const DoctorFacts& f, Findings& out) {
  if (f.cpu.has("sse4_2") && !has_avx2_fma(f.cpu))
    out.push_back({Severity::warn, "the processor has no AVX2 with FMA",
                   "expect a quarter of the speed of a processor from 2013 or later"});
  if (f.cpu.quota > 0 && f.cpu.quota < f.cpu.cores)
    out.push_back(
        {Severity::warn,
         fmt::format("the container may use {:.1f} of {} cores", f.cpu.quota, f.cpu.cores),
         "raise the container's CPU limit, or accept it: Laconic starts no more threads"});
}

void examine_threads(const DoctorFacts& f, Findings& out) {
  if (f.threads <= 0) return;
  const int usable = usable_threads(f.cpu);
  const std::string what =
      fmt::format("libtorch computes with {} of {} usable cores", f.threads, usable);
  if (f.threads < usable)
    out.push_back({Severity::warn, what, fmt::format("export OMP_NUM_THREADS={}", usable)});
  else if (f.threads > usable)
    out.push_back({Severity::bad, what + "; threads that wait for each other will crawl",
                   fmt::format("export OMP_NUM_THREADS={}", usable)});
  else
    out.push_back({Severity::ok, what, ""});
}

void examine_blas(const DoctorFacts& f, Findings& out) {
  const BlasFacts& blas = f.blas;
  if (blas.name == "reference BLAS")
    out.push_back({Severity::bad,
                   fmt::format("libtorch multiplies with the reference BLAS ({})", blas.path),
                   "apt install libopenblas0-openmp"});
  if (blas.threading == BlasThreading::pthreads)
    out.push_back(
        {Severity::warn,
         fmt::format("{} has a thread pool of its own, which fights with libtorch's", blas.path),
         "apt install libopenblas0-openmp, then build again"});
  if (blas.threading == BlasThreading::sequential && usable_threads(f.cpu) > 1)
    out.push_back({Severity::warn, fmt::format("{} was built for one thread", blas.path),
                   "apt install libopenblas0-openmp, then build again"});
  if (is_ancient(blas.core) && has_avx2_fma(f.cpu))
    out.push_back(
        {Severity::bad,
         fmt::format("OpenBLAS did not recognise this processor and uses {} kernels", blas.core),
         set_core(f.cpu)});
}

bool is_busy(const DoctorFacts& f) {
  return f.core_share > 0 && f.core_share < 0.9;
}

void examine_load(const DoctorFacts& f, Findings& out) {
  if (is_busy(f))
    out.push_back({Severity::warn,
                   fmt::format("other programs are running: a thread gets {:.0f} % of a core, and "
                               "every speed here is too low",
                               100 * f.core_share),
                   "stop them and ask again"});
}

void examine_product(const DoctorFacts& f, Findings& out) {
  const double one = best_gflops(f, "f32", 1);
  if (one <= 0 || f.peak.f32_gflops <= 0) return;
  const double share = one / f.peak.f32_gflops;
  const std::string what =
      fmt::format("matrix products reach {:.0f} of {:.0f} GFLOP/s on one core ({:.0f} %)", one,
                  f.peak.f32_gflops, 100 * share);
  // The right kernels that are slow are not the kernels' fault.
  const bool is_excused = is_busy(f) || f.blas.core == openblas_core(f.cpu);
  if (share >= 0.7)
    out.push_back({Severity::ok, what, ""});
  else if (is_excused)
    out.push_back({Severity::warn, what, "stop other work on this machine and ask again"});
  else
    out.push_back({share < 0.5 ? Severity::bad : Severity::warn, what, set_core(f.cpu)});
}

void examine_scaling(const DoctorFacts& f, Findings& out) {
  const double one = best_gflops(f, "f32", 1);
  const double all = best_gflops(f, "f32", f.threads);
  if (f.threads < 2 || one <= 0 || all <= 0 || is_busy(f)) return;
  const double share = all / (one * f.threads);
  const std::string what =
      fmt::format("{} threads multiply {:.1f} times as fast as one", f.threads, all / one);
  if (share < 0.6)
    out.push_back({Severity::warn, what,
                   "stop other work on this machine; check that cores are not hardware threads of "
                   "one core, and that BLAS uses OpenMP"});
  else
    out.push_back({Severity::ok, what, ""});
}

void examine_onednn(const DoctorFacts& f, Findings& out) {
  for (const EnvironmentSetting& wanted : f.advised) {
    if (wanted.name != "ONEDNN_MAX_CPU_ISA") continue;
    if (!value_of(f.environment, "ONEDNN_MAX_CPU_ISA").empty() ||
        !value_of(f.environment, "DNNL_MAX_CPU_ISA").empty())
      return;
    out.push_back({Severity::bad,
                   "the processor has AMX and this libtorch's oneDNN dies when it uses it",
                   fmt::format("export {}={}", wanted.name, wanted.value)});
  }
}

void examine_denormals(const DoctorFacts& f, Findings& out) {
  if (f.denormal_slowdown <= 0) return;
  const std::string what =
      fmt::format("a product fed with denormals takes {:.1f} times as long; they are {}",
                  f.denormal_slowdown, f.is_flushing_denormals ? "flushed to zero" : "not flushed");
  if (f.is_flushing_denormals)
    out.push_back({Severity::ok, what, ""});
  else
    out.push_back({f.denormal_slowdown < 1.5 ? Severity::warn : Severity::bad, what,
                   "call flush_denormals() first in main()"});
}

void examine_memory(const DoctorFacts& f, Findings& out) {
  if (f.memory.total_bytes > 0 && f.memory.available_bytes < (std::int64_t{2} << 30))
    out.push_back({Severity::warn,
                   fmt::format("only {} of memory are available",
                               human_bytes(static_cast<double>(f.memory.available_bytes))),
                   "stop other programs or raise the container's memory limit"});
  const double speed = f.reallocation_gb_per_second;
  if (speed <= 0 || f.bandwidth_one.copy <= 0) return;
  // Filling writes one array where copy counts two; half of copy's rate is what it should reach.
  const std::string what =
      fmt::format("allocating and filling 64 MB runs at {:.1f} GB/s (memory copies at {:.1f})",
                  speed, f.bandwidth_one.copy);
  if (speed < f.bandwidth_one.copy / 5)
    out.push_back({Severity::warn, what,
                   "export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 "
                   "MALLOC_ARENA_MAX=1 (`laconic train` sets them for its workers)"});
  else
    out.push_back({Severity::ok, what, ""});
}

void examine_gpus(const DoctorFacts& f, Findings& out) {
  for (const GpuFacts& gpu : f.gpu_facts)
    for (const GpuWarning& warning : warnings_of(gpu))
      out.push_back(
          {Severity::warn, fmt::format("cuda:{}: {}", gpu.index, warning.what), warning.fix});
  if (f.gpus.empty()) return;
  if (f.torch_has_cuda)
    out.push_back({Severity::ok, fmt::format("libtorch can use {}", join(f.gpus, "; ")), ""});
  else
    out.push_back({Severity::warn,
                   fmt::format("libtorch {} cannot use {}: {}", f.torch_version, join(f.gpus, "; "),
                               no_gpu_reason(f.cuda, static_cast<int>(f.gpus.size()))),
                   f.cuda.torch_has_cuda
                       ? "as above"
                       : "build with -DLACONIC_TORCH=/path/to/a/libtorch/2.x/with/CUDA"});
}

}  // namespace

double best_gflops(const DoctorFacts& facts, std::string_view dtype, int threads) {
  double best = 0;
  for (const GemmSpeed& g : facts.gemm)
    if (g.dtype == dtype && g.threads == threads) best = std::max(best, g.gflops);
  return best;
}

std::vector<Finding> diagnose(const DoctorFacts& facts) {
  Findings findings;
  for (const auto examine :
       {examine_processor, examine_threads, examine_blas, examine_load, examine_product,
        examine_scaling, examine_onednn, examine_denormals, examine_memory, examine_gpus})
    examine(facts, findings);
  return findings;
}

}  // namespace laconic
