#include "laconic/study/report_markdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

std::string cell_text(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '|') escaped += '\\';
    escaped += letter == '\n' ? ' ' : letter;
  }
  return escaped;
}

std::string row_text(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell_text(cell) + " |";
  return line + "\n";
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "a batch of 32 in microbatches of 4 on 4 ranks"
std::string batch_text(const Outcome& outcome) {
  const RunShape shape = shape_of(outcome);
  std::string words = shape.batch > 0 ? fmt::format("a batch of {:g}", shape.batch) : "";
  if (shape.batch > 0 && shape.microbatch > 0)
    words += fmt::format(" in microbatches of {:g}", shape.microbatch);
  words += fmt::format("{}{} ranks", words.empty() ? "" : " on ", outcome.trial.hosts);
  if (shape.batch > 0 && outcome.trial.model == "replicas")
    words += fmt::format(" (a rank's share of the batch is {:g} samples)", shape.batch / shape.dp);
  return words;
}

bool has_memory(const std::vector<Case>& cases, const std::string& method) {
  return std::any_of(cases.begin(), cases.end(), [&](const Case& one) {
    return one.method == method && laconic::has_memory(one.rounds.front().trial);
  });
}

}  // namespace

std::string markdown_table(const std::vector<Column>& columns,
                           const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> titles;
  std::string rule = "|";
  for (const Column& column : columns) {
    titles.push_back(column.title);
    rule += column.align == Align::left ? "---|" : "--:|";
  }
  std::string table = row_text(titles) + rule + "\n";
  for (const auto& row : rows) {
    LACONIC_ASSERT(row.size() == columns.size(),
                   fmt::format("{} cells for {} columns", row.size(), columns.size()));
    table += row_text(row);
  }
  return table + "\n";
}

std::string method_by_rate(const std::vector<Case>& cases, const CellOf& cell, bool has_epochs) {
  const std::vector<std::string> rates = rates_of(cases);
  std::vector<Column> columns = {{"", Align::left}};
  for (const std::string& rate : rates) columns.push_back({rate});
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& title, const std::string& method, Which which) {
    std::vector<std::string> row = {title};
    for (const std::string& rate : rates) {
      const Case* one = find_case(cases, method, rate);
      row.push_back(one ? cell(*one, which) : "not measured");
    }
    rows.push_back(std::move(row));
  };
  for (const std::string& method : methods_of(cases)) {
    add(method, method, Which::counted);
    if (has_epochs && has_memory(cases, method)) {
      add(method + ", first epoch", method, Which::first_epoch);
    }
  }
  return markdown_table(columns, rows);
}

std::string figure_text(const Drawn& drawn, const std::string& name, const std::string& caption,
                        const std::string& prefix) {
  const std::string path = prefix + "figures/" + name;
  if (contains(drawn.names, name)) {
    return fmt::format("![{}]({}.svg)\n\n{} ([PNG]({}.png), [data]({}.dat))\n\n", caption, path,
                       caption, path, path);
  }
  if (contains(drawn.has_data, name)) {
    return fmt::format("{}: not drawn, since {}; the [data]({}.dat) are there.\n\n", caption,
                       drawn.reason, path);
  }
  return fmt::format("{}: nothing to draw, the runs that it needs are missing.\n\n", caption);
}

std::string with_count(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string setting_text(const std::vector<Outcome>& outcomes,
                         const std::vector<std::string>& parts) {
  std::vector<std::pair<std::string, std::vector<std::string>>> models;  // with their batches
  std::map<std::string, std::string> descriptions;
  for (const Outcome& outcome : outcomes) {
    const Trial& trial = outcome.trial;
    if (!outcome.failure.empty() || trial.rate == "none") continue;
    if (!parts.empty() && !contains(parts, trial.part)) continue;
    auto same = std::find_if(models.begin(), models.end(),
                             [&](const auto& model) { return model.first == trial.model; });
    if (same == models.end()) same = models.insert(same, {trial.model, {}});
    descriptions.try_emplace(trial.model, outcome.model_about);
    const std::string batch = batch_text(outcome);
    if (!contains(same->second, batch)) same->second.push_back(batch);
  }
  if (models.empty()) return "";
  std::vector<std::string> settings;
  for (const auto& [model, batches] : models) {
    const std::string& description = descriptions.at(model);
    settings.push_back(fmt::format("{}{}", description.empty() ? "" : description + ", ",
                                   fmt::join(batches, " or ")));
  }
  return fmt::format(
      "Setting: {}; ranks have one thread each, in network namespaces of one machine, whose cores "
      "they share; links have no latency but that of queues.\n\n",
      fmt::join(settings, "; "));
}

std::string not_measured(const std::vector<Outcome>& outcomes, const std::string& part) {
  if (std::none_of(outcomes.begin(), outcomes.end(),
                   [&](const Outcome& one) { return one.trial.part == part; }))
    return fmt::format(
        "Nothing of part \"{}\" was run: a report of this size has none of it, or other parts were "
        "asked for.\n\n",
        part);
  return fmt::format("No run of part \"{}\" has ended well, so there are no numbers here.\n\n",
                     part);
}

}  // namespace laconic
