// engine/progress_deadline.hpp — "nothing moved for the deadline", for everybody who waits.
//
//   ProgressDeadline deadline(engine.options().deadline, engine.moved());
//   for (;;) {
//     const std::uint64_t seen = engine.wait_for_arrival(0, {});
//     if (is_there()) break;
//     if (deadline.has_passed(engine.moved())) throw Timeout(...);
//     engine.wait_for_arrival(seen, deadline.until());
//   }
//
// The count is of whatever the one who waits takes for progress: segments that moved, bytes of one
// message, signs of life. As long as it changes from call to call, the deadline begins anew.
//
// Not thread-safe: each wait has its own.
#pragma once

#include <chrono>
#include <cstdint>

#include "laconic/transport/transport.hpp"

namespace laconic {

class ProgressDeadline {
 public:
  explicit ProgressDeadline(std::chrono::milliseconds limit, std::uint64_t count = 0)
      : limit_(limit), count_(count), until_(in(limit)) {}

  // Begins anew when `count` is not what it was. Returns when the time is up.
  Deadline until(std::uint64_t count) {
    if (count != count_) until_ = in(limit_);
    count_ = count;
    return until_;
  }
  Deadline until() const { return until_; }
  // A count that has changed is looked at first: who comes late and finds progress waits on.
  bool has_passed(std::uint64_t count) { return std::chrono::steady_clock::now() >= until(count); }

  std::chrono::milliseconds limit() const { return limit_; }

 private:
  std::chrono::milliseconds limit_;
  std::uint64_t count_;
  Deadline until_;
};

}  // namespace laconic
