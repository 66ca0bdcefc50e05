// Parts "data-parallel" and "loss": Laconic and PyTorch's DDP on the same model, data and links.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "laconic/study/report_figure.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

constexpr const char* kSpeed = "data-parallel";
constexpr const char* kLoss = "loss";
constexpr const char* kPeer = "DDP";
constexpr const char* kWhole = "laconic, raw";
const std::vector<std::string> kDispensableReplicas = {
    "DDP, 5 MB buckets", "laconic, 3 bits", "DDP, fp16 hook, 5 MB buckets",
    "DDP, our allocator settings", "laconic, 16 bits"};

const Case* find_method(const std::vector<Case>& cases, const std::string& method) {
  const auto found = std::find_if(cases.begin(), cases.end(),
                                  [&](const Case& one) { return one.method == method; });
  return found == cases.end() ? nullptr : &*found;
}

// Steps that a loss run sends whole before its method begins.
std::size_t whole_steps_of(const Outcome& losses) {
  const auto number = [&](const char* key, const char* otherwise) {
    return static_cast<std::size_t>(std::atoi(setting_of(losses, key).value_or(otherwise).c_str()));
  };
  if (setting_of(losses, "hook") == "powersgd") return number("powersgd-start", "2");
  const bool has_warmup = setting_of(losses, "dp.gradient.method") == "compressed_adam";
  return has_warmup ? number("dp.gradient.warmup", "0") : 0;
}

double seconds_until(const ComposedLoss& one, std::size_t step, double Spread::*which) {
  const std::size_t whole = std::min(step, one.whole_steps);
  return static_cast<double>(whole) * one.whole_seconds.*which +
         static_cast<double>(step - whole) * one.step_seconds.*which;
}

// No more than there are. A little is added, so that all steps are done after their sum.
std::size_t steps_in(const ComposedLoss& one, double seconds, double Spread::*which) {
  std::size_t done = 0;
  while (done < one.losses.steps.size() &&
         seconds_until(one, done + 1, which) <= seconds * (1 + 1e-9))
    ++done;
  return done;
}

// How the peer was run, and what its clock leaves out.
std::string conditions(const std::vector<Case>& cases) {
  std::string versions;
  for (const Case& one : cases)
    if (versions.empty()) versions = one.rounds.front().versions;
  return fmt::format(
      "The peer is {} over gloo, one thread a rank, with the BLAS and the kernels that Laconic "
      "uses; buckets of 25 MB unless the method names others, reduced while the backward pass goes "
      "on (the PowerSGD hook only works with a single bucket, and so without that); the allocator "
      "as PyTorch's users have it, unless the method says that it has the settings that Laconic "
      "makes for itself. A step of Laconic's includes reading its data and the agreement between "
      "ranks; the clock of DDP runs from the forward pass to the end of the update.\n\n",
      versions.empty() ? "PyTorch's DDP" : versions + ", DDP");
}

std::string speed_tables(const std::vector<Case>& cases, const Drawn& drawn) {
  std::string page = "## Tokens a second (measured)\n\n";
  page += figure_text(drawn, "tokens", "Tokens a second over the bandwidth of each link");
  page += method_by_rate(
      cases, [&](const Case& c, Which) { return text(tokens_per_second(c, cases)); }, false);
  page += "## Seconds of a step (measured)\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which) { return text(seconds_of(c)); }, false);
  page += "## Against DDP (measured)\n\n";
  page += method_by_rate(
      cases,
      [&](const Case& c, Which) -> std::string {
        const Case* peer = find_case(cases, kPeer, c.rate);
        if (!peer) return "DDP not measured";
        return text(ratio_of(seconds_of(*peer), seconds_of(c)), 2, "x");
      },
      false);
  page +=
      "## MB on the wire a step, all hosts\n\nOf steps that count, headers and acknowledgements "
      "included. DDP (measured): the kernel's counters of all hosts' interfaces, read before and "
      "after these steps. Laconic (composed): its meter's bytes of these steps, times what the "
      "same counters have for each byte of the meter over the whole run. What is sent once, such "
      "as "
      "the copy of the model with which DDP starts, is in neither.\n\n";
  return page +
         method_by_rate(
             cases,
             [](const Case& c, Which) { return text(scaled(network_bytes_per_step(c), 1e-6)); },
             false);
}

std::string equal_steps(const Outcomes& outcomes, const std::vector<Case>& losses) {
  const std::size_t steps = common_steps(losses);
  std::string page = fmt::format(
      "## Loss after equally many steps (measured)\n\nMean of the last five losses, after {} "
      "steps of "
      "one seed:\n\n",
      steps);
  std::vector<std::vector<std::string>> rows;
  for (const Case& one : losses) {
    const Spread loss = final_loss(one, steps);
    const auto excess = loss_excess_percent(outcomes, one.method);
    rows.push_back({one.method, is_known(loss) ? text(loss, 4) : "diverged",
                    excess ? fmt::format("{:+.2f} %", *excess) : "–"});
  }
  return page + markdown_table({{"", Align::left}, {"loss"}, {"against DDP"}}, rows);
}

std::string equal_seconds(const Outcomes& outcomes, const std::vector<Case>& speeds,
                          const Drawn& drawn) {
  std::string page =
      "## Loss after equally many seconds (composed)\n\nLosses by step are those of the first "
      "round of part \"loss\", placed at the seconds that a step was measured to take at each "
      "rate. Steps that a method sends whole before it begins (compressed Adam, DDP's PowerSGD "
      "hook) are placed at the seconds of \"laconic, raw\" or DDP. "
      "A loss is the mean of the step's own and of those of two steps on either side (near the "
      "first and the last step of fewer, as many on both), since a mean of earlier losses alone "
      "would be against methods that have done few steps. "
      "In brackets, at the seconds of the fastest and the slowest round. Seconds are as many as "
      "the fastest method needs for all but its last two steps, so that nothing is carried on "
      "beyond what was measured.\n\n";
  page += figure_text(drawn, "loss", fmt::format("Loss over seconds at {} (composed)", kLossRate));
  for (const std::string& rate : rates_of(speeds)) {
    const std::vector<ComposedLoss> composed = composed_losses(outcomes, rate);
    if (composed.empty()) continue;
    const double seconds = common_seconds(composed);
    page += fmt::format("### {}, after {:.1f} s\n\n", rate, seconds);
    std::vector<std::vector<std::string>> rows;
    for (const ComposedLoss& one : composed) {
      const std::size_t done = steps_after(one, seconds);
      const Spread loss = loss_after(one, seconds);
      rows.push_back({one.method, fmt::format("{}", done),
                      is_known(loss) ? text(loss, 4)
                      : done == 0    ? "no step is done yet"
                                     : "diverged"});
    }
    page += markdown_table({{"", Align::left}, {"steps done"}, {"loss"}}, rows);
  }
  return page;
}

}  // namespace

std::vector<ComposedLoss> composed_losses(const Outcomes& outcomes, const std::string& rate) {
  const std::vector<Case> speeds = cases_of(outcomes, kSpeed);
  std::vector<ComposedLoss> composed;
  for (const Case& one : cases_of(outcomes, kLoss)) {
    const Case* speed = find_case(speeds, one.method, rate);
    const Spread seconds = speed ? seconds_of(*speed) : Spread{};
    const bool is_there = std::any_of(composed.begin(), composed.end(), [&](const auto& other) {
      return other.method == one.method;
    });
    if (is_there || !is_known(seconds) || seconds.median <= 0) continue;
    const Outcome& losses = one.rounds.front();
    const std::size_t whole_steps = whole_steps_of(losses);
    const Case* whole =
        find_case(speeds, losses.trial.program == Program::ddp ? kPeer : kWhole, rate);
    const Spread whole_seconds = whole ? seconds_of(*whole) : Spread{};
    if (whole_steps > 0 && !is_known(whole_seconds)) continue;
    composed.push_back({one.method, seconds, losses, whole_steps, whole_seconds});
  }
  return composed;
}

double common_seconds(const std::vector<ComposedLoss>& losses) {
  double least = 0;
  for (const ComposedLoss& one : losses) {
    const std::size_t all = one.losses.steps.size();
    const std::size_t steps = all > kLossReach ? all - kLossReach : all;
    const double seconds = seconds_until(one, steps, &Spread::median);
    least = least == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

std::size_t steps_after(const ComposedLoss& losses, double seconds) {
  return steps_in(losses, seconds, &Spread::median);
}

Spread loss_after(const ComposedLoss& losses, double seconds) {
  const auto loss = centred_loss_at(losses.losses, steps_after(losses, seconds));
  if (!loss) return {};
  Spread result = {*loss, *loss, *loss, losses.step_seconds.rounds};
  for (const auto which : {&Spread::least, &Spread::most}) {
    const auto bound = centred_loss_at(losses.losses, steps_in(losses, seconds, which));
    result.least = std::min(result.least, bound.value_or(*loss));
    result.most = std::max(result.most, bound.value_or(*loss));
  }
  return result;
}

std::optional<double> loss_excess_percent(const Outcomes& outcomes, const std::string& method) {
  const std::vector<Case> losses = cases_of(outcomes, kLoss);
  const Case* own = find_method(losses, method);
  const Case* peer = find_method(losses, kPeer);
  if (!own || !peer) return {};
  const std::size_t steps = common_steps(losses);
  const Spread ratio = ratio_of(final_loss(*own, steps), final_loss(*peer, steps));
  if (!is_known(ratio)) return {};
  return 100 * (ratio.median - 1);
}

Figure tokens_figure(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, kSpeed);
  Figure figure = figure_over_rates(cases, curves_to_draw(methods_of(cases), kDispensableReplicas),
                                    [&](const Case& one) { return tokens_per_second(one, cases); });
  figure.name = "tokens";
  figure.title = "Data-parallel training over the bandwidth of each link (measured)";
  figure.y_label = "tokens/s";
  figure.log_y = true;
  return figure;
}

Figure loss_figure(const Outcomes& outcomes) {
  Figure figure;
  figure.name = "loss";
  figure.title = fmt::format("Loss over time at {} (composed of losses and step times)", kLossRate);
  figure.x_label = "seconds";
  figure.y_label = "loss, mean of the step and two on either side";
  figure.kind = FigureKind::lines;
  figure.log_x = true;
  const std::vector<ComposedLoss> composed = composed_losses(outcomes, kLossRate);
  std::vector<std::string> names;
  for (const ComposedLoss& one : composed) names.push_back(one.method);
  names = curves_to_draw(names, kDispensableReplicas);
  for (const ComposedLoss& one : composed) {
    if (std::find(names.begin(), names.end(), one.method) == names.end()) continue;
    Curve curve{one.method, {}};
    for (std::size_t step = 1; step <= one.losses.steps.size(); ++step) {
      const auto loss = centred_loss_at(one.losses, step);
      if (!loss) break;
      curve.points.push_back({seconds_until(one, step, &Spread::median), *loss, *loss, *loss});
    }
    if (!curve.points.empty()) figure.curves.push_back(std::move(curve));
  }
  return figure;
}

std::string data_parallel_page(const Outcomes& outcomes, const Drawn& drawn) {
  const std::vector<Case> speeds = cases_of(outcomes, kSpeed);
  const std::vector<Case> losses = cases_of(outcomes, kLoss);
  std::string page = "# Data-parallel training, against PyTorch's DDP\n\n" +
                     setting_text(outcomes, {kSpeed, kLoss}) + how_to_read();
  page += speeds.empty() ? not_measured(outcomes, kSpeed)
                         : conditions(speeds) + speed_tables(speeds, drawn);
  page += losses.empty() ? not_measured(outcomes, kLoss) : equal_steps(outcomes, losses);
  if (speeds.empty() || losses.empty()) {
    return page + "Losses after equally many seconds need both parts.\n";
  }
  return page + equal_seconds(outcomes, speeds, drawn);
}

}  // namespace laconic
