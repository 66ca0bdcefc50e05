// base/clock.hpp — elapsed time, and the wall clock as text.
#pragma once

#include <chrono>
#include <string>

namespace laconic {

// Monotonic; starts when made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double unix_seconds();  // since 1970
std::string utc_now();  // "2026-01-31T12:00:00Z"

}  // namespace laconic
