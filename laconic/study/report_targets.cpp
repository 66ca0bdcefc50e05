// What was wanted beforehand, and whether it came true.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

constexpr double kFifth = 0.2;
constexpr double kLossTolerancePercent = 0.5;
constexpr double kLeastHalf = 0.35, kMostHalf = 0.65;  // what "about half" means
constexpr double kEpochs = 6;                          // of a run whose first epoch counts too

std::string at_least(double value) {
  return fmt::format("at least {:g}x", value);
}

// Where a step's time goes, and what would be left to gain if network and codec took none of it.
std::string reason_of(const Case& one, const Case& base) {
  const double step = seconds_of(one).median;
  const double waiting = exposed_share(one).median * step;
  const double codec = codec_seconds_per_step(one).median;
  const double rest = step - waiting - codec;
  std::string reason = fmt::format(
      "a step of {} takes {:.0f} ms at {}: rank 0 waits {:.0f} ms of it for others and the "
      "network, a "
      "rank spends {:.0f} ms on encoding and decoding",
      one.method, 1e3 * step, one.rate, 1e3 * waiting, 1e3 * codec);
  if (rest > 0) {
    reason += fmt::format("; with neither it would be {:.2f}x (composed)",
                          seconds_of(base).median / rest);
  }
  return reason;
}

std::string source_of(const std::string& page, const std::string& rate) {
  return rate.empty() ? fmt::format("[{0}]({0}.md)", page)
                      : fmt::format("[{0}]({0}.md), {1}", page, rate);
}

// `own` against `base` in the same part, judged at `rate`; other rates are shown beside it.
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
    target.why = reason_of(*find_case(cases, own, rate), *find_case(cases, base, rate));
  }
  return target;
}

// The slowest at which all of these methods were measured; empty when there is none.
std::string slowest_common(const std::vector<Case>& cases,
                           const std::vector<std::string>& methods) {
  const std::vector<std::string> rates = rates_of(cases);
  for (auto rate = rates.rbegin(); rate != rates.rend(); ++rate) {
    if (std::all_of(methods.begin(), methods.end(), [&](const std::string& method) {
          const Case* one = find_case(cases, method, *rate);
          return one && is_known(seconds_of(*one));
        })) {
      return *rate;
    }
  }
  return "";
}

// fp32's speed at a rate, of its unshaped one.
double share_of_unshaped(const std::vector<Case>& cases, const std::string& method,
                         const std::string& rate) {
  const Case* fast = find_case(cases, method, "unshaped");
  const Case* slow = find_case(cases, method, rate);
  if (!fast || !slow) return 0;
  return ratio_of(seconds_of(*fast), seconds_of(*slow)).median;
}

// Takes the judgement back where links are not as slow as the target says: `base` must have at most
// a fifth of its unshaped speed.
void require_slow_links(const std::vector<Case>& cases, const std::string& base,
                        const std::string& rate, Target& target) {
  if (rate.empty()) return;
  const double share = share_of_unshaped(cases, base, rate);
  if (share > 0 && share <= kFifth) return;
  target.judgement = Judgement::not_measured;
  target.why = share == 0 ? fmt::format("{} was not measured unshaped", base)
                          : fmt::format(
                                "the sweep has no such rate: at {}, its slowest, {} has {:.0f} % "
                                "of its unshaped speed",
                                rate, base, 100 * share);
}

void add_stage_targets(const Outcomes& outcomes, std::vector<Target>& targets) {
  const std::vector<Case> cases = cases_of(outcomes, "bandwidth");
  const std::string rate = slowest_common(cases, {"fp32"});
  for (const auto& [base, wanted] : {std::pair("fp32", 4.3), std::pair("fp16", 2.2)}) {
    const std::string name = fmt::format(
        "ac-sgd against {}, a step after the first epoch, where fp32 has at most a fifth "
        "of its unshaped speed",
        base);
    Target target = speed_target(name, wanted, cases, "ac-sgd", base, rate, "bandwidth");
    require_slow_links(cases, "fp32", rate, target);
    targets.push_back(std::move(target));
  }
}

// A step of a run of kEpochs, the first of them included.
Spread seconds_over_epochs(const Case& one) {
  const Spread first = seconds_of(one, Which::first_epoch), later = seconds_of(one);
  if (!is_known(first)) return later;
  const auto mean = [](double a, double b) { return (a + (kEpochs - 1) * b) / kEpochs; };
  return {mean(first.median, later.median), mean(first.least, later.least),
          mean(first.most, later.most), std::min(first.rounds, later.rounds)};
}

Target end_to_end_target(const std::vector<Case>& cases) {
  const std::string rate = slowest_common(cases, {"both", "nothing"});
  Target target = speed_target(
      fmt::format("end to end: \"both\" against \"nothing\", {} epochs, the first included "
                  "(composed), where nothing has at most a fifth of its unshaped speed",
                  kEpochs),
      4.9, cases, "both", "nothing", rate, "end-to-end");
  if (target.judgement == Judgement::not_measured) return target;
  const Case& own = *find_case(cases, "both", rate);
  const Case& base = *find_case(cases, "nothing", rate);
  const Spread ratio = ratio_of(seconds_of(base), seconds_over_epochs(own));
  target.number = text(ratio, 2, "x");
  target.judgement = ratio.median >= 4.9 ? Judgement::met : Judgement::missed;
  target.why = target.judgement == Judgement::missed ? reason_of(own, base) : "";
  require_slow_links(cases, "nothing", rate, target);
  return target;
}

// Where communication is nearest to half of a step, which the measures were made for.
std::string nearest_to_half(const std::vector<Case>& cases, const std::string& base) {
  std::string nearest;
  double least = 1;
  for (const std::string& rate : rates_of(cases)) {
    const auto share = communication_share(cases, base, rate);
    if (!share || rate == "unshaped") continue;
    const double apart = std::abs(*share - 0.5);
    if (nearest.empty() || apart < least) nearest = rate, least = apart;
  }
  return nearest;
}

Target optimus_target(const std::vector<Case>& cases) {
  const std::string all = "CB + LEP + FE + SC";
  const std::string rate = nearest_to_half(cases, "base");
  Target target = speed_target(
      fmt::format(
          "optimus-cc: \"{}\" against \"base\", where communication is about half of base's "
          "step",
          all),
      1.45, cases, all, "base", rate, "optimus-cc");
  if (rate.empty()) {
    target.why = "base was not measured both unshaped and at a rate";
    return target;
  }
  if (target.judgement == Judgement::not_measured) return target;
  const double share = *communication_share(cases, "base", rate);
  target.number +=
      fmt::format("; communication is {:.0f} % of base's step (composed)", 100 * share);
  if (share >= kLeastHalf && share <= kMostHalf) return target;
  target.judgement = Judgement::not_measured;
  target.why = fmt::format("no rate at which communication is {:.0f} to {:.0f} % of base's step",
                           100 * kLeastHalf, 100 * kMostHalf);
  return target;
}

void add_replica_targets(const Outcomes& outcomes, std::vector<Target>& targets) {
  targets.push_back(end_to_end_target(cases_of(outcomes, "end-to-end")));
  targets.push_back(optimus_target(cases_of(outcomes, "optimus-cc")));
}

Target own_speed_target(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, "bandwidth");
  const Case* slow = find_case(cases, "ac-sgd", "100mbit");
  const Case* fast = find_case(cases, "ac-sgd", "unshaped");
  Target target{"ac-sgd at 100mbit, of its own unshaped speed",
                "at least 80 %",
                "–",
                source_of("bandwidth", "100mbit"),
                "",
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

// All of these send whole gradients.
const std::vector<std::string> kWholePeers = {"DDP", "DDP, 5 MB buckets",
                                              "DDP, our allocator settings"};

const Case* fastest_of(const std::vector<Case>& cases, const std::string& rate,
                       const std::function<bool(const std::string&)>& is_candidate) {
  const Case* fastest = nullptr;
  for (const Case& one : cases) {
    if (one.rate != rate || !is_candidate(one.method) || !is_known(seconds_of(one))) continue;
    if (!fastest || seconds_of(one).median < seconds_of(*fastest).median) fastest = &one;
  }
  return fastest;
}

const Case* fastest_whole_peer(const std::vector<Case>& cases, const std::string& rate) {
  return fastest_of(cases, rate, [](const std::string& method) {
    return std::find(kWholePeers.begin(), kWholePeers.end(), method) != kWholePeers.end();
  });
}

const Case* fastest_hook(const std::vector<Case>& cases, const std::string& rate) {
  return fastest_of(cases, rate, [](const std::string& method) {
    return method.starts_with("DDP") && method.find(" hook") != std::string::npos;
  });
}

// What the rounds say of a difference between medians.
std::string certainty(const Spread& a, const Spread& b) {
  if (std::min(a.rounds, b.rounds) < 2) return ", and one round has no spread";
  return overlap(a, b) ? ", within the spread" : "";
}

// At every rate at which both were measured. `base_at` finds what `own` is compared with at a rate.
// `may_overlap`: slower within the spread counts as met.
Target never_slower(std::string name, const std::vector<Case>& cases, const std::string& own,
                    const std::function<const Case*(const std::string& rate)>& base_at,
                    const std::string& page, bool may_overlap) {
  Target target{std::move(name),
                may_overlap ? "at least 1x, within the spread" : "at least 1x",
                "–",
                source_of(page, "every rate"),
                "",
                Judgement::not_measured};
  std::vector<std::string> numbers, slower;
  for (const std::string& rate : rates_of(cases)) {
    const Case* mine = find_case(cases, own, rate);
    const Case* other = base_at(rate);
    const Spread ratio = mine && other ? ratio_of(seconds_of(*other), seconds_of(*mine)) : Spread{};
    if (!is_known(ratio)) continue;
    numbers.push_back(fmt::format("{}: {} against {}", rate, text(ratio, 2, "x"), other->method));
    const Spread ours = seconds_of(*mine), theirs = seconds_of(*other);
    if (ratio.median >= 1 || (may_overlap && overlap(ours, theirs))) continue;
    slower.push_back(fmt::format("{} by {:.1f} %{}", rate, 100 * (1 / ratio.median - 1),
                                 certainty(ours, theirs)));
  }
  if (numbers.empty()) {
    target.why = "they were not both measured at any rate";
    return target;
  }
  target.number = fmt::format("{}", fmt::join(numbers, "; "));
  target.judgement = slower.empty() ? Judgement::met : Judgement::missed;
  if (!slower.empty()) target.why = fmt::format("steps are longer at {}", fmt::join(slower, "; "));
  return target;
}

// The fastest of ours whose loss after equally many steps is not above DDP's by more. A lower loss
// is welcome, however much lower.
Target policy_target(const Outcomes& outcomes, const std::string& rate, double wanted) {
  const std::vector<Case> cases = cases_of(outcomes, "data-parallel");
  bool knows_losses = false;
  const Case* best = fastest_of(cases, rate, [&](const std::string& method) {
    const auto excess =
        method.starts_with("laconic") ? loss_excess_percent(outcomes, method) : std::nullopt;
    knows_losses = knows_losses || excess;
    return excess && *excess <= kLossTolerancePercent;
  });
  const Case* peer = fastest_whole_peer(cases, rate);
  Target target = speed_target(
      fmt::format(
          "best policy whose loss is at most 0.5 % above DDP's, against the fastest DDP that "
          "sends whole gradients, at {}",
          rate),
      wanted, cases, best ? best->method : "", peer ? peer->method : "", rate, "data-parallel");
  if (best && peer) {
    target.number =
        fmt::format("{} (loss {:+.2f} % after {} steps, one seed) against {}: {}", best->method,
                    *loss_excess_percent(outcomes, best->method),
                    common_steps(cases_of(outcomes, "loss")), peer->method, target.number);
    if (const Case* hook = fastest_hook(cases, rate))
      target.number += fmt::format("; beside it {}: {}", hook->method,
                                   text(ratio_of(seconds_of(*peer), seconds_of(*hook)), 2, "x"));
  } else if (knows_losses && peer) {
    target.judgement = Judgement::missed;
    target.why = "no policy's loss is at most 0.5 % above";
  }
  return target;
}

Target meter_target(const Outcomes& outcomes) {
  Target target{"byte meter against the kernel's counters, after headers",
                "within 3 %",
                "–",
                source_of("honesty", ""),
                "",
                Judgement::not_measured};
  const std::vector<MeterCheck> checks = meter_checks(outcomes);
  if (checks.empty()) {
    target.why = "no run of Laconic in a lab";
    return target;
  }
  const auto is_far = [](const MeterCheck& c) { return std::abs(difference(c)) > kMeterTolerance; };
  const auto far = std::count_if(checks.begin(), checks.end(), is_far);
  const auto worst =
      *std::max_element(checks.begin(), checks.end(), [](const auto& a, const auto& b) {
        return std::abs(difference(a)) < std::abs(difference(b));
      });
  target.number = fmt::format("{} of {} runs; farthest {:+.1f} %",
                              checks.size() - static_cast<std::size_t>(far), checks.size(),
                              100 * difference(worst));
  target.judgement = far == 0 ? Judgement::met : Judgement::missed;
  if (far > 0) {
    target.why = fmt::format("farthest: {}, {}, {}, whose meter has {:.2f} MB in all", worst.part,
                             worst.rate, worst.method, worst.meter / 1e6);
  }
  return target;
}

Target estimate_target(const Outcomes& outcomes) {
  Target target{"predicted step time against measured",
                "within 15 %",
                "–",
                source_of("honesty", ""),
                "",
                Judgement::not_measured};
  const std::vector<Prediction> all = predictions_of(outcomes);
  if (all.empty()) {
    target.why = "no run has what a prediction needs";
    return target;
  }
  const auto worst = *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::abs(error_of(a)) < std::abs(error_of(b));
  });
  const auto near = std::count_if(all.begin(), all.end(), [](const Prediction& p) {
    return std::abs(error_of(p)) <= kEstimateTolerance;
  });
  target.number =
      fmt::format("{} of {} cases; farthest {:+.1f} %", near, all.size(), 100 * error_of(worst));
  target.judgement =
      near == static_cast<std::ptrdiff_t>(all.size()) ? Judgement::met : Judgement::missed;
  if (target.judgement == Judgement::missed) {
    target.why = fmt::format(
        "farthest: {}, {}, {}; the walk leaves out the update, encoding and that "
        "ranks compete for processors",
        worst.part, worst.rate, worst.method);
  }
  return target;
}

}  // namespace

std::vector<Target> targets_of(const Outcomes& outcomes) {
  std::vector<Target> targets;
  add_stage_targets(outcomes, targets);
  add_replica_targets(outcomes, targets);
  targets.push_back(own_speed_target(outcomes));
  const std::vector<Case> replicas = cases_of(outcomes, "data-parallel");
  targets.push_back(never_slower(
      "\"laconic, raw\" never slower than the fastest DDP that sends whole gradients", replicas,
      "laconic, raw", [&](const std::string& rate) { return fastest_whole_peer(replicas, rate); },
      "data-parallel", false));
  targets.push_back(policy_target(outcomes, "100mbit", 3.2));
  targets.push_back(policy_target(outcomes, "20mbit", 8));
  const std::vector<Case> stages = cases_of(outcomes, "bandwidth");
  targets.push_back(never_slower(
      "\"ac-sgd, bypass auto\" never slower than fp32", stages, "ac-sgd, bypass auto",
      [&](const std::string& rate) { return find_case(stages, "fp32", rate); }, "bandwidth", true));
  targets.push_back(meter_target(outcomes));
  targets.push_back(estimate_target(outcomes));
  return targets;
}

std::string targets_page(const Outcomes& outcomes) {
  const auto judgement_text = [](Judgement judgement) {
    return judgement == Judgement::met      ? "met"
           : judgement == Judgement::missed ? "**not met**"
                                            : "not measured";
  };
  std::vector<std::vector<std::string>> rows;
  for (const Target& target : targets_of(outcomes)) {
    rows.push_back({target.name, target.wanted, target.number, target.source,
                    judgement_text(target.judgement), target.why});
  }
  return "# Targets\n\nWhat was wanted before anything was measured.\n\n" + how_to_read() +
         markdown_table({{"target", Align::left},
                         {"wanted", Align::left},
                         {"measured", Align::left},
                         {"where", Align::left},
                         {"", Align::left},
                         {"why not", Align::left}},
                        rows);
}

}  // namespace laconic
