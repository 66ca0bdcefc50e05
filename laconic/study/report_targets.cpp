// What was wanted beforehand, and whether it came true.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "laconic/study/report_target.hpp"

namespace laconic {

namespace {

constexpr double kFifth = 0.2;
constexpr double kLeastHalf = 0.35, kMostHalf = 0.65;  // what "about half" means
constexpr double kEpochs = 6;                          // of a run whose first epoch counts too
constexpr double kCodecShare = 0.05;

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
  target.why = target.judgement == Judgement::missed ? reason_of(own) : "";
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
  const std::string rate = nearest_to_half(cases, "base");
  Target target =
      speed_target("optimus-cc against \"base\", where communication is about half of base's step",
                   1.45, cases, "optimus-cc", "base", rate, "optimus-cc");
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

// A rank's encoding and decoding, of what it computes in a step: forward and backward of all
// microbatches, mean over ranks.
Spread codec_share(const Case& one) {
  std::vector<double> computing;
  for (const Outcome& outcome : one.rounds) {
    const int microbatches = microbatches_of(shape_of(outcome));
    if (!outcome.computing_seconds.empty() && microbatches > 0)
      computing.push_back(microbatches * mean_of(outcome.computing_seconds));
  }
  return ratio_of(codec_seconds_per_step(one), spread_of(computing));
}

Target codec_cost_target(const std::vector<Case>& stages) {
  Target target{"encoding and decoding of ac-sgd (4 bits forward, 6 back), of what a rank computes",
                "under 5 %",
                "–",
                source_of("bandwidth", "every rate"),
                "",
                Judgement::not_measured};
  std::vector<std::string> numbers, dear;
  for (const std::string& rate : rates_of(stages)) {
    const Case* one = find_case(stages, "ac-sgd", rate);
    const Spread share = one ? codec_share(*one) : Spread{};
    if (!is_known(share)) continue;
    numbers.push_back(fmt::format("{}: {}", rate, text(scaled(share, 100), 1, " %")));
    if (share.median >= kCodecShare) dear.push_back(rate);
  }
  if (numbers.empty()) {
    target.why = "no run has both times";
    return target;
  }
  target.number = fmt::format("{}", fmt::join(numbers, "; "));
  target.judgement = dear.empty() ? Judgement::met : Judgement::missed;
  if (!dear.empty()) target.why = fmt::format("more at {}", fmt::join(dear, ", "));
  return target;
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
  targets.push_back(end_to_end_target(cases_of(outcomes, "end-to-end")));
  targets.push_back(optimus_target(cases_of(outcomes, "optimus-cc")));
  targets.push_back(own_speed_target("ac-sgd at 100mbit, of its own unshaped speed", cases,
                                     "ac-sgd", "bandwidth"));
  targets.push_back(codec_cost_target(cases));
}

// Encoding that does not pay is dropped, so that nobody loses by asking for it.
void add_bypass_targets(const Outcomes& outcomes, std::vector<Target>& targets) {
  for (const auto& [page, own, base] :
       {std::tuple("bandwidth", "ac-sgd, bypass auto", "fp32"),
        std::tuple("data-parallel", "laconic, 4 bits, bypass auto", "laconic, raw")}) {
    const std::vector<Case> cases = cases_of(outcomes, page);
    const auto case_of = [&](const char* method) -> CaseAt {
      return [&cases, method](const std::string& rate) { return find_case(cases, method, rate); };
    };
    targets.push_back(
        never_slower(fmt::format("\"{}\" never slower than {}, steps after it decided", own, base),
                     cases, case_of(own), case_of(base), page, true));
  }
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
        "farthest: {}, {}, {}; the walk leaves out the update and that ranks compete for "
        "processors",
        worst.part, worst.rate, worst.method);
  }
  return target;
}

}  // namespace

std::vector<Target> targets_of(const Outcomes& outcomes) {
  std::vector<Target> targets;
  add_stage_targets(outcomes, targets);
  add_replica_targets(outcomes, targets);
  add_bypass_targets(outcomes, targets);
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
  return "# Targets\n\nWhat was wanted before anything was measured.\n\n" + setting_text(outcomes) +
         how_to_read() +
         markdown_table({{"target", Align::left},
                         {"wanted", Align::left},
                         {"measured", Align::left},
                         {"where", Align::left},
                         {"", Align::left},
                         {"remarks", Align::left}},
                        rows);
}

}  // namespace laconic
