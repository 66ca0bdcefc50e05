// The page people read, and the contents of a dated folder.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/base/text.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

// Against the peers, at these rates as far as they were measured.
const std::vector<std::string> kSummaryRates = {"unshaped", "1gbit", "100mbit", "20mbit"};

std::string peers_table(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, "data-parallel");
  if (cases.empty()) return not_measured(outcomes, "data-parallel");
  std::vector<std::string> rates;
  for (const std::string& rate : rates_of(cases)) {
    if (std::find(kSummaryRates.begin(), kSummaryRates.end(), rate) != kSummaryRates.end()) {
      rates.push_back(rate);
    }
  }
  std::vector<Column> columns = {{"", Align::left}};
  for (const std::string& rate : rates) columns.push_back({rate});
  columns.push_back({"MB a step"});
  columns.push_back({"loss against DDP"});
  std::vector<std::vector<std::string>> rows;
  for (const std::string& method : methods_of(cases)) {
    std::vector<std::string> row = {method};
    std::string bytes = "–";
    for (const std::string& rate : rates) {
      const Case* one = find_case(cases, method, rate);
      row.push_back(one ? text(tokens_per_second(*one, cases), 0) : "not measured");
      const Spread sent = one ? scaled(network_bytes_per_step(*one), 1e-6) : Spread{};
      if (is_known(sent)) bytes = text(sent);
    }
    row.push_back(bytes);
    const auto excess = loss_excess_percent(outcomes, method);
    row.push_back(excess ? fmt::format("{:+.2f} %", *excess) : "–");
    rows.push_back(std::move(row));
  }
  return markdown_table(columns, rows);
}

// "31 of 31 trials; 0 failed; 0 skipped"
std::string counts_of(const Outcomes& outcomes, const ReportFacts& facts) {
  const auto skipped = std::count_if(outcomes.begin(), outcomes.end(), was_skipped);
  const auto failed = std::count_if(outcomes.begin(), outcomes.end(),
                                    [](const Outcome& one) { return !one.failure.empty(); });
  return fmt::format("{} of {} trials; {} failed; {} skipped", outcomes.size(), facts.trials,
                     failed - skipped, skipped);
}

std::string targets_line(const Outcomes& outcomes, const std::string& prefix) {
  const std::vector<Target> targets = targets_of(outcomes);
  const auto count = [&](Judgement judgement) {
    return std::count_if(targets.begin(), targets.end(),
                         [&](const Target& target) { return target.judgement == judgement; });
  };
  return fmt::format("Of {} [targets]({}targets.md) {} met, {} not, {} not measured.\n\n",
                     targets.size(), prefix, with_count(count(Judgement::met), "is", "are"),
                     with_count(count(Judgement::missed), "is", "are"),
                     with_count(count(Judgement::not_measured), "was", "were"));
}

std::string notes_section(const Outcomes& outcomes) {
  std::string list;
  for (const Outcome& outcome : outcomes) {
    for (const std::string& note : outcome.notes) {
      list += fmt::format("- {}: {}\n", described(outcome.trial), note);
    }
  }
  return list.empty() ? "" : "## What runs said of themselves\n\n" + list + "\n";
}

// Side by side when all are there, so that they fit on a screen.
std::string summary_figures(const Drawn& drawn, const std::string& prefix) {
  const std::vector<std::pair<std::string, std::string>> figures = {
      {"speed", "A pipeline of four stages: samples a second over the rate of each link"},
      {"loss", fmt::format("Data-parallel: loss over seconds at {} (composed)", kLossRate)},
      {"bytes",
       "The pipeline: MB that all ranks send in a step, by traffic class; mean over the run, first "
       "epoch included"}};
  std::vector<Column> captions;
  std::vector<std::string> images;
  std::string sentences;
  for (const auto& [name, caption] : figures) {
    const std::string path = prefix + "figures/" + name;
    captions.push_back({caption, Align::left});
    images.push_back(fmt::format("[![{}]({}.svg)]({}.png)", name, path, path));
    sentences += figure_text(drawn, name, caption, prefix);
  }
  const bool has_all = std::all_of(figures.begin(), figures.end(), [&](const auto& figure) {
    return std::find(drawn.names.begin(), drawn.names.end(), figure.first) != drawn.names.end();
  });
  return has_all ? markdown_table(captions, {images}) : sentences;
}

// Machines and commits that trials name, where they are not the report's.
std::string strangers(const Outcomes& outcomes, const ReportFacts& facts) {
  std::map<std::string, std::size_t> commits, machines;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.commit.empty() && outcome.commit != facts.commit) ++commits[outcome.commit];
    if (!outcome.machine.empty() && outcome.machine != facts.machine) ++machines[outcome.machine];
  }
  std::string lines;
  for (const auto& [commit, count] : commits)
    lines += fmt::format("- of commit {}: {} of {} runs\n", commit, count, outcomes.size());
  for (const auto& [machine, count] : machines)
    lines += fmt::format("- of {}: {} of {} runs\n", machine, count, outcomes.size());
  return lines;
}

}  // namespace

bool is_complete(const Outcomes& outcomes, const ReportFacts& facts) {
  return outcomes.size() >= facts.trials &&
         std::all_of(outcomes.begin(), outcomes.end(),
                     [](const Outcome& one) { return one.failure.empty(); });
}

std::string described(const Trial& trial) {
  return fmt::format("{}, {}, {}, round {}", trial.part, trial.rate, trial.method, trial.round);
}

std::vector<Figure> figures_of(const Outcomes& outcomes) {
  return {speed_figure(outcomes), bytes_figure(outcomes), gain_figure(outcomes),
          tokens_figure(outcomes), loss_figure(outcomes)};
}

std::string contents_page(const Outcomes& outcomes, const ReportFacts& facts) {
  std::string page = fmt::format(
      "# Lab report, {}\n\n- machine: {}\n- commit: {}\n- command: `{}`\n- size: {}\n{}- {}\n\n",
      facts.date, facts.machine, facts.commit, facts.command, facts.size,
      strangers(outcomes, facts), counts_of(outcomes, facts));
  page +=
      "| Page | |\n|---|---|\n"
      "| [targets](targets.md) | what was wanted, and whether it came true |\n"
      "| [bandwidth](bandwidth.md) | a pipeline over links from fast to slow |\n"
      "| [end-to-end](end-to-end.md) | activations and gradients encoded |\n"
      "| [optimus-cc](optimus-cc.md) | its measures, one after the other |\n"
      "| [data-parallel](data-parallel.md) | against PyTorch's DDP |\n"
      "| [pays](pays.md) | does it pay? every case in which it loses |\n"
      "| [honesty](honesty.md) | our meter against the kernel's, predicted against measured |\n"
      "| [raw](raw/) | every run's outcome as JSON: all numbers here are made from these |\n"
      "| [commands.txt](commands.txt) | what makes the data, and every command of every run |\n"
      "| [figures](figures/) | drawings, with their data and gnuplot scripts |\n\n";
  page +=
      "**Measured** is what a clock, the program's meter or the kernel's counters said. "
      "**Composed** "
      "is worked out of measured numbers, and the page says how. **Predicted** is what a model of "
      "schedule and network says.\n\n" +
      how_to_read();
  page += "## Runs that failed\n\n";
  std::string failures;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.failure.empty()) {
      failures +=
          fmt::format("- {}: {}\n", described(outcome.trial), printable(outcome.failure, 400));
    }
  }
  page += failures.empty() ? "None.\n\n" : failures + "\n";
  return page + notes_section(outcomes);
}

std::string summary_page(const Outcomes& outcomes, const ReportFacts& facts, const Drawn& drawn,
                         const std::string& prefix) {
  std::string page = fmt::format(
      "# Results\n\n{}, {}; commit {}. All numbers, commands and raw data: [{}]({}README.md).\n\n",
      facts.date, facts.machine, facts.commit, facts.date, prefix);
  if (!is_complete(outcomes, facts))
    page += fmt::format("Not all of it was measured: {}.\n\n", counts_of(outcomes, facts));
  page += setting_text(outcomes) + summary_figures(drawn, prefix);
  page +=
      "## Against PyTorch's DDP\n\nTokens a second at each rate; MB that all hosts send in a step "
      "at the slowest of them, headers included (DDP: measured, Laconic: composed); loss after "
      "equally many steps. In brackets "
      "the least and the most of n "
      "rounds.\n\n";
  page += peers_table(outcomes);
  page += "## Where compression does not help\n\n" + losing_summary(outcomes);
  return page + fmt::format("[Does it pay?]({}pays.md) has every case. ", prefix) +
         targets_line(outcomes, prefix);
}

}  // namespace laconic
