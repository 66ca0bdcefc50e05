#include "laconic/steer/bypass.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

// Three digits, and no powers of ten: "0.52 ms", "189 ms", "26.9 s", "4 m 05 s".
std::string time_text(double seconds) {
  return seconds < 0.9995 ? fmt::format("{:.3g} ms", seconds * 1e3) : human_seconds(seconds);
}

std::string text_of(const LinkRate& rate) {
  const double bits = 8 * rate.bytes_per_second;
  const std::string text = bits >= 1e9   ? fmt::format("{:.3g} Gbit/s", bits / 1e9)
                           : bits >= 1e6 ? fmt::format("{:.3g} Mbit/s", bits / 1e6)
                                         : fmt::format("{:.3g} kbit/s", bits / 1e3);
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
  return traffic == Traffic::pp_activation || traffic == Traffic::pp_gradient ||
         traffic == Traffic::tp_activation || traffic == Traffic::tp_gradient;
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
  double hidden = 0;  // seconds of work and sending that computation hides
  if (is_in_computing_thread(question.traffic)) {
    hidden = std::max(0.0, wire - waited);
    answer.encoded_seconds = c.codec_seconds + std::min(wire, waited);
    answer.raw_seconds = c.raw_seconds + std::max(0.0, raw - hidden);
  } else {
    const double s = question.background_cost;
    const double encoded = c.codec_seconds + wire;
    hidden = std::max(0.0, encoded - waited);
    answer.encoded_seconds = std::min(encoded, waited) + s * c.codec_seconds;
    answer.raw_seconds = std::max(0.0, c.raw_seconds + raw - hidden) + s * c.raw_seconds;
  }
  answer.is_bypassed = answer.raw_seconds < kBypassBelow * answer.encoded_seconds;
  const std::string stolen =
      is_in_computing_thread(question.traffic) || question.background_cost <= 0
          ? ""
          : fmt::format(
                "; no core is free for the work, which costs computation {} encoded, {} raw",
                time_text(question.background_cost * c.codec_seconds),
                time_text(question.background_cost * c.raw_seconds));
  answer.line = fmt::format(
      "bypass: {} {}: a step loses {} to it encoded, {} raw (encoded: {} of work and {} of "
      "sending, raw: {} and {}, at {}; computation hides {} of either{})",
      name, answer.is_bypassed ? "travels raw" : "stays encoded", time_text(answer.encoded_seconds),
      time_text(answer.raw_seconds), time_text(c.codec_seconds), time_text(wire),
      time_text(c.raw_seconds), time_text(raw), text_of(rate), time_text(hidden), stolen);
  return answer;
}

}  // namespace laconic
