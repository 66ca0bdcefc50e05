#include "laconic/schedule/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace laconic {

namespace {

constexpr double kAsFast = 0.01;            // a difference that no estimate can tell
constexpr std::int64_t kSmallestShare = 8;  // of the largest microbatch

}  // namespace

std::vector<ScheduleKind> kinds_for_chunks(int chunks) {
  if (chunks > 1) return {ScheduleKind::interleaved};
  return {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble};
}

std::vector<std::int64_t> microbatch_sizes(std::int64_t samples, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = std::min(samples, most); size > 0; --size) {
    if (!sizes.empty() && size * kSmallestShare < sizes.front()) break;
    if (samples % size == 0) sizes.push_back(size);
  }
  return sizes;
}

double shared_seconds(double makespan, const MachineWork& work, int at_once) {
  return at_once > 0 ? makespan + std::max(0.0, work.all / at_once - work.longest) : makespan;
}

std::optional<std::size_t> choose(const std::vector<ScheduleCandidate>& candidates) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const ScheduleCandidate& c : candidates)
    if (c.fits) fastest = std::min(fastest, c.seconds);
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ScheduleCandidate& c = candidates[i];
    if (!c.fits || c.seconds > fastest * (1 + kAsFast)) continue;
    if (!best || c.held < candidates[*best].held) best = i;
  }
  return best;
}

std::string to_text(const ScheduleCandidate& candidate) {
  return fmt::format("{} in {} microbatches", name_of(candidate.kind), candidate.microbatches);
}

}  // namespace laconic
