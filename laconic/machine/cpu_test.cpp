#include "laconic/machine/cpu.hpp"

#include <gtest/gtest.h>

#include <map>

#include "laconic/machine/cgroup.hpp"

namespace laconic {
namespace {

// Two cores with two hardware threads each, shortened.
constexpr const char* kIntel = R"(processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
physical id	: 0
core id		: 0
flags		: fpu sse4_2 avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16 amx_bf16 amx_tile
bugs		: spectre_v1

processor	: 1
physical id	: 0
core id		: 1
flags		: fpu

processor	: 2
physical id	: 0
core id		: 0

processor	: 3
physical id	: 0
core id		: 1
)";

constexpr const char* kArm = R"(processor	: 0
BogoMIPS	: 243.75
Features	: fp asimd asimddp sve bf16
CPU implementer	: 0x41

processor	: 1
BogoMIPS	: 243.75
Features	: fp asimd asimddp sve bf16
)";

TEST(Cpu, ReadsAnIntelMachineWithHardwareThreads) {
  const CpuInfo info = parse_cpuinfo(kIntel);
  EXPECT_EQ(info.vendor, "GenuineIntel");
  EXPECT_EQ(info.model, "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz");
  EXPECT_EQ(info.family, 6);
  EXPECT_EQ(info.core_of.size(), 4u);
  const Cpu cpu = make_cpu(info, {0, 1, 2, 3}, 0, {});
  EXPECT_EQ(cpu.family, 6);
  EXPECT_EQ(cpu.hardware_threads, 4);
  EXPECT_EQ(cpu.cores, 2);
  EXPECT_EQ(usable_threads(cpu), 2);
  EXPECT_TRUE(has_avx2_fma(cpu) && has_avx512(cpu) && has_amx(cpu));
  EXPECT_EQ(features_in_short(cpu),
            "sse4_2 avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16 amx_tile amx_bf16");
}

TEST(Cpu, CountsOnlyCoresInTheAffinityMask) {
  const CpuInfo info = parse_cpuinfo(kIntel);
  EXPECT_EQ(make_cpu(info, {0, 2}, 0, {}).cores, 1);  // two threads of one core
  EXPECT_EQ(make_cpu(info, {0, 1}, 0, {}).cores, 2);
  EXPECT_EQ(make_cpu(info, {77}, 0, {}).cores, 1);  // not in cpuinfo: taken for a core
}

TEST(Cpu, ReadsAnArmMachineWithoutTopology) {
  const Cpu cpu = make_cpu(parse_cpuinfo(kArm), {0, 1}, 0, {});
  EXPECT_EQ(cpu.cores, 2);
  EXPECT_TRUE(cpu.has("asimd"));
  EXPECT_FALSE(has_avx2_fma(cpu) || has_avx512(cpu) || has_amx(cpu));
}

TEST(Cpu, SurvivesEmptyAndOddText) {
  EXPECT_EQ(parse_cpuinfo("").core_of.size(), 0u);
  EXPECT_EQ(parse_cpuinfo("processor : x\nflags\n: :\n").features.size(), 0u);
  EXPECT_EQ(usable_threads(Cpu{}), 1);
}

TEST(Cpu, AQuotaCapsThreadsAndFractionsRoundUp) {
  struct {
    double quota;
    int threads;
  } const cases[] = {{0, 8}, {0.5, 1}, {1, 1}, {2.5, 3}, {4, 4}, {100, 8}};
  for (const auto& c : cases)
    EXPECT_EQ(usable_threads({.hardware_threads = 16, .cores = 8, .quota = c.quota}), c.threads)
        << c.quota;
}

TEST(Cpu, ParsesSizes) {
  EXPECT_EQ(parse_size("32K"), 32 << 10);
  EXPECT_EQ(parse_size("24684100 kB"), std::int64_t{24684100} << 10);
  EXPECT_EQ(parse_size("2M"), 2 << 20);
  EXPECT_EQ(parse_size("17"), 17);
  EXPECT_EQ(parse_size(""), 0);
  EXPECT_EQ(parse_size("many"), 0);
  EXPECT_EQ(parse_size("3 apples"), 0);
}

TEST(Cpu, ReadsMemory) {
  const MachineMemory memory =
      parse_meminfo("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    900 kB\n");
  EXPECT_EQ(memory.total_bytes, 1000 << 10);
  EXPECT_EQ(memory.available_bytes, 900 << 10);
}

ReadText files(std::map<std::string, std::string> content) {
  return [content = std::move(content)](const std::string& path) {
    const auto found = content.find(path);
    return found == content.end() ? std::string() : found->second;
  };
}

TEST(Cgroup, VersionTwoTakesTheLeastOfAllAncestors) {
  const CgroupLimits limits =
      cgroup_limits("0::/slice/pod\n", files({{"/sys/fs/cgroup/slice/pod/cpu.max", "max 100000\n"},
                                              {"/sys/fs/cgroup/slice/cpu.max", "250000 100000\n"},
                                              {"/sys/fs/cgroup/cpu.max", "400000 100000\n"},
                                              {"/sys/fs/cgroup/slice/pod/memory.max", "8000\n"},
                                              {"/sys/fs/cgroup/slice/pod/memory.current", "3000\n"},
                                              {"/sys/fs/cgroup/slice/memory.max", "max\n"}}));
  EXPECT_DOUBLE_EQ(limits.processors, 2.5);
  EXPECT_EQ(limits.memory_bytes, 8000);
  EXPECT_EQ(limits.memory_used_bytes, 3000);
}

TEST(Cgroup, VersionOneReadsItsOwnFiles) {
  const CgroupLimits limits =
      cgroup_limits("5:pids:/a\n3:memory:/a\n2:cpu,cpuacct:/b\n0::/\n",
                    files({{"/sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us", "50000"},
                           {"/sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us", "100000"},
                           {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"},
                           {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096"}}));
  EXPECT_DOUBLE_EQ(limits.processors, 0.5);
  EXPECT_EQ(limits.memory_bytes, 4096);
}

TEST(Cgroup, InsideAContainerTheRootHoldsTheLimits) {
  const CgroupLimits limits =
      cgroup_limits("0::/not/visible/here\n", files({{"/sys/fs/cgroup/cpu.max", "100000 100000"}}));
  EXPECT_DOUBLE_EQ(limits.processors, 1);
  EXPECT_EQ(limits.memory_bytes, 0);
}

TEST(Cgroup, NoLimitsAreZeros) {
  for (const char* membership : {"", "0::/\n", "nonsense\n", "1:cpu:/\n", "1:memory:/\n"}) {
    const CgroupLimits limits = cgroup_limits(
        membership, files({{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"}}));
    EXPECT_EQ(limits.processors, 0) << membership;
    EXPECT_EQ(limits.memory_bytes, 0) << membership;
  }
}

TEST(Cpu, ThisMachineHasACoreAndMemory) {
  const Cpu cpu = detect_cpu();
  EXPECT_GE(cpu.cores, 1);
  EXPECT_GE(cpu.hardware_threads, cpu.cores);
  EXPECT_GE(usable_threads(cpu), 1);
  const MachineMemory memory = detect_memory();
  EXPECT_GT(memory.total_bytes, 0);
  EXPECT_GE(memory.total_bytes, memory.available_bytes);
}

}  // namespace
}  // namespace laconic
