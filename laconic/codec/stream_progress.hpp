// codec/stream_progress.hpp — how far a stream of a GPU is known to have come.
//
// Points of a stream are counted in the order in which it reaches them. Many ask for theirs, and
// often; to ask CUDA each time would hold up the threads that give the GPU its work. When one point
// is reached so are those before it, and while one is not, those behind it are not looked at for
// some microseconds. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace laconic {

class StreamProgress {
 public:
  static constexpr double kPatience = 5e-6;  // seconds

  // Calls record(), which puts the next point into the stream, and returns its number, from 1 on.
  template <class Record>
  std::uint64_t count(const Record& record) {
    const std::lock_guard lock(mutex_);
    record();
    return ++last_;
  }

  bool is_reached(std::uint64_t number) const { return number <= reached_; }

  // Whether it was just seen that this point, or one before it, is not reached.
  bool is_known_to_wait(std::uint64_t number, double now) {
    const std::lock_guard lock(mutex_);
    return number >= waiting_ && now < seen_ + kPatience;
  }

  // What somebody saw.
  void learn(std::uint64_t number, bool is_reached, double now) {
    const std::lock_guard lock(mutex_);
    if (!is_reached) {
      waiting_ = number;
      seen_ = now;
    } else if (number > reached_) {
      reached_ = number;
    }
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::atomic<std::uint64_t> reached_ = 0;
  std::uint64_t waiting_ = 0;
  double seen_ = -1;
};

}  // namespace laconic
