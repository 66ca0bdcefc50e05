#include "laconic/machine/environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace laconic {
namespace {

const std::set<std::string> kAvx2 = {"sse4_2", "avx2", "fma"};
const std::set<std::string> kAvx512 = {"sse4_2",   "avx2",     "fma",     "avx512f",
                                       "avx512bw", "avx512dq", "avx512vl"};

Cpu cpu_with(std::string vendor, std::set<std::string> features, int family = 0) {
  return {
      .vendor = std::move(vendor), .family = family, .features = std::move(features), .cores = 4};
}

Cpu sapphire_rapids() {
  Cpu cpu = cpu_with("GenuineIntel", kAvx512);
  cpu.features.insert({"avx512_bf16", "amx_tile", "amx_bf16"});
  return cpu;
}

std::optional<EnvironmentSetting> find(const std::vector<EnvironmentSetting>& settings,
                                       const std::string& name) {
  const auto found = std::ranges::find(settings, name, &EnvironmentSetting::name);
  if (found == settings.end()) return std::nullopt;
  return *found;
}

TEST(Environment, KernelsFollowTheProcessor) {
  EXPECT_EQ(openblas_core(sapphire_rapids()), "SkylakeX");
  EXPECT_EQ(openblas_core(cpu_with("GenuineIntel", kAvx512)), "SkylakeX");
  EXPECT_EQ(openblas_core(cpu_with("GenuineIntel", kAvx2)), "Haswell");
  EXPECT_EQ(openblas_core(cpu_with("AuthenticAMD", kAvx512)), "Haswell");
  EXPECT_EQ(openblas_core(cpu_with("AuthenticAMD", kAvx512, 25)), "Haswell");   // Zen 4
  EXPECT_EQ(openblas_core(cpu_with("AuthenticAMD", kAvx512, 26)), "SkylakeX");  // Zen 5
  EXPECT_EQ(openblas_core(cpu_with("AuthenticAMD", kAvx2)), "Haswell");
  EXPECT_EQ(openblas_core(cpu_with("AuthenticAMD", kAvx2, 26)), "Haswell");
  EXPECT_EQ(openblas_core(cpu_with("GenuineIntel", {"sse4_2"})), "");
  EXPECT_EQ(openblas_core(cpu_with("", {"asimd"})), "");
}

TEST(Environment, NothingIsSaidAboutKernelsWhereOpenBlasChoosesItself) {
  const auto settings = worker_environment(cpu_with("", {"asimd"}), 4, {});
  EXPECT_FALSE(find(settings, "OPENBLAS_CORETYPE"));
  EXPECT_EQ(find(settings, "OMP_NUM_THREADS")->value, "4");
}

TEST(Environment, OneDnnIsCappedOnlyOnAmxAndOnlyWhenOld) {
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    EXPECT_EQ(find(worker_environment(sapphire_rapids(), 1, {}), name)->value, "AVX512_CORE_BF16");
    EXPECT_FALSE(find(worker_environment(sapphire_rapids(), 1, {}, "2.11.0"), name));
    EXPECT_FALSE(find(worker_environment(cpu_with("GenuineIntel", kAvx512), 1, {}), name));
  }
}

TEST(Environment, WhatTheUserSetIsRespectedAndSaid) {
  const auto settings = worker_environment(
      sapphire_rapids(), 4, {{"OPENBLAS_CORETYPE", "Zen"}, {"OMP_NUM_THREADS", "2"}});
  const auto core = find(settings, "OPENBLAS_CORETYPE");
  EXPECT_EQ(core->value, "Zen");
  EXPECT_NE(core->why.find("SkylakeX"), std::string::npos) << core->why;
  EXPECT_NE(core->why.find("user"), std::string::npos) << core->why;
}

TEST(Environment, OtherPoolsFollowTheUsersThreads) {
  const auto settings = worker_environment(sapphire_rapids(), 4, {{"OMP_NUM_THREADS", "2"}});
  EXPECT_EQ(find(settings, "OPENBLAS_NUM_THREADS")->value, "2");
  EXPECT_EQ(find(settings, "MKL_NUM_THREADS")->value, "2");
  EXPECT_EQ(find(settings, "MKL_NUM_THREADS")->why.find("set already"), std::string::npos);
}

TEST(Environment, AppliedTwiceNothingChanges) {
  Environment environment;
  const auto first = worker_environment(sapphire_rapids(), 3, environment);
  for (const auto& s : first) environment[s.name] = s.value;
  const auto second = worker_environment(sapphire_rapids(), 3, environment);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].value, second[i].value);
    EXPECT_FALSE(first[i].why.empty());
    EXPECT_EQ(second[i].why, first[i].why + " (was set already)");
  }
}

TEST(Environment, CurrentIsWhatTheProcessHas) {
  setenv("LACONIC_DOCTOR_TEST", "a=b", 1);
  EXPECT_EQ(current_environment().at("LACONIC_DOCTOR_TEST"), "a=b");
}

}  // namespace
}  // namespace laconic
