#include "laconic/doctor/compute_thread.hpp"

#include <ATen/Parallel.h>

#include <atomic>

#include "laconic/base/denormals.hpp"

namespace laconic {
namespace {

// Calls act() once on the caller and once on each thread of its pool, at the same time.
template <class Act>
void on_every_thread(const Act& act) {
#pragma omp parallel num_threads(at::get_num_threads())
  act();
}

}  // namespace

bool compute_threads_are_prepared() {
  std::atomic<bool> all = true;
  on_every_thread([&] {
    if (!is_flushing_denormals()) all = false;
  });
  return all;
}

}  // namespace laconic
