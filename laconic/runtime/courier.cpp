#include "laconic/runtime/courier.hpp"

#include <utility>

namespace laconic {

Courier::~Courier() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Courier::hand_over(Job job) {
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void Courier::check() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

void Courier::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty(); });
  rethrow();
}

void Courier::drain_quietly() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty(); });
  failure_ = nullptr;
}

void Courier::rethrow() {
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Courier::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    lock.unlock();
    run(std::move(job));
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

// A failure is told before the job goes, which may wait for a GPU that stands still.
void Courier::run(Job job) {
  try {
    job();
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    if (on_failure_) on_failure_();
  }
}

}  // namespace laconic
