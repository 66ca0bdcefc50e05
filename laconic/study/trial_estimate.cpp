#include "laconic/study/trial_estimate.hpp"

#include <algorithm>
#include <cstdlib>

#include "laconic/lab/lab_spec.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

// How many times fewer bytes, roughly.
double shrinkage(const std::string& codec) {
  if (codec.starts_with("quantise:bits=")) return 32 / (std::atof(codec.c_str() + 14) + 0.5);
  if (codec.starts_with("half")) return 2;
  if (codec.starts_with("huffman")) return 2.5;
  if (codec.starts_with("sign")) return 30;
  return codec.starts_with("low_rank") ? 4 : 1;
}

std::string value_of(const Trial& trial, const std::string& key, const std::string& otherwise) {
  const auto found = trial.set.find(key);
  return found != trial.set.end() ? found->second : otherwise;
}

int number_of(const Trial& trial, const std::string& key) {
  return std::atoi(value_of(trial, key, "1").c_str());
}

constexpr double kReplicasParameters = 13.8e6;

// Megabits that pass the busiest link of a step one after the other.
double replica_megabits(const Trial& trial, double parameters) {
  const double whole =
      32e-6 * parameters * 2 * (1 - 1.0 / std::max(2, number_of(trial, "mesh.dp")));
  if (value_of(trial, "dp.gradient.method", "") == "power_sgd" || trial.preset == "optimus-cc" ||
      value_of(trial, "hook", "") == "powersgd")
    return whole / 10;
  if (value_of(trial, "hook", "") == "fp16") return whole / 2;
  const char* usual = trial.preset == "ac-sgd" ? "quantise:bits=4" : "raw";
  return whole / shrinkage(value_of(trial, "dp.gradient.codec", usual));
}

double boundary_megabits(const Trial& trial) {
  const bool is_encoded = trial.preset == "ac-sgd" || trial.preset == "rotated";
  const double message = 32e-6 * 128 * 256 * number_of(trial, "train.microbatch");
  const double forward =
      shrinkage(value_of(trial, "pp.activation.codec", is_encoded ? "quantise:bits=4" : "raw"));
  const double backward =
      shrinkage(value_of(trial, "pp.gradient.codec", is_encoded ? "quantise:bits=6" : "raw"));
  const int ways = 8 + number_of(trial, "mesh.pp") - 1;  // microbatches, and to fill the pipeline
  return ways * message * (1 / forward + 1 / backward);
}

double step_megabits(const Trial& trial) {
  if (trial.program == Program::ddp || trial.model == "replicas")
    return replica_megabits(trial, kReplicasParameters) * (trial.program == Program::ddp ? 1.5 : 1);
  const double sums = number_of(trial, "mesh.dp") > 1 ? replica_megabits(trial, 2.2e6) : 0;
  return boundary_megabits(trial) + sums;
}

double computing_seconds(const Trial& trial) {
  if (trial.model == kQualityModel) return 1.2;
  if (trial.model == kLowRankModel) return 0.15;
  return trial.model == "replicas" ? 0.9 : 0.2 + 1.2 * number_of(trial, "train.batch") / 32;
}

double travelling_seconds(const Trial& trial, double megabits) {
  const auto rate = static_cast<double>(parse_rate(trial.rate).value_or(0));
  return rate > 0 ? megabits * 1e6 / (0.956 * rate) : 0;
}

// Measured by estimated seconds, over the trials of a report.
constexpr double kTaken = 0.8;

}  // namespace

double estimated_step_seconds(const Trial& trial) {
  return computing_seconds(trial) + travelling_seconds(trial, step_megabits(trial));
}

double estimated_seconds(const Trial& trial) {
  double seconds = 3 + 0.35 * trial.hosts + (needs_preflight(trial) ? 3 : 0);
  // Python takes longer to start, and DDP then sends the whole model, twice over its first link.
  if (trial.program == Program::ddp)
    seconds += 5 + travelling_seconds(trial, 2 * 32e-6 * kReplicasParameters);
  const auto steps = static_cast<double>(trial.warmup + trial.steps);
  return kTaken * (seconds + steps * estimated_step_seconds(trial));
}

double estimated_seconds(const std::vector<Trial>& trials) {
  double seconds = 0;
  for (const Trial& trial : trials) seconds += estimated_seconds(trial);
  return seconds;
}

}  // namespace laconic
