// study/lab_report.hpp — the trials of `laconic lab report`, as plain data.
//
// A trial is named by part, rate, method and round, and pages find it by these names. To add a
// method, add a row to a table in lab_report_methods.cpp; docs/lab-report.md says what each part is
// for.
//
// Links that remember samples only pay from the second epoch on: their trials take one epoch, and
// the step between, to warm up, and the rows of the first epoch stay in the outcome.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/study/trial.hpp"

namespace laconic {

enum class Size : std::uint8_t {
  brief,    // "short": the fewest methods and steps that show something, in less than ten minutes
  full,     // hours
  quality,  // losses alone, of several seeds, without labs: hours
};
Size parse_report_size(const std::string& text);  // "short", "full", "quality"; throws ConfigError

// Lists trials in the order in which they run: by part, round, rate, method.
// Rounds of a part thus lie as far apart as possible, since a machine is not alike at all times.
std::vector<Trial> lab_report_trials(Size size);

// The names of all parts.
std::vector<std::string> parts_of(const std::vector<Trial>& trials);

// Some of them; what is empty leaves all.
struct TrialFilter {
  std::vector<std::string> parts;
  std::vector<std::string> rates;
  std::string method;  // somewhere in its name, whatever the case of its letters
};
// Throws ConfigError that names the nearest for a part or rate that is none, and when nothing is
// left.
std::vector<Trial> chosen(const std::vector<Trial>& trials, const TrialFilter& filter);

// One line for each trial and a total, with how long they may take, for --list.
std::string to_text(const std::vector<Trial>& trials);

}  // namespace laconic
