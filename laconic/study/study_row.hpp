// study/study_row.hpp — the result of one trial of a study: a line of outcomes.jsonl.
//
// A row has every number that can be told of an outcome, not only those that the file asks for, so
// that pages and rules can be made anew from lines alone (study/study_measure.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "laconic/study/study_trials.hpp"

namespace laconic {

// What an evaluation said, and after how many seconds of steps.
struct CurvePoint {
  std::int64_t step = 0;
  double seconds = 0;
  double loss = 0;
  bool operator==(const CurvePoint&) const = default;
};

struct StudyRow {
  std::string id, part;
  std::map<std::string, std::string> settings;  // by axis
  int round = 1;
  std::int64_t seed = 0;
  std::string failure;  // empty: it went well
  std::map<std::string, double> measures;
  std::vector<CurvePoint> curve;  // in the order of steps; losses that are not finite are left out
  std::string commit, machine, began;
  std::vector<std::string> command;
  bool operator==(const StudyRow&) const = default;
};

StudyRow row_of(const StudyTrial& planned, const Outcome& outcome);

std::string to_json_line(const StudyRow& row);  // without a newline
// Throws FileError with the number of the line.
std::vector<StudyRow> parse_rows(const std::string& text, const std::string& path);

struct Average {
  double mean = 0, deviation = 0;  // of the sample; 0 for one value
  double least = 0, most = 0;
  std::size_t count = 0;
};
// Leaves out what is not finite.
Average average_of(const std::vector<double>& values);
std::string to_text(double value, const MeasureSpec& measure);  // "0.812"
// "0.812 ± 0.004 (n 3)"; or "0.812 (0.808–0.817, n 3)" where ranges are shown.
std::string to_text(const Average& average, const MeasureSpec& measure);

}  // namespace laconic
