#include "laconic/rendezvous/watchdog.hpp"

#include <algorithm>
#include <utility>

namespace laconic {

Watchdog::Watchdog() : thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Watchdog::Place Watchdog::add(std::function<void()> ring) {
  const std::lock_guard lock(mutex_);
  return bells_.insert(bells_.end(), Bell{std::move(ring), std::nullopt});
}

void Watchdog::remove(Place bell) {
  const std::lock_guard lock(mutex_);
  bells_.erase(bell);
}

void Watchdog::set(Place bell, Deadline due) {
  bool is_earlier = false;
  {
    const std::lock_guard lock(mutex_);
    bell->due = due;
    is_earlier = due < wakes_at_;
    if (is_earlier) wakes_at_ = due;
  }
  if (is_earlier) changed_.notify_one();
}

void Watchdog::clear(Place bell) {
  const std::lock_guard lock(mutex_);
  bell->due.reset();
}

Deadline Watchdog::ring_due() {
  const Deadline now = std::chrono::steady_clock::now();
  Deadline next = Deadline::max();
  for (Bell& bell : bells_) {
    if (!bell.due) continue;
    if (*bell.due > now) {
      next = std::min(next, *bell.due);
      continue;
    }
    bell.due.reset();
    bell.ring();
  }
  return next;
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    wakes_at_ = ring_due();
    if (wakes_at_ == Deadline::max())
      changed_.wait(lock);  // waiting until "max" would overflow in the library
    else
      changed_.wait_until(lock, wakes_at_);
  }
}

}  // namespace laconic
