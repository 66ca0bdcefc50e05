// Part "bandwidth": a pipeline of four stages over links from fast to slow.
#include <fmt/format.h>

#include <algorithm>

#include "laconic/study/report_figure.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

constexpr const char* kPart = "bandwidth";
// Left out of drawings first: their neighbours show the same.
const std::vector<std::string> kDispensablePipelines = {"DirectQ, 3 and 6 bits",
                                                        "AC-SGD, 3 and 6 bits"};

constexpr const char* kRunMean = "mean over the run, first epoch included";

std::string speed_up_table(const std::vector<Case>& cases, const std::string& base) {
  if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return c.method == base; })) {
    return fmt::format("{} was not measured, so there is nothing to compare with.\n\n", base);
  }
  return method_by_rate(
      cases,
      [&](const Case& one, Which which) {
        const Case* other = find_case(cases, base, one.rate);
        if (!other) return fmt::format("{} not measured", base);
        return text(ratio_of(seconds_of(*other), seconds_of(one, which)), 2, "x");
      },
      true);
}

// Returns what all ranks send of a class in a step, as a mean over the run; 0 if they send none.
Spread megabytes_of_class(const Case& one, const std::string& traffic) {
  std::vector<double> values;
  for (const Outcome& outcome : one.rounds) {
    double bytes = 0;
    for (const ClassTotal& total : outcome.traffic) {
      if (total.traffic == traffic) bytes += total.wire_bytes;
    }
    values.push_back(bytes / static_cast<double>(outcome.steps.size()) / 1e6);
  }
  return spread_of(values);
}

}  // namespace

std::string how_to_read() {
  return "A round's figure is the median of its steps; shown is the median over rounds, in "
         "brackets the least and the most of them and how many rounds there were (n); of a single "
         "round, which has no spread, the least and the most of its steps. Of a ratio "
         "the brackets hold the worst and the best that rounds of both could have met. A dash: "
         "the runs have no such number.\n\n";
}

std::string communication_note() {
  return "Communication is 1 less the unshaped step over the step at this rate: what links of that "
         "rate add to it.\n\n";
}

std::string communication_text(const std::vector<Case>& part, const Case& one) {
  const auto share = communication_share(part, one.method, one.rate);
  return share && one.rate != "unshaped" ? number_text(100 * *share, 0) : "–";
}

Figure speed_figure(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, kPart);
  Figure figure = figure_over_rates(cases, curves_to_draw(methods_of(cases), kDispensablePipelines),
                                    [](const Case& one) { return samples_per_second(one); });
  figure.name = "speed";
  figure.title = "Training speed over the bandwidth of each link (measured)";
  figure.y_label = "samples/s";
  return figure;
}

// At the loss's rate if it was measured, else at the slowest one. What a method that bypasses sent
// before it decided is not what it sends in a step; nor is the probe, nor agreement between ranks.
Figure bytes_figure(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, kPart);
  const std::vector<std::string> rates = rates_of(cases);
  const bool has_rate = std::find(rates.begin(), rates.end(), kLossRate) != rates.end();
  const std::string rate = has_rate ? kLossRate : rates.empty() ? "" : rates.back();
  Figure figure;
  figure.name = "bytes";
  figure.title = fmt::format("What all ranks send in a step at {} (measured; {})", rate, kRunMean);
  figure.y_label = "MB a step";
  figure.kind = FigureKind::stacked;
  std::vector<const Case*> bars;
  std::vector<std::string> classes;
  for (const std::string& method : methods_of(cases)) {
    const Case* one = find_case(cases, method, rate);
    if (!one || bypasses(one->rounds.front().trial)) continue;
    if (one->rounds.front().traffic.empty() || one->rounds.front().steps.empty()) continue;
    figure.ticks.push_back({static_cast<double>(bars.size()), method});
    bars.push_back(one);
    for (const ClassTotal& total : one->rounds.front().traffic) {
      if (!is_training(total)) continue;
      if (std::find(classes.begin(), classes.end(), total.traffic) == classes.end()) {
        classes.push_back(total.traffic);
      }
    }
  }
  classes = curves_to_draw(classes, {});
  for (const std::string& name : classes) {
    Curve curve{name, {}};
    for (std::size_t bar = 0; bar < bars.size(); ++bar) {
      const Spread sent = megabytes_of_class(*bars[bar], name);
      curve.points.push_back({static_cast<double>(bar), sent.median, sent.least, sent.most});
    }
    figure.curves.push_back(std::move(curve));
  }
  return figure;
}

std::string bandwidth_page(const Outcomes& outcomes, const Drawn& drawn) {
  const std::vector<Case> cases = cases_of(outcomes, kPart);
  std::string page = "# Speed over bandwidth\n\n";
  if (cases.empty()) return page + not_measured(outcomes, kPart);
  page +=
      "A pipeline of four stages, each on a host of its own; every host's link has the rate "
      "of the column. Numbers on this page are measured, unless they are called composed.\n\n" +
      setting_text(outcomes, {kPart}) + how_to_read() +
      "Methods whose links remember samples have two rows: later epochs, and the first, in "
      "which nothing is remembered yet. A step with samples of both counts in neither.\n\n";
  page += figure_text(drawn, "speed", "Samples a second over the bandwidth of each link");
  page += "## Samples a second\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which w) { return text(samples_per_second(c, w)); }, true);
  page += "## Seconds of a step\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which w) { return text(seconds_of(c, w)); }, true);
  page += "## Against fp32\n\n" + speed_up_table(cases, "fp32");
  page += "## Against fp16\n\n" + speed_up_table(cases, "fp16");
  page +=
      "## Share of a step in which rank 0 waits for other ranks and the network, per cent\n\nThe "
      "bubble of the pipeline is in it, and so is waiting for cores that ranks share.\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which w) { return text(scaled(exposed_share(c, w), 100), 0); },
      true);
  page +=
      "## Share of a step that is communication, per cent (composed)\n\n" + communication_note();
  page += method_by_rate(
      cases, [&](const Case& c, Which) { return communication_text(cases, c); }, false);
  page += "## Bytes on the wire\n\nMB that rank 0 sends in a step, by the program's meter:\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which w) { return text(scaled(first_rank_bytes(c, w), 1e-6)); },
      true);
  page +=
      "MB that all ranks send in a step, mean over the whole run, first epoch included, without "
      "agreement between ranks and the probe before the first step (of a method that bypasses, "
      "mostly of steps before it decided):\n\n";
  page += method_by_rate(
      cases, [](const Case& c, Which) { return text(scaled(wire_bytes_per_step(c), 1e-6)); },
      false);
  return page +
         figure_text(
             drawn, "bytes",
             fmt::format(
                 "What all ranks send in a step, by traffic class; {}; without methods that bypass",
                 kRunMean));
}

}  // namespace laconic
