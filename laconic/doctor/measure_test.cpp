#include "laconic/doctor/measure.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "laconic/base/denormals.hpp"
#include "laconic/doctor/compute_thread.hpp"
#include "laconic/tensor/test_gpu.hpp"

namespace laconic {
namespace {

void expect_sensible(double value, const char* what) {
  EXPECT_TRUE(std::isfinite(value)) << what;
  EXPECT_GT(value, 0) << what;
}

TEST(Doctor, EveryMeasureIsPositiveAndFinite) {
  at::set_num_threads(2);  // it measures with one, too, and must bring them back
  const int threads = at::get_num_threads();
  const DoctorFacts facts = measure_doctor_facts({.repeats = 2, .width = 128});
  EXPECT_EQ(at::get_num_threads(), threads);
  EXPECT_EQ(facts.threads, threads);
  EXPECT_EQ(facts.gemm.size(), threads > 1 ? 6u : 3u);
  for (const GemmSpeed& g : facts.gemm) {
    expect_sensible(g.gflops, "product");
    const double multiply_adds = static_cast<double>(g.m * g.n * g.k);
    EXPECT_NEAR(g.gflops * 1e9 * g.seconds / multiply_adds, 2, 1e-9);
  }
  expect_sensible(facts.peak.f32_gflops, "peak");
  expect_sensible(facts.core_share, "share");
  expect_sensible(facts.bandwidth_one.copy, "copy");
  expect_sensible(facts.bandwidth_all.triad, "triad");
  expect_sensible(facts.reallocation_gb_per_second, "allocation");
  expect_sensible(facts.denormal_slowdown, "denormals");
  EXPECT_FALSE(facts.torch_version.empty());
  EXPECT_EQ(facts.gpu_facts.size(), static_cast<std::size_t>(count_gpus()));
  const auto findings = diagnose(facts);
  EXPECT_FALSE(findings.empty());
  EXPECT_FALSE(to_text(facts, findings).empty());
  EXPECT_FALSE(to_json(facts, findings).empty());
}

// Nothing crashes where there is none, and a reason is given. No case of a program that is labelled
// `gpu` could say so: there all of it counts as skipped.
TEST(GpuOrNot, IsCountedAndExplained) {
  const CudaFacts cuda = examine_cuda();
  if (count_gpus() == 0) {
    EXPECT_EQ(no_gpu_here(), "no GPU here: " + no_gpu_reason(cuda, 0));
    EXPECT_TRUE(cuda.torch_has_cuda ||
                no_gpu_here().find("libtorch was built without CUDA") != std::string::npos)
        << no_gpu_here();
  } else {
    EXPECT_TRUE(cuda.torch_has_cuda);
    EXPECT_EQ(no_gpu_here(), "");
  }
}

// cmake/torch.cmake asks for this by an old-style RPATH; Debian's default would be another one.
TEST(Doctor, DebiansOpenBlasIsTheOpenMpBuild) {
  const BlasFacts blas = examine_blas();
  if (blas.name != "OpenBLAS" || !std::filesystem::exists(LACONIC_OPENBLAS_FOLDER))
    GTEST_SKIP() << "not Debian's: " << blas.name << " " << blas.path;
  EXPECT_EQ(blas.threading, BlasThreading::openmp) << blas.path;
  EXPECT_EQ(blas.path.rfind(LACONIC_OPENBLAS_FOLDER, 0), 0u) << blas.path;
  EXPECT_FALSE(blas.core.empty());
}

// A thread of its own, so that its OpenMP pool is fresh.
template <class Body>
void on_new_thread(const Body& body) {
  std::thread(body).join();
}

TEST(Doctor, APoolInheritsFlushingFromTheThreadThatStartsIt) {
  on_new_thread([] {
    flush_denormals();
    if (!is_flushing_denormals()) return;  // not known on this processor
    at::set_num_threads(2);
    EXPECT_TRUE(compute_threads_are_prepared());
  });
}

TEST(Doctor, SeesThreadsOfAPoolThatFlushNothing) {
  on_new_thread([] {
    at::set_num_threads(2);
    EXPECT_FALSE(compute_threads_are_prepared());
    flush_denormals();
    if (!is_flushing_denormals()) return;
    EXPECT_FALSE(compute_threads_are_prepared());  // the caller is, its pool is not
  });
}

}  // namespace
}  // namespace laconic
