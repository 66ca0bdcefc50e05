#include "laconic/doctor/compute_thread.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>

#include "laconic/machine/denormals.hpp"

namespace laconic {
namespace {

// at::parallel_for is a template whose OpenMP pragma our compiler ignores without -fopenmp, and it
// then runs serially; -fopenmp would link a second OpenMP beside the one a libtorch from PyPI
// brings. So we ask the loader for what the pragma compiles to, as libtorch itself resolved it.
using Parallel = void(void (*body)(void*), void* data, unsigned threads, unsigned flags);

// Calls act() once on the caller and once on each thread of its pool, at the same time.
template <class Act>
void on_every_thread(Act act) {
  const auto parallel = reinterpret_cast<Parallel*>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (parallel == nullptr) return act();  // libtorch without OpenMP has no such pool
  parallel([](void* data) { (*static_cast<Act*>(data))(); }, &act,
           static_cast<unsigned>(at::get_num_threads()), 0);
}

}  // namespace

void prepare_compute_threads() {
  on_every_thread([] { flush_denormals(); });
}

bool compute_threads_are_prepared() {
  std::atomic<bool> all = true;
  on_every_thread([&] {
    if (!is_flushing_denormals()) all = false;
  });
  return all;
}

}  // namespace laconic
