#include "laconic/study/study_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/json.hpp"
#include "laconic/study/statistics.hpp"
#include "laconic/study/study_measure.hpp"

namespace laconic {

namespace {

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
  if (const auto curve = json.find("curve"); curve != json.end())
    for (const nlohmann::json& point : *curve)
      row.curve.push_back({.step = point.at(0),
                           .seconds = point.at(1).get<double>(),
                           .loss = point.at(2).get<double>()});
  return row;
}

nlohmann::ordered_json json_of(const std::vector<CurvePoint>& curve) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const CurvePoint& point : curve) points.push_back({point.step, point.seconds, point.loss});
  return points;
}

}  // namespace

StudyRow row_of(const StudyTrial& planned, const Outcome& outcome) {
  return {.id = id_of(planned.trial),
          .part = planned.trial.part,
          .settings = planned.settings,
          .round = planned.trial.round,
          .seed = planned.seed,
          .failure = outcome.failure,
          .measures = measures_of(outcome),
          .curve = curve_of(outcome),
          .commit = outcome.commit,
          .machine = outcome.machine,
          .began = outcome.began,
          .command = outcome.command};
}

std::string to_json_line(const StudyRow& row) {
  nlohmann::ordered_json json = {
      {"trial", row.id},          {"part", row.part},      {"settings", row.settings},
      {"round", row.round},       {"seed", row.seed},      {"failure", row.failure},
      {"measures", row.measures}, {"commit", row.commit},  {"machine", row.machine},
      {"began", row.began},       {"command", row.command}};
  if (!row.curve.empty()) json["curve"] = json_of(row.curve);
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
  average.least = average.most = average.mean;
  for (const double value : values)
    if (std::isfinite(value)) {
      squares += (value - average.mean) * (value - average.mean);
      average.least = std::min(average.least, value);
      average.most = std::max(average.most, value);
    }
  if (average.count > 1) average.deviation = std::sqrt(squares / (count - 1));
  return average;
}

std::string to_text(double value, const MeasureSpec& measure) {
  const double shown = value * measure.scale;
  return number_text(shown,
                     measure.figures > 0 ? digits_for(shown, measure.figures) : measure.digits);
}

std::string to_text(const Average& average, const MeasureSpec& measure) {
  if (average.count == 0) return "–";
  const std::string unit = measure.unit.empty() ? "" : " " + measure.unit;
  const std::string mean = to_text(average.mean, measure);
  if (average.count == 1) return fmt::format("{}{} (n 1)", mean, unit);
  // As many digits as the mean has.
  const int digits = measure.figures > 0 ? digits_for(average.mean * measure.scale, measure.figures)
                                         : measure.digits;
  const auto number = [&](double value) { return number_text(value * measure.scale, digits); };
  if (measure.has_range)
    return fmt::format("{}{} ({}–{}, n {})", mean, unit, number(average.least),
                       number(average.most), average.count);
  return fmt::format("{} ± {}{} (n {})", mean, number(average.deviation), unit, average.count);
}

}  // namespace laconic
