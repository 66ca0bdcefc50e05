// machine/cpu.hpp — the processor and memory this process may use.
//
// What the machine has and what we may use differ: affinity masks, container
// quotas and memory limits all cut. Counts here are what we may use, except
// where a name says otherwise. The parse_* functions are pure, over the text
// of the kernel's files; detect_*() read those files and never throw: what
// cannot be read stays empty or zero, since a doctor must survive his patient.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace laconic {

struct CacheSizes {  // bytes; of the first processor, as one core sees them
  std::int64_t l1 = 0;
  std::int64_t l2 = 0;
  std::int64_t l3 = 0;
  bool operator==(const CacheSizes&) const = default;
};

struct Cpu {
  std::string vendor;              // "AuthenticAMD", "GenuineIntel", or empty
  std::string model;               // "AMD EPYC 9354"
  int family = 0;                  // of x86, as Linux counts: 26 is Zen 5; 0: not told
  std::set<std::string> features;  // as Linux spells them: "avx2", "avx512_bf16"
  int hardware_threads = 0;        // in our affinity mask
  int cores = 0;                   // physical, with a thread in our affinity mask
  double quota = 0;                // processors the container may use; 0: no quota
  CacheSizes cache;
  bool has(std::string_view feature) const { return features.contains(std::string(feature)); }
};

struct MachineMemory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;  // without swapping, and below the limit
  std::int64_t limit_bytes = 0;      // of our container; 0: none
};

// Compute threads worth starting: one for each physical core (a second hardware thread adds
// nothing to a loop of multiply-adds), no more than the quota, at least one.
int usable_threads(const Cpu& cpu);

bool has_avx2_fma(const Cpu& cpu);
bool has_avx512(const Cpu& cpu);  // F, BW, DQ and VL: what BLAS kernels mean by "AVX-512"
bool has_amx(const Cpu& cpu);

// The instruction sets that matter here, best last: "sse4_2 avx2 fma avx512f ...".
std::string features_in_short(const Cpu& cpu);

// What /proc/cpuinfo says about the whole machine, x86 or ARM.
struct CpuInfo {
  std::string vendor;
  std::string model;
  int family = 0;
  std::set<std::string> features;
  std::map<int, std::pair<int, int>> core_of;  // processor -> (package, core)
};
CpuInfo parse_cpuinfo(std::string_view text);

std::int64_t parse_size(std::string_view text);  // "32768K" -> bytes; 0 if it is none

// Total and available of /proc/meminfo.
MachineMemory parse_meminfo(std::string_view text);

// Requires: processors is the affinity mask.
Cpu make_cpu(const CpuInfo& info, const std::vector<int>& processors, double quota,
             const CacheSizes& cache);

Cpu detect_cpu();
MachineMemory detect_memory();

}  // namespace laconic
