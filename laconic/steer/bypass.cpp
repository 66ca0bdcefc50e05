#include "laconic/steer/bypass.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace laconic {

namespace {

std::string milliseconds(double seconds) {
  return fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string text_of(const LinkRate& rate) {
  const double bits = 8 * rate.bytes_per_second;
  const std::string text = bits >= 1e9 ? fmt::format("{:.3g} Gbit/s", bits / 1e9)
                                       : fmt::format("{:.3g} Mbit/s", bits / 1e6);
  return text + (rate.is_at_least ? " or more" : "");
}

// What is sent, packed and waited for may be on different ranks: the slowest of each counts.
ClassCosts slowest(const std::vector<ClassCosts>& ranks) {
  ClassCosts most;
  for (const ClassCosts& c : ranks)
    for (const auto field : {&ClassCosts::messages, &ClassCosts::raw_bytes, &ClassCosts::wire_bytes,
                             &ClassCosts::codec_seconds, &ClassCosts::raw_seconds,
                             &ClassCosts::exposed_seconds, &ClassCosts::active_seconds})
      most.*field = std::max(most.*field, c.*field);
  return most;
}

}  // namespace

bool is_in_computing_thread(Traffic traffic) {
  return traffic == Traffic::pp_activation || traffic == Traffic::pp_gradient;
}

LinkRate rate_for(double measured, const ClassCosts& costs) {
  if (measured > 0) return {.bytes_per_second = measured};
  if (costs.active_seconds <= 0) return {};
  return {.bytes_per_second = costs.wire_bytes / costs.active_seconds, .is_at_least = true};
}

BypassAnswer answer(const BypassQuestion& question) {
  BypassAnswer answer;
  const std::string name(name_of(question.traffic));
  const auto undecided = [&](const char* why) {
    answer.line = fmt::format("bypass: {} stays encoded: {}", name, why);
    return answer;
  };
  if (question.ranks.empty()) return undecided("nothing of it was measured");
  const ClassCosts c = slowest(question.ranks);
  if (c.messages <= 0) return undecided("nothing of it was sent in the steps that were measured");
  const LinkRate rate = rate_for(question.bytes_per_second, c);
  if (rate.bytes_per_second <= 0) return undecided("nobody knows how fast the links are");
  const double wire = c.wire_bytes / rate.bytes_per_second;
  const double raw = c.raw_bytes / rate.bytes_per_second;
  const double waited = c.exposed_seconds;
  if (is_in_computing_thread(question.traffic)) {
    const double hidden = std::max(0.0, wire - waited);
    answer.encoded_seconds = c.codec_seconds + std::min(wire, waited);
    answer.raw_seconds = c.raw_seconds + std::max(0.0, raw - hidden);
  } else {
    const double s = question.background_cost;
    const double encoded = c.codec_seconds + wire;
    const double hidden = std::max(0.0, encoded - waited);
    answer.encoded_seconds = std::min(encoded, waited) + s * c.codec_seconds;
    answer.raw_seconds = std::max(0.0, c.raw_seconds + raw - hidden) + s * c.raw_seconds;
  }
  answer.is_bypassed = answer.raw_seconds < kBypassBelow * answer.encoded_seconds;
  answer.line = fmt::format(
      "bypass: {} {}: encoding costs {} a step and saves {} at {}; a step waits {} for it, and {} "
      "if it travels raw",
      name, answer.is_bypassed ? "travels raw" : "stays encoded",
      milliseconds(c.codec_seconds - c.raw_seconds), milliseconds(raw - wire), text_of(rate),
      milliseconds(answer.encoded_seconds), milliseconds(answer.raw_seconds));
  return answer;
}

}  // namespace laconic
