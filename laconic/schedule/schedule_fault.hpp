// schedule/schedule_fault.hpp — inside this folder: what check() finds, before it is put into
// words, and what a picture of it begins with.
#pragma once

#include <compare>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

inline constexpr int kWholeSchedule = -1;
inline constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

struct Fault {
  int rank = kWholeSchedule;
  std::size_t at = kNowhere;  // in the rank's list as it was given; nowhere: something is missing
  std::string what;
  auto operator<=>(const Fault&) const = default;
};

// By rank, then by place.
std::vector<Fault> faults_of(const Schedule& schedule);

// The line of a schedule's text that says where its stages are; empty if a reader finds that out
// without it.
std::string placement_line(const Schedule& schedule);

}  // namespace laconic
