#include "laconic/machine/cpu.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <thread>

#include "laconic/base/text.hpp"
#include "laconic/machine/cgroup.hpp"

namespace laconic {
namespace {

int to_int(std::string_view text, int otherwise) {
  int value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "key : value" lines; calls use(key, value) for each.
template <class Use>
void for_each_field(std::string_view text, const Use& use) {
  for (const std::string& line : split(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    use(trim(std::string_view(line).substr(0, colon)),
        trim(std::string_view(line).substr(colon + 1)));
  }
}

std::vector<int> affinity() {
  // Processor numbers beyond 1023 do not fit the fixed set; such machines have a hundred cores
  // in the mask anyway, and then the answer is only too small.
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) processors.push_back(i);
  if (processors.empty())
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      processors.push_back(static_cast<int>(i));
  return processors;
}

CacheSizes detect_cache() {
  CacheSizes cache;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    if (trim(read_system_text(folder + "type")) == "Instruction") continue;
    const std::int64_t size = parse_size(trim(read_system_text(folder + "size")));
    switch (to_int(trim(read_system_text(folder + "level")), 0)) {
      case 1: cache.l1 = size; break;
      case 2: cache.l2 = size; break;
      case 3: cache.l3 = size; break;
      default: break;
    }
  }
  return cache;
}

}  // namespace

int usable_threads(const Cpu& cpu) {
  int threads = std::max(1, cpu.cores);
  // A quota of 2.5 processors pays for three threads: two would leave half of one unused.
  if (cpu.quota > 0) threads = std::min(threads, static_cast<int>(std::ceil(cpu.quota - 0.01)));
  return std::max(1, threads);
}

bool has_avx2_fma(const Cpu& cpu) {
  return cpu.has("avx2") && cpu.has("fma");
}

bool has_avx512(const Cpu& cpu) {
  return cpu.has("avx512f") && cpu.has("avx512bw") && cpu.has("avx512dq") && cpu.has("avx512vl");
}

bool has_amx(const Cpu& cpu) {
  return cpu.has("amx_tile") || cpu.has("amx_bf16");
}

std::string features_in_short(const Cpu& cpu) {
  std::vector<std::string> present;
  for (const char* name : {"sse4_2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq",
                           "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
                           "amx_bf16", "amx_int8", "asimd", "asimddp", "sve", "bf16", "i8mm"})
    if (cpu.has(name)) present.emplace_back(name);
  return join(present, " ");
}

CpuInfo parse_cpuinfo(std::string_view text) {
  CpuInfo info;
  int processor = 0;
  for_each_field(text, [&](std::string_view key, std::string_view value) {
    if (key == "processor") {
      processor = to_int(value, static_cast<int>(info.core_of.size()));
      info.core_of[processor] = {0, processor};  // its own core until told otherwise
    } else if (key == "vendor_id" && info.vendor.empty()) {
      info.vendor = value;
    } else if ((key == "model name" || key == "Model") && info.model.empty()) {
      info.model = value;
    } else if (key == "cpu family" && info.family == 0) {
      info.family = to_int(value, 0);
    } else if (key == "physical id") {
      info.core_of[processor].first = to_int(value, 0);
    } else if (key == "core id") {
      info.core_of[processor].second = to_int(value, processor);
    } else if ((key == "flags" || key == "Features") && info.features.empty()) {
      for (const std::string& flag : split(value, ' '))
        if (!flag.empty()) info.features.insert(flag);
    }
  });
  return info;
}

std::int64_t parse_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const std::string_view unit = trim(text.substr(static_cast<std::size_t>(end - text.data())));
  if (unit == "K" || unit == "kB") return value << 10;
  if (unit == "M") return value << 20;
  if (unit == "G") return value << 30;
  return unit.empty() ? value : 0;
}

MachineMemory parse_meminfo(std::string_view text) {
  MachineMemory memory;
  for_each_field(text, [&](std::string_view key, std::string_view value) {
    if (key == "MemTotal") memory.total_bytes = parse_size(value);
    if (key == "MemAvailable") memory.available_bytes = parse_size(value);
  });
  return memory;
}

Cpu make_cpu(const CpuInfo& info, const std::vector<int>& processors, double quota,
             const CacheSizes& cache) {
  std::set<std::pair<int, int>> cores;
  for (const int processor : processors) {
    const auto found = info.core_of.find(processor);
    cores.insert(found != info.core_of.end() ? found->second : std::pair{-1, processor});
  }
  return {.vendor = info.vendor,
          .model = info.model,
          .family = info.family,
          .features = info.features,
          .hardware_threads = static_cast<int>(processors.size()),
          .cores = static_cast<int>(cores.size()),
          .quota = quota,
          .cache = cache};
}

Cpu detect_cpu() {
  const CgroupLimits limits =
      cgroup_limits(read_system_text("/proc/self/cgroup"), &read_system_text);
  return make_cpu(parse_cpuinfo(read_system_text("/proc/cpuinfo")), affinity(), limits.processors,
                  detect_cache());
}

MachineMemory detect_memory() {
  MachineMemory memory = parse_meminfo(read_system_text("/proc/meminfo"));
  const CgroupLimits limits =
      cgroup_limits(read_system_text("/proc/self/cgroup"), &read_system_text);
  if (limits.memory_bytes <= 0 || limits.memory_bytes >= memory.total_bytes) return memory;
  memory.limit_bytes = limits.memory_bytes;
  // Page cache counts as used although it would be given back: an underestimate, on the safe side.
  memory.available_bytes =
      std::min(memory.available_bytes,
               std::max<std::int64_t>(0, limits.memory_bytes - limits.memory_used_bytes));
  return memory;
}

}  // namespace laconic
