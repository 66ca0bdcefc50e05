#include "laconic/study/report_target.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace laconic {

namespace {

std::string at_least(double value) {
  return fmt::format("at least {:g}x", value);
}

// Two rounds alone overlap easily: medians farther apart than that are a difference all the same.
constexpr double kLeastWithinSpread = 0.97;

// What the rounds say of a difference between medians.
std::string certainty(const Spread& a, const Spread& b) {
  if (std::min(a.rounds, b.rounds) < 2) return ", and one round has no spread";
  return overlap(a, b) ? ", within the spread" : "";
}

}  // namespace

std::string source_of(const std::string& page, const std::string& rate) {
  return rate.empty() ? fmt::format("[{0}]({0}.md)", page)
                      : fmt::format("[{0}]({0}.md), {1}", page, rate);
}

std::string reason_of(const Case& one) {
  const double step = seconds_of(one).median;
  const double waiting = exposed_share(one).median * step;
  return fmt::format(
      "a step of {} takes {:.0f} ms at {}: rank 0 waits {:.0f} ms of it for others and the "
      "network, a rank spends {:.0f} ms on encoding and decoding",
      one.method, 1e3 * step, one.rate, 1e3 * waiting, 1e3 * codec_seconds_per_step(one).median);
}

Target speed_target(std::string name, double wanted, const std::vector<Case>& cases,
                    const std::string& own, const std::string& base, const std::string& rate,
                    const std::string& page) {
  Target target{std::move(name),        at_least(wanted), "–", source_of(page, rate), "",
                Judgement::not_measured};
  const auto ratio_at = [&](const std::string& at) {
    const Case* mine = find_case(cases, own, at);
    const Case* other = find_case(cases, base, at);
    return mine && other ? ratio_of(seconds_of(*other), seconds_of(*mine)) : Spread{};
  };
  const Spread ratio = ratio_at(rate);
  if (!is_known(ratio)) {
    target.why = "one of the two was not measured";
    return target;
  }
  target.number = text(ratio, 2, "x");
  for (const std::string& at : rates_of(cases)) {
    const Spread there = at == rate ? Spread{} : ratio_at(at);
    if (is_known(there)) target.number += fmt::format("; {}: {:.2f}x", at, there.median);
  }
  target.judgement = ratio.median >= wanted ? Judgement::met : Judgement::missed;
  if (target.judgement == Judgement::missed) {
    target.why = reason_of(*find_case(cases, own, rate));
  }
  return target;
}

Target never_slower(std::string name, const std::vector<Case>& cases, const CaseAt& own_at,
                    const CaseAt& base_at, const std::string& page, bool may_overlap) {
  Target target{std::move(name),
                may_overlap
                    ? fmt::format("at least 1x, or {:g}x within the spread", kLeastWithinSpread)
                    : "at least 1x",
                "–",
                source_of(page, "every rate"),
                "",
                Judgement::not_measured};
  std::vector<std::string> numbers, slower, forgiven, reasons;
  for (const std::string& rate : rates_of(cases)) {
    const Case* mine = own_at(rate);
    const Case* other = base_at(rate);
    const Spread ratio = mine && other ? ratio_of(seconds_of(*other), seconds_of(*mine)) : Spread{};
    if (!is_known(ratio)) continue;
    numbers.push_back(fmt::format("{}: {} against {}", rate, text(ratio, 2, "x"), other->method));
    const Spread ours = seconds_of(*mine), theirs = seconds_of(*other);
    if (ratio.median >= 1) continue;
    const std::string amount = fmt::format("{} by {:.1f} %", rate, 100 * (1 / ratio.median - 1));
    if (may_overlap && overlap(ours, theirs) && ratio.median >= kLeastWithinSpread) {
      forgiven.push_back(amount);
    } else {
      slower.push_back(amount + certainty(ours, theirs));
    }
  }
  if (numbers.empty()) {
    target.why = "they were not both measured at any rate";
    return target;
  }
  target.number = fmt::format("{}", fmt::join(numbers, "; "));
  target.judgement = slower.empty() ? Judgement::met : Judgement::missed;
  if (!slower.empty())
    reasons.push_back(fmt::format("steps are longer at {}", fmt::join(slower, "; ")));
  if (!forgiven.empty())
    reasons.push_back(fmt::format("slower within the spread at {}", fmt::join(forgiven, "; ")));
  target.why = fmt::format("{}", fmt::join(reasons, "; "));
  return target;
}

Target own_speed_target(std::string name, const std::vector<Case>& cases, const std::string& method,
                        const std::string& page) {
  const Case* slow = find_case(cases, method, "100mbit");
  const Case* fast = find_case(cases, method, "unshaped");
  Target target{std::move(name),        "at least 80 %", "–", source_of(page, "100mbit"), "",
                Judgement::not_measured};
  const Spread share = slow && fast ? ratio_of(seconds_of(*fast), seconds_of(*slow)) : Spread{};
  if (!is_known(share)) {
    target.why = "one of the two rates was not measured";
    return target;
  }
  target.number = text(scaled(share, 100), 0, " %");
  target.judgement = share.median >= 0.8 ? Judgement::met : Judgement::missed;
  if (target.judgement == Judgement::missed) {
    target.why = fmt::format(
        "rank 0 waits {:.0f} % of a step for others and the network at 100mbit, "
        "{:.0f} % unshaped",
        100 * exposed_share(*slow).median, 100 * exposed_share(*fast).median);
  }
  return target;
}

}  // namespace laconic
