#include "laconic/machine/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <utility>

namespace laconic {
namespace {

// Collects settings; a variable that is set already wins over ours.
class Settings {
 public:
  explicit Settings(const Environment& current) : current_(current) {}

  // The value in effect.
  std::string want(const std::string& name, const std::string& value, const std::string& why) {
    const auto found = current_.find(name);
    if (found == current_.end()) {
      list_.push_back({name, value, why});
    } else {
      const bool is_same = found->second == value;
      list_.push_back({name, found->second,
                       is_same ? why + " (was set already)"
                               : fmt::format("set by the user and respected; Laconic would set {}: "
                                             "{}",
                                             value, why)});
    }
    return list_.back().value;
  }

  std::vector<EnvironmentSetting> take() { return std::move(list_); }

 private:
  const Environment& current_;
  std::vector<EnvironmentSetting> list_;
};

bool has_old_onednn(std::string_view torch_version) {
  int major = 0;
  std::from_chars(torch_version.data(), torch_version.data() + torch_version.size(), major);
  return major < 2;
}

void want_kernels(Settings& settings, const Cpu& cpu, std::string_view torch_version) {
  if (const std::string core = openblas_core(cpu); !core.empty())
    settings.want("OPENBLAS_CORETYPE", core,
                  "OpenBLAS takes its oldest kernels on a processor younger than itself");
  if (!has_amx(cpu) || !has_old_onednn(torch_version)) return;
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})  // new and old spelling
    settings.want(name, "AVX512_CORE_BF16",
                  "oneDNN 2.6 dies with an illegal instruction when it uses AMX");
}

void want_threads(Settings& settings, int threads) {
  // Who sets OMP_NUM_THREADS means all pools, so the others follow the value in effect.
  const std::string count =
      settings.want("OMP_NUM_THREADS", std::to_string(threads), "this worker's share of the cores");
  settings.want("OPENBLAS_NUM_THREADS", count, "same as OMP_NUM_THREADS");
  settings.want("MKL_NUM_THREADS", count, "same as OMP_NUM_THREADS");
  settings.want("GOMP_SPINCOUNT", "1000",
                "threads that wait for work give up their core after microseconds, not "
                "milliseconds; matters as soon as something else wants the core");
}

void want_allocator(Settings& settings) {
  constexpr const char* kWhy =
      "freed tensors stay with the process: glibc would give large ones back and fault in "
      "every page again";
  settings.want("MALLOC_MMAP_THRESHOLD_", "4294967296", kWhy);
  settings.want("MALLOC_TRIM_THRESHOLD_", "8589934592", kWhy);
  settings.want("MALLOC_ARENA_MAX", "1",
                "arenas of other threads cannot hold more than 64 MB and would map the rest anew");
  settings.want(
      "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1",
      "large pages where the kernel grants them on request: fewer misses when passing over "
      "parameters");
}

}  // namespace

std::string openblas_core(const Cpu& cpu) {
  // On AMD's Zen 4, family 25, a 512-bit operation is two of 256 bits, and the AVX2 kernels are a
  // little faster; from Zen 5 on it is one, and they take twice as long.
  constexpr int kZen5 = 26;
  const bool is_halved = cpu.vendor != "GenuineIntel" && cpu.family < kZen5;
  if (has_avx512(cpu) && !is_halved) return "SkylakeX";
  if (has_avx2_fma(cpu)) return "Haswell";
  return "";
}

std::vector<EnvironmentSetting> worker_environment(const Cpu& cpu, int threads,
                                                   const Environment& current,
                                                   std::string_view torch_version) {
  Settings settings(current);
  want_kernels(settings, cpu, torch_version);
  want_threads(settings, threads);
  want_allocator(settings);
  return settings.take();
}

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace laconic
