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

void Courier::hand_over(PackedTensor packed, Send send) {
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    jobs_.push_back({std::move(packed), std::move(send)});
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
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
    const Job& job = jobs_.front();  // stays where it is: others only append
    lock.unlock();
    std::exception_ptr failure;
    try {
      job.packed.message.wait();
      job.send(job.packed.message.finish());
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    jobs_.pop_front();
    if (failure != nullptr) failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace laconic
