// Data-parallel training against PyTorch's DDP: what was wanted.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "laconic/study/report_target.hpp"

namespace laconic {

namespace {

constexpr double kLossTolerancePercent = 0.5;

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

// The fastest of ours whose loss after equally many steps is not above DDP's by more. A lower loss
// is welcome, however much lower.
const Case* best_policy(const Outcomes& outcomes, const std::vector<Case>& cases,
                        const std::string& rate) {
  return fastest_of(cases, rate, [&](const std::string& method) {
    const auto excess =
        method.starts_with("laconic") ? loss_excess_percent(outcomes, method) : std::nullopt;
    return excess && *excess <= kLossTolerancePercent;
  });
}

bool knows_losses(const Outcomes& outcomes, const std::vector<Case>& cases) {
  const std::vector<std::string> methods = methods_of(cases);
  return std::any_of(methods.begin(), methods.end(), [&](const std::string& method) {
    return method.starts_with("laconic") && loss_excess_percent(outcomes, method);
  });
}

Target policy_target(const Outcomes& outcomes, const std::string& rate, double wanted) {
  const std::vector<Case> cases = cases_of(outcomes, "data-parallel");
  const Case* best = best_policy(outcomes, cases, rate);
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
  } else if (peer && knows_losses(outcomes, cases)) {
    target.judgement = Judgement::missed;
    target.why = "no policy's loss is at most 0.5 % above";
  }
  return target;
}

}  // namespace

// The fastest policy may be another at each rate.
void add_replica_targets(const Outcomes& outcomes, std::vector<Target>& targets) {
  const std::vector<Case> cases = cases_of(outcomes, "data-parallel");
  const CaseAt best_at = [&](const std::string& rate) {
    return best_policy(outcomes, cases, rate);
  };
  targets.push_back(never_slower(
      "\"laconic, raw\" never slower than the fastest DDP that sends whole gradients", cases,
      [&](const std::string& rate) { return find_case(cases, "laconic, raw", rate); },
      [&](const std::string& rate) { return fastest_whole_peer(cases, rate); }, "data-parallel",
      false));
  targets.push_back(policy_target(outcomes, "100mbit", 3.2));
  targets.push_back(policy_target(outcomes, "20mbit", 8));
  targets.push_back(never_slower(
      "best policy whose loss is at most 0.5 % above DDP's never slower than DDP's fastest hook",
      cases, best_at, [&](const std::string& rate) { return fastest_hook(cases, rate); },
      "data-parallel", false));
  const Case* best = best_at("100mbit");
  targets.push_back(
      own_speed_target(fmt::format("best such policy at 100mbit{}, of its own unshaped speed",
                                   best ? fmt::format(" ({})", best->method) : ""),
                       cases, best ? best->method : "", "data-parallel"));
}

}  // namespace laconic
