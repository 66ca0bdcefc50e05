// study/comparison.hpp — runs side by side, from their own files: what `laconic compare` shows.
//
// Two runs can be compared at a step, after a time, or by when they reach a loss; each answers
// another question, so all three are given. Seconds are those of steps alone: evaluations,
// checkpoints and the start are not in them. All but read_compared_run() is pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/study/plot.hpp"
#include "laconic/study/run_files.hpp"

namespace laconic {

inline constexpr int kSmoothedSteps = 5;  // a loss is the mean of so many logged steps

struct ComparedRun {
  std::string folder;
  RunConfig config;
  RunLog log;  // at least one step
};

// Reads FOLDER/config.toml and FOLDER/log.jsonl. Throws ConfigError or FileError with the folder
// in the message.
ComparedRun read_compared_run(const std::string& folder);

// One run of a comparison. What cannot be said of it is absent.
struct RunColumn {
  std::string name;  // the folder's last part, or all of it where runs would be called alike
  std::string folder;
  std::string mesh;        // "pp 2 x dp 4"
  std::string network;     // "rate=50mbit"; empty: as it is
  std::int64_t steps = 0;  // the last in the log
  bool has_every_step = false;
  double seconds = 0;  // in steps; where the log skips some, those are taken to be like the next
  double tokens_per_second = 0;
  double wire_bytes_per_step = 0;  // sent by rank 0; 0: one rank
  double exposed_share = 0;        // of the time in steps, in which rank 0 waited for others
  double loss_at_step = 0, loss_at_seconds = 0;
  std::optional<double> seconds_to_loss;
  std::optional<double> validation_loss;  // at the comparison's validation_step
  Curve by_seconds, by_steps;             // smoothed losses
  std::vector<std::string> differences;   // of the configuration, from the first run's
};

struct Comparison {
  std::vector<RunColumn> runs;
  std::int64_t step = 0;             // the last that all runs have
  double seconds = 0;                // that all runs have
  double loss = 0;                   // that all runs have reached
  std::int64_t validation_step = 0;  // the last at which all were evaluated; 0: none
  std::vector<std::string> notes;    // what makes the numbers less comparable than they look
};

// Requires: at least two runs, at most kMostCurves.
Comparison compare_runs(const std::vector<ComparedRun>& runs);

std::string to_text(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);
// Losses over seconds, or over steps.
Figure figure_of(const Comparison& comparison, bool over_steps);

}  // namespace laconic
