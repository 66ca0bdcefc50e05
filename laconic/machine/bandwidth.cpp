#include "laconic/machine/bandwidth.hpp"

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/machine/kernel/stream.hpp"

namespace laconic {
namespace {

constexpr int kRepeats = 5;
constexpr std::align_val_t kAlignment{64};

// Large arrays all begin at the same place within a page, and a load that matches an earlier store
// in its last twelve address bits waits for it: arrays start this many floats apart instead.
constexpr std::size_t kStagger = 336;

struct FreeAligned {
  void operator()(float* p) const { ::operator delete[](p, kAlignment); }
};
using Array = std::unique_ptr<float[], FreeAligned>;

Array make_array(std::size_t count) {
  Array array(static_cast<float*>(::operator new[](count * sizeof(float), kAlignment)));
  std::fill_n(array.get(), count, 1.0f);  // the thread that will use it touches it first
  return array;
}

// Floats in one array of one thread: all threads' arrays together are twice the cache, at least
// 64 MB, and stay within most_bytes / 3.
std::size_t share(int threads, std::int64_t l3_bytes, std::int64_t most_bytes) {
  const std::int64_t whole =
      std::min(std::max(2 * l3_bytes, std::int64_t{64} << 20), most_bytes / 3);
  const auto count = static_cast<std::size_t>(whole / 4 / threads);
  return std::max<std::size_t>(64, count / 64 * 64);
}

}  // namespace

Bandwidth measure_bandwidth(int threads, std::int64_t l3_bytes, std::int64_t most_bytes) {
  const std::size_t count = share(threads, l3_bytes, most_bytes);
  double copy_seconds = 1e30, triad_seconds = 1e30;
  std::barrier sync(threads);
  // Times are taken by the first thread between two barriers: from the common start to the end of
  // the slowest.
  const auto body = [&](bool is_first) {
    const Array first = make_array(count + 2 * kStagger), second = make_array(count + 2 * kStagger),
                third = make_array(count + 2 * kStagger);
    float *a = first.get(), *b = second.get() + kStagger, *c = third.get() + 2 * kStagger;
    const auto timed = [&](double& best, const auto& work) {
      sync.arrive_and_wait();
      const Stopwatch watch;
      work();
      sync.arrive_and_wait();
      if (is_first) best = std::min(best, watch.seconds());
    };
    for (int i = 0; i < kRepeats; ++i) {
      timed(copy_seconds, [&] { stream_copy(a, b, count); });
      timed(triad_seconds, [&] { stream_triad(a, b, c, count); });
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, false);
  body(true);
  const double bytes = 4.0 * static_cast<double>(count) * threads;
  return {.copy = 2 * bytes / copy_seconds / 1e9, .triad = 3 * bytes / triad_seconds / 1e9};
}

double measure_reallocation(std::size_t bytes, int rounds) {
  const auto once = [bytes] {
    // As libtorch allocates. Through a volatile pointer, or the compiler would see that nobody
    // reads the block and remove it.
    void* block = nullptr;
    if (posix_memalign(&block, 64, bytes) != 0) throw std::bad_alloc();
    void* volatile visible = block;
    std::memset(visible, 1, bytes);
    std::free(visible);
  };
  once();  // the allocator may learn from the first
  const Stopwatch watch;
  for (int i = 0; i < rounds; ++i) once();
  return static_cast<double>(bytes) * rounds / watch.seconds() / 1e9;
}

}  // namespace laconic
