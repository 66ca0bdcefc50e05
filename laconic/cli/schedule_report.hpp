// cli/schedule_report.hpp — what `laconic schedule` says about one timed schedule, as a value, and
// that value as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "laconic/schedule/choice.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/selection.hpp"

namespace laconic {

struct TimedSchedule {
  std::string name;  // the kind or the file
  Schedule lowered;
  Costs costs;  // with what `when` has selected
  When when = When::never;
  Timing timing;
  double without_encoding = 0;  // the makespan if every gradient travelled raw
  double without_messages = 0;  // and if messages took no time at all
  int gradient_messages = 0;
  int encoded_messages = 0;
};

// Selects and estimates. Requires: check(lowered) and check(costs, lowered) are empty.
TimedSchedule time_schedule(std::string name, Schedule lowered, Costs costs, When when);

double idle_share(const TimedSchedule& timed);  // over all ranks
double exposed_seconds(const TimedSchedule& timed);
// In microbatches of a rank's whole share of the model, so that kinds with chunks compare.
double most_live(const TimedSchedule& timed);

std::string describe(const TimedSchedule& timed);
// Requires: sorted, the fastest first.
std::string describe(const std::vector<TimedSchedule>& compared);
// Of which one is taken, in the order in which they were tried.
std::string describe(const std::vector<ScheduleCandidate>& candidates,
                     std::optional<std::size_t> taken);
nlohmann::ordered_json to_json(const TimedSchedule& timed);

}  // namespace laconic
