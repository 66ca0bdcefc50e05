// data/scratch_pool.hpp — memory that a const object's calls work in, kept for the next call.
//
// Any number of threads may borrow at once; the mutex is held for the hand-over only.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace laconic {

template <class Scratch>
class ScratchPool {
 public:
  // `make` gives a new one when all are lent.
  template <class Make>
  std::unique_ptr<Scratch> borrow(Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return make();
  }

  void give_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

}  // namespace laconic
