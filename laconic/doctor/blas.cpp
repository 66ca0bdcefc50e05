// Which BLAS libtorch's products end up in.
#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "laconic/doctor/measure.hpp"

namespace laconic {
namespace {

template <class Function>
Function* function_named(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// The file that defines `symbol` for everybody in this process; empty if nobody does. (A libtorch
// with MKL inside does not export it.)
std::string file_of(const char* symbol) {
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

BlasThreading threading_of(int openblas_code) {
  switch (openblas_code) {  // OPENBLAS_SEQUENTIAL, _THREAD, _OPENMP of cblas.h
    case 0: return BlasThreading::sequential;
    case 1: return BlasThreading::pthreads;
    case 2: return BlasThreading::openmp;
    default: return BlasThreading::unknown;
  }
}

std::string name_of(const BlasFacts& blas, bool has_openblas) {
  const auto path_has = [&](std::string_view part) {
    return blas.path.find(part) != std::string::npos;
  };
  if (has_openblas) return "OpenBLAS";
  if (at::hasMKL()) return "MKL";
  if (path_has("mkl")) return "MKL";
  if (path_has("blis")) return "BLIS";
  if (path_has("atlas")) return "ATLAS";
  if (path_has("libblas.so")) return "reference BLAS";
  return "";
}

}  // namespace

BlasFacts examine_blas() {
  BlasFacts blas;
  const auto core = function_named<char*()>("openblas_get_corename");
  // Debian's libblas.so.3 is a door to libopenblas.so.0, which may come from another folder; where
  // the kernels are is what counts.
  blas.path = file_of(core != nullptr ? "openblas_get_corename" : "sgemm_");
  const auto config = function_named<char*()>("openblas_get_config");
  const auto threads = function_named<int()>("openblas_get_num_threads");
  const auto parallel = function_named<int()>("openblas_get_parallel");
  if (core != nullptr) blas.core = core();
  if (config != nullptr) blas.version = config();
  if (threads != nullptr) blas.threads = threads();
  if (parallel != nullptr) blas.threading = threading_of(parallel());
  blas.name = name_of(blas, core != nullptr);
  return blas;
}

}  // namespace laconic
