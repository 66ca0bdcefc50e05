#include "laconic/schedule/schedule_fault.hpp"

#include <fmt/format.h>

#include "laconic/schedule/check.hpp"

namespace laconic {

namespace {

// A rank's line, and for each of its actions the line below that marks it.
struct Drawn {
  std::string line;
  std::vector<std::string> marks;
};

Drawn drawn(const std::vector<Action>& list, const std::string& head, bool with_stage) {
  Drawn result{head, {}};
  for (const Action& action : list) {
    const std::string text = to_text(action, with_stage);
    result.marks.push_back(std::string(result.line.size() + 1, ' ') +
                           std::string(text.size(), '^'));
    result.line += " " + text;
  }
  return result;
}

}  // namespace

Problems check(const Schedule& schedule) {
  const bool with_stage = names_stages(schedule);
  Problems problems;
  for (const Fault& fault : faults_of(schedule)) {
    std::string where =
        fault.rank == kWholeSchedule ? "schedule" : fmt::format("rank {}", fault.rank);
    if (fault.at != kNowhere) {
      const Action& action = schedule.by_rank[static_cast<std::size_t>(fault.rank)][fault.at];
      where += fmt::format(", action {} ({})", fault.at, to_text(action, with_stage));
    }
    problems.push_back({where, fault.what});
  }
  return problems;
}

std::string picture_of_fault(const Schedule& schedule) {
  const std::vector<Fault> faults = faults_of(schedule);
  std::string picture = placement_line(schedule);
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
    const std::string head = fmt::format("rank {}: ", rank);
    const auto [line, marks] = drawn(schedule.by_rank[rank], head, names_stages(schedule));
    picture += line + "\n";
    for (const Fault& fault : faults)
      if (fault.rank == static_cast<int>(rank))
        picture += (fault.at == kNowhere ? std::string(head.size(), ' ') : marks[fault.at]) + " " +
                   fault.what + "\n";
  }
  for (const Fault& fault : faults)
    if (fault.rank == kWholeSchedule) picture += fault.what + "\n";
  return picture;
}

}  // namespace laconic
