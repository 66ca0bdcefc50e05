#include "laconic/machine/diagnosis.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace laconic {
namespace {

// A machine without complaints.
DoctorFacts healthy() {
  DoctorFacts f;
  f.cpu = {.vendor = "GenuineIntel",
           .model = "Xeon",
           .features = {"sse4_2", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
           .hardware_threads = 8,
           .cores = 4};
  f.memory = {.total_bytes = std::int64_t{32} << 30, .available_bytes = std::int64_t{30} << 30};
  f.torch_version = "1.13.0";
  f.threads = 4;
  f.advised = worker_environment(f.cpu, 4, {});
  f.core_share = 0.99;
  f.blas = {.name = "OpenBLAS",
            .path = "/usr/lib/openblas-openmp/libblas.so.3",
            .core = "SkylakeX",
            .threads = 4,
            .threading = BlasThreading::openmp};
  f.peak = {.f32_gflops = 200, .f64_gflops = 100, .clock_ghz = 3};
  f.gemm = {{"f32", 1024, 1024, 1024, 1, 170}, {"f32", 1024, 1024, 1024, 4, 640}};
  f.bandwidth_one = {.copy = 12, .triad = 11};
  f.bandwidth_all = {.copy = 40, .triad = 38};
  f.reallocation_gb_per_second = 15;
  f.denormal_slowdown = 10;
  return f;
}

// The worst finding that contains `what`; severity ok when there is none.
Finding finding_on(const DoctorFacts& facts, std::string_view what) {
  Finding worst;
  for (const Finding& finding : diagnose(facts))
    if (finding.what.find(what) != std::string::npos && finding.severity >= worst.severity)
      worst = finding;
  return worst;
}

void expect(const DoctorFacts& facts, Severity severity, std::string_view what,
            std::string_view fix) {
  const Finding finding = finding_on(facts, what);
  SCOPED_TRACE(to_text(facts, diagnose(facts)));
  EXPECT_EQ(to_text(finding.severity), to_text(severity)) << what;
  EXPECT_NE(finding.fix.find(fix), std::string::npos) << finding.fix;
}

TEST(Diagnosis, AHealthyMachineHasOnlyGoodFindings) {
  const auto findings = diagnose(healthy());
  EXPECT_EQ(findings.size(), 5u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::ok) << finding.what;
    EXPECT_TRUE(finding.fix.empty()) << finding.fix;
  }
}

TEST(Diagnosis, NothingMeasuredNothingSaid) {
  EXPECT_TRUE(diagnose(DoctorFacts{}).empty());
}

TEST(Diagnosis, AncientKernelsOnAModernProcessorAreBad) {
  DoctorFacts f = healthy();
  f.blas.core = "Prescott";
  expect(f, Severity::bad, "Prescott", "OPENBLAS_CORETYPE=SkylakeX");
  f.cpu.features = {"sse4_2"};
  EXPECT_EQ(finding_on(f, "Prescott").severity, Severity::ok);
  expect(f, Severity::warn, "no AVX2", "2013");
}

TEST(Diagnosis, SlowProductsAreJudgedAgainstThePeak) {
  DoctorFacts f = healthy();
  f.blas.core = "Zen";
  f.gemm[0].gflops = 28;
  expect(f, Severity::bad, "28 of 200 GFLOP/s on one core (14 %)", "OPENBLAS_CORETYPE=SkylakeX");
  f.gemm[0].gflops = 120;
  expect(f, Severity::warn, "(60 %)", "OPENBLAS_CORETYPE=SkylakeX");
  f.cpu.features = {"asimd"};
  expect(f, Severity::warn, "(60 %)", "another BLAS");
}

TEST(Diagnosis, ABusyMachineExcusesSlowProducts) {
  DoctorFacts f = healthy();
  f.blas.core = "Zen";
  f.gemm[0].gflops = 28;
  f.core_share = 0.3;
  expect(f, Severity::warn, "30 % of a core", "stop them");
  expect(f, Severity::warn, "(14 %)", "ask again");
  f.core_share = 1;
  f.blas.core = "SkylakeX";
  expect(f, Severity::warn, "(14 %)", "ask again");
}

TEST(Diagnosis, ThreadsShouldBeTheUsableCores) {
  DoctorFacts f = healthy();
  f.threads = 1;
  expect(f, Severity::warn, "1 of 4 usable cores", "OMP_NUM_THREADS=4");
  f.threads = 8;
  expect(f, Severity::bad, "8 of 4 usable cores", "OMP_NUM_THREADS=4");
}

TEST(Diagnosis, PoorScalingIsSeen) {
  DoctorFacts f = healthy();
  f.gemm[1].gflops = 200;
  expect(f, Severity::warn, "4 threads multiply 1.2 times", "OpenMP");
}

TEST(Diagnosis, TheWrongBlasIsNamed) {
  DoctorFacts f = healthy();
  f.blas = {.name = "reference BLAS", .path = "/usr/lib/blas/libblas.so.3"};
  expect(f, Severity::bad, "/usr/lib/blas/libblas.so.3", "libopenblas0-openmp");
  f = healthy();
  f.blas.threading = BlasThreading::pthreads;
  expect(f, Severity::warn, "pool of its own", "libopenblas0-openmp");
  f.blas.threading = BlasThreading::sequential;
  expect(f, Severity::warn, "one thread", "libopenblas0-openmp");
}

TEST(Diagnosis, AmxNeedsACap) {
  DoctorFacts f = healthy();
  f.cpu.features.insert("amx_tile");
  f.advised = worker_environment(f.cpu, 4, {});
  expect(f, Severity::bad, "AMX", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16");
  f.environment["DNNL_MAX_CPU_ISA"] = "AVX512_CORE";
  EXPECT_EQ(finding_on(f, "AMX").severity, Severity::ok);
}

TEST(Diagnosis, DenormalsMatterWhereTheyAreSlow) {
  DoctorFacts f = healthy();
  f.is_flushing_denormals = false;
  expect(f, Severity::bad, "10.0 times", "flush_denormals()");
  f.denormal_slowdown = 1.1;
  expect(f, Severity::warn, "1.1 times", "flush_denormals()");
}

TEST(Diagnosis, MemoryAndQuota) {
  DoctorFacts f = healthy();
  f.reallocation_gb_per_second = 1.8;
  expect(f, Severity::warn, "1.8 GB/s", "MALLOC_MMAP_THRESHOLD_");
  f.memory.available_bytes = 1'000'000'000;
  expect(f, Severity::warn, "only 1.0 GB", "memory limit");
  f.cpu.quota = 1.5;
  expect(f, Severity::warn, "1.5 of 4 cores", "CPU limit");
}

TEST(Diagnosis, AnIdleGpuIsNoticed) {
  DoctorFacts f = healthy();
  f.gpus = {"NVIDIA H200"};
  expect(f, Severity::warn, "cannot use NVIDIA H200", "LACONIC_TORCH");
  f.torch_has_cuda = true;
  EXPECT_EQ(finding_on(f, "can use NVIDIA H200").severity, Severity::ok);
}

TEST(Diagnosis, WhySomeLibtorchCannotUseAGpuIsSaid) {
  DoctorFacts f = healthy();
  f.gpus = {"NVIDIA H200"};
  f.cuda = {true, 12040, 13000, "550.54"};
  expect(f, Severity::warn, "the driver 550.54 is for CUDA 12.4", "as above");
}

TEST(Diagnosis, WhatSlowsAGpuDownIsAFinding) {
  DoctorFacts f = healthy();
  f.gpus = {"NVIDIA H200"};
  f.torch_has_cuda = true;
  f.gpu_facts = {{.index = 1,
                  .name = "NVIDIA H200",
                  .total_bytes = std::int64_t{140} << 30,
                  .free_bytes = std::int64_t{139} << 30,
                  .major = 9,
                  .copy_gb_per_second = 4310,
                  .pcie_generation = 5,
                  .most_pcie_generation = 5,
                  .pcie_width = 8,
                  .most_pcie_width = 16}};
  expect(f, Severity::warn, "cuda:1: its PCIe link is generation 5 x8", "slot");
  const auto findings = diagnose(f);
  EXPECT_NE(to_text(f, findings).find("copies on the GPU 4310 GB/s"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(f, findings));
  EXPECT_EQ(json["gpu"][0]["pcie"]["width"], 8);
  EXPECT_EQ(json["gpu"][0]["compute_capability"], "9.0");
}

TEST(Diagnosis, ReportsHoldTheNumbers) {
  DoctorFacts f = healthy();
  f.environment["OMP_NUM_THREADS"] = "4";
  f.blas.core = "Prescott";
  f.gpus = {"NVIDIA \"H200\""};
  const auto findings = diagnose(f);
  const std::string text = to_text(f, findings);
  for (const char* part : {"Xeon", "170 GFLOP/s f32 1024x1024x1024, 1 thread\n", "bad",
                           "fix: ", "OMP_NUM_THREADS=4", "H200", "Prescott kernels, openmp"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto json = nlohmann::json::parse(to_json(f, findings));
  EXPECT_EQ(json["gemm"][1]["gflops"], 640);
  EXPECT_EQ(json["cpu"]["usable_threads"], 4);
  EXPECT_EQ(json["findings"].size(), findings.size());
  EXPECT_EQ(json["gpus"][0], "NVIDIA \"H200\"");
  EXPECT_TRUE(json["environment"][0]["value"].is_null());
}

}  // namespace
}  // namespace laconic
