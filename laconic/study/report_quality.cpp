// Parts "validation loss" and "low-rank validation loss": what encoding does to the loss, by seed.
#include <fmt/format.h>

#include <cmath>

#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

constexpr const char* kQualityParts[] = {"validation loss", "low-rank validation loss"};

std::string baseline_of(const std::string& method) {
  return method.ends_with(", dp 2") ? "uncompressed, dp 2" : "uncompressed";
}

std::vector<double> validation_losses(const Case& one) {
  std::vector<double> losses;
  for (const Outcome& outcome : one.rounds) losses.push_back(outcome.validation_loss);
  return losses;
}

// Against the baseline of the same seed, so that the luck of a seed is not counted.
std::vector<double> loss_differences(const Case& one, const Case& base) {
  std::vector<double> found;
  for (const Outcome& mine : one.rounds)
    for (const Outcome& other : base.rounds)
      if (other.trial.round == mine.trial.round)
        found.push_back(mine.validation_loss - other.validation_loss);
  return found;
}

// Raw by wire bytes of a class over all rounds; a dash where nothing was sent.
std::string shrinkage_text(const Case& one, const std::string& traffic) {
  double raw = 0, wire = 0;
  for (const Outcome& outcome : one.rounds)
    for (const ClassTotal& total : outcome.traffic)
      if (total.traffic == traffic) {
        raw += total.raw_bytes;
        wire += total.wire_bytes;
      }
  return wire > 0 ? fmt::format("{:.1f}x", raw / wire) : "–";
}

std::string quality_table(const std::vector<Case>& cases) {
  std::vector<std::vector<std::string>> rows;
  for (const Case& one : cases) {
    const Case* base = find_case(cases, baseline_of(one.method), one.rate);
    const bool is_base = base == &one;
    const Spread losses = spread_of(validation_losses(one));
    rows.push_back({one.method, text(losses, 4), number_text(std::exp(losses.median), 2),
                    is_base || !base ? "–" : text(spread_of(loss_differences(one, *base)), 4),
                    shrinkage_text(one, "pp.activation"), shrinkage_text(one, "pp.gradient"),
                    shrinkage_text(one, "dp.gradient")});
  }
  return markdown_table({{"", Align::left},
                         {"validation loss"},
                         {"perplexity"},
                         {"against uncompressed, same seed"},
                         {"activations shorter"},
                         {"gradients shorter"},
                         {"between replicas"}},
                        rows);
}

}  // namespace

std::string quality_page(const Outcomes& outcomes, const ReportFacts& facts) {
  std::string page = fmt::format(
      "# What encoding does to the loss\n\n- machine: {}\n- commit: {}\n- date: {}; command: "
      "`{}`\n\nThe beginning of WikiText-2, from scratch, about four epochs; validation on 256 "
      "samples at the end. Numbers are measured: the median over seeds, in brackets the least and "
      "the most. Activations of the evaluation travel whole, and are counted with those of "
      "training.\n\n",
      facts.machine, facts.commit, facts.date, facts.command);
  for (const char* part : kQualityParts) {
    const std::vector<Case> cases = cases_of(outcomes, part);
    page += fmt::format("## {}\n\n", part);
    if (cases.empty()) {
      page += not_measured(outcomes, part) + "\n";
      continue;
    }
    const Outcome& any = cases.front().rounds.front();
    page += fmt::format("{}; {} steps of 32 samples.\n\n", any.model_about,
                        any.trial.warmup + any.trial.steps) +
            quality_table(cases) + "\n";
  }
  return page;
}

}  // namespace laconic
