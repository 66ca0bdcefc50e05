#include "laconic/study/study_row.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/json.hpp"
#include "laconic/study/report_case.hpp"
#include "laconic/study/statistics.hpp"

namespace laconic {

namespace {

double median_over(const Outcome& outcome, double StepRow::*member) {
  std::vector<double> values;
  for (const StepRow& row : outcome.steps)
    if (row.step > outcome.trial.warmup) values.push_back(row.*member);
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : median_of(values);
}

void add_traffic(const Outcome& outcome, std::map<std::string, double>& measures) {
  const auto steps = static_cast<double>(outcome.steps.size());
  double all = 0;
  for (const ClassTotal& total : outcome.traffic) {
    if (!is_training(total)) continue;
    all += total.wire_bytes / steps;
    measures[total.traffic + ".sent_bytes"] += total.wire_bytes / steps;
    measures[total.traffic + ".raw_bytes"] += total.raw_bytes / steps;
    measures[total.traffic + ".codec_seconds"] += total.codec_seconds / steps;
    measures[total.traffic + ".exposed_seconds"] += total.exposed_seconds / steps;
  }
  measures["sent_bytes"] = all;
}

StudyRow study_row_in(const nlohmann::json& json) {
  StudyRow row{.id = json.at("trial"),
               .part = json.at("part"),
               .settings = json.at("settings"),
               .round = json.at("round"),
               .seed = json.at("seed"),
               .failure = json.at("failure"),
               .commit = json.at("commit"),
               .machine = json.at("machine"),
               .began = json.at("began"),
               .command = json.at("command")};
  for (const auto& [name, value] : json.at("measures").items())
    row.measures[name] =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  return row;
}

}  // namespace

std::map<std::string, double> measures_of(const Outcome& outcome) {
  std::map<std::string, double> measures;
  if (!outcome.failure.empty() || outcome.steps.empty()) return measures;
  measures = outcome.metrics;
  if (const auto loss = loss_at(outcome, outcome.steps.size())) measures["loss"] = *loss;
  if (outcome.validation_loss != 0) measures["validation_loss"] = outcome.validation_loss;
  measures["step_seconds"] = median_over(outcome, &StepRow::seconds);
  measures["exposed_seconds"] = median_over(outcome, &StepRow::exposed_seconds);
  measures["seconds"] = outcome.seconds;
  add_traffic(outcome, measures);
  return measures;
}

StudyRow row_of(const StudyTrial& planned, const Outcome& outcome) {
  return {.id = id_of(planned.trial),
          .part = planned.trial.part,
          .settings = planned.settings,
          .round = planned.trial.round,
          .seed = planned.seed,
          .failure = outcome.failure,
          .measures = measures_of(outcome),
          .commit = outcome.commit,
          .machine = outcome.machine,
          .began = outcome.began,
          .command = outcome.command};
}

std::string to_json_line(const StudyRow& row) {
  const nlohmann::ordered_json json = {
      {"trial", row.id},          {"part", row.part},      {"settings", row.settings},
      {"round", row.round},       {"seed", row.seed},      {"failure", row.failure},
      {"measures", row.measures}, {"commit", row.commit},  {"machine", row.machine},
      {"began", row.began},       {"command", row.command}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<StudyRow> parse_rows(const std::string& text, const std::string& path) {
  std::vector<StudyRow> rows;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    try {
      rows.push_back(study_row_in(parse_json(line, path)));
    } catch (const nlohmann::json::exception& error) {
      throw FileError(path, fmt::format("line {}", number), error.what(),
                      "remove it, and call the study again");
    }
  }
  return rows;
}

Average average_of(const std::vector<double>& values) {
  Average average;
  double sum = 0, squares = 0;
  for (const double value : values)
    if (std::isfinite(value)) {
      sum += value;
      ++average.count;
    }
  if (average.count == 0) return average;
  const auto count = static_cast<double>(average.count);
  average.mean = sum / count;
  for (const double value : values)
    if (std::isfinite(value)) squares += (value - average.mean) * (value - average.mean);
  if (average.count > 1) average.deviation = std::sqrt(squares / (count - 1));
  return average;
}

std::string to_text(const Average& average, const MeasureSpec& measure) {
  if (average.count == 0) return "–";
  const std::string unit = measure.unit.empty() ? "" : " " + measure.unit;
  const std::string mean = number_text(average.mean * measure.scale, measure.digits);
  if (average.count == 1) return fmt::format("{}{} (n 1)", mean, unit);
  return fmt::format("{} ± {}{} (n {})", mean,
                     number_text(average.deviation * measure.scale, measure.digits), unit,
                     average.count);
}

}  // namespace laconic
