// machine/diagnosis.hpp — what the doctor measured, and what he thinks of it.
//
// Facts are numbers and names; findings are a pure function of them, so every
// rule is tested with made-up facts. A fact that was not measured is zero or
// empty and leads to no finding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/gpu.hpp"
#include "laconic/machine/bandwidth.hpp"
#include "laconic/machine/cpu.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/machine/peak.hpp"

namespace laconic {

enum class BlasThreading { unknown, sequential, pthreads, openmp };

struct BlasFacts {
  std::string name;     // "OpenBLAS", "MKL", "reference BLAS", or empty
  std::string path;     // of the loaded library
  std::string core;     // kernels in use, "Haswell"; OpenBLAS only
  std::string version;  // "OpenBLAS 0.3.21 ..."
  int threads = 0;
  BlasThreading threading = BlasThreading::unknown;
};

struct GemmSpeed {    // [m, k] times [k, n], through libtorch
  std::string dtype;  // "f32" or "f64"
  std::int64_t m = 0, n = 0, k = 0;
  int threads = 1;
  double gflops = 0;
  double seconds = 0;  // of the fastest product
};

struct DoctorFacts {
  Cpu cpu;
  MachineMemory memory;
  std::vector<EnvironmentSetting> advised;  // worker_environment() of an empty environment
  Environment environment;                  // the same variables, as they are here
  std::string torch_version;
  int threads = 0;  // of libtorch's pool
  BlasFacts blas;
  CorePeak peak;
  std::vector<GemmSpeed> gemm;
  double core_share = 0;  // of a core that one busy thread got meanwhile; 1: the machine is idle
  Bandwidth bandwidth_one;
  Bandwidth bandwidth_all;
  double reallocation_gb_per_second = 0;
  bool is_flushing_denormals = true;  // on every compute thread
  double denormal_slowdown = 0;       // of a product fed with them, flushing off; 1: none
  std::vector<std::string> gpus;      // as the driver names them
  std::vector<GpuFacts> gpu_facts;    // of those that libtorch can use
  CudaFacts cuda;
  bool torch_has_cuda = false;  // and can use a GPU
};

enum class Severity { ok, warn, bad };

struct Finding {
  Severity severity = Severity::ok;
  std::string what;  // holds the numbers
  std::string fix;   // what to type; empty when ok
  bool operator==(const Finding&) const = default;
};

std::vector<Finding> diagnose(const DoctorFacts& facts);

// The best of the products with this dtype and number of threads; 0 if none.
double best_gflops(const DoctorFacts& facts, std::string_view dtype, int threads);

std::string to_text(const DoctorFacts& facts, const std::vector<Finding>& findings);
std::string to_json(const DoctorFacts& facts, const std::vector<Finding>& findings);

std::string_view to_text(Severity severity);        // "ok", "warn", "bad"
std::string_view to_text(BlasThreading threading);  // "openmp"

}  // namespace laconic
