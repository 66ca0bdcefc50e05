// engine/active_clock.hpp — how long at least one operation of a class has been under way, in all
// and along the axes of a tensor grid.
//
// Not thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "laconic/engine/meter.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

class ActiveClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin(Time at) {
    if (count_++ == 0) since_ = at;
  }
  // What is to be added to the meter: the whole stretch when this was the last operation.
  double end(Time at) {
    if (--count_ > 0) return 0;
    const double stretch = seconds_until(at);
    total_ += stretch;
    return stretch;
  }
  double total(Time at) const { return total_ + (count_ > 0 ? seconds_until(at) : 0); }

 private:
  double seconds_until(Time at) const { return std::chrono::duration<double>(at - since_).count(); }

  int count_ = 0;
  Time since_;
  double total_ = 0;
};

class ActiveClocks {
 public:
  using Time = ActiveClock::Time;
  using ClassTimes = std::array<double, kTrafficClasses>;

  void begin(Traffic traffic, std::uint32_t unit, Time at) {
    by_class_.at(static_cast<std::size_t>(traffic)).begin(at);
    if (has_axes(traffic)) by_axes_[{traffic, unit}].begin(at);
  }
  void end(Traffic traffic, std::uint32_t unit, Time at, Meter& meter) {
    const double stretch = by_class_.at(static_cast<std::size_t>(traffic)).end(at);
    if (stretch > 0) meter.spent(traffic, {.active = stretch});
    if (!has_axes(traffic)) return;
    const double along = by_axes_[{traffic, unit}].end(at);
    if (along > 0) meter.spent_along(traffic, unit, {.active = along});
  }
  ClassTimes until(Time at) const {
    ClassTimes times{};
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = by_class_[i].total(at);
    return times;
  }

 private:
  std::array<ActiveClock, kTrafficClasses> by_class_;
  std::map<std::pair<Traffic, std::uint32_t>, ActiveClock> by_axes_;
};

}  // namespace laconic
