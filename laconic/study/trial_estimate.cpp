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

// How many times fewer bytes of gradients, roughly, by presets that say nothing else of them; of
// local updates in the long run.
double shrinkage_by(const std::string& preset) {
  if (preset == "slow-network") return 33;
  if (preset == "replicas-20mbit") return 64;
  return preset == "replicas-5mbit" ? 220 : 1;
}

// Megabits that pass the busiest link of a step one after the other.
double replica_megabits(const Trial& trial, double parameters) {
  const double whole =
      32e-6 * parameters * 2 * (1 - 1.0 / std::max(2, number_of(trial, "mesh.dp")));
  if (value_of(trial, "dp.gradient.method", "") == "power_sgd" || trial.preset == "optimus-cc" ||
      value_of(trial, "hook", "") == "powersgd")
    return whole / 10;
  if (value_of(trial, "hook", "") == "fp16") return whole / 2;
  const char* usual = trial.preset == "ac-sgd" ? "quantise:bits=4" : "raw";
  return whole / shrinkage_by(trial.preset) /
         shrinkage(value_of(trial, "dp.gradient.codec", usual));
}

double key_of(const StudyModel& model, const char* key) {
  const auto found = model.set.find(key);
  return found == model.set.end() ? 0 : std::atof(found->second.c_str());
}

double boundary_megabits(const Trial& trial, const StudyModel& model) {
  const bool is_encoded =
      trial.preset == "ac-sgd" || trial.preset == "rotated" || trial.preset == "pipeline-20mbit";
  const double message = 32e-6 * key_of(model, "model.context") * key_of(model, "model.width") *
                         number_of(trial, "train.microbatch");
  const double forward =
      shrinkage(value_of(trial, "pp.activation.codec", is_encoded ? "quantise:bits=4" : "raw"));
  const double backward =
      shrinkage(value_of(trial, "pp.gradient.codec", is_encoded ? "quantise:bits=6" : "raw"));
  const int ways = 8 + number_of(trial, "mesh.pp") - 1;  // microbatches, and to fill the pipeline
  return ways * message * (1 / forward + 1 / backward);
}

double step_megabits(const Trial& trial, const StudyModel& model) {
  if (trial.program == Program::ddp) return 1.5 * replica_megabits(trial, model.summed);
  if (number_of(trial, "mesh.pp") == 1) return replica_megabits(trial, model.summed);
  const double sums = number_of(trial, "mesh.dp") > 1 ? replica_megabits(trial, model.summed) : 0;
  return boundary_megabits(trial, model) + sums;
}

double travelling_seconds(const Trial& trial, double megabits) {
  const auto rate = static_cast<double>(parse_rate(trial.rate).value_or(0));
  return rate > 0 ? megabits * 1e6 / (0.956 * rate) : 0;
}

// Measured by estimated seconds, over the trials of a report.
constexpr double kTaken = 0.8;

}  // namespace

double estimated_step_seconds(const Trial& trial, const StudyModel& model) {
  const double computing =
      model.step_seconds + model.sample_seconds * number_of(trial, "train.batch");
  return computing + travelling_seconds(trial, step_megabits(trial, model));
}

double estimated_seconds(const Trial& trial, const std::vector<StudyModel>& models) {
  static const StudyModel unknown;
  const StudyModel* found = find_model(models, trial.model);
  const StudyModel& model = found != nullptr ? *found : unknown;
  double seconds = 3 + 0.35 * trial.hosts + (needs_preflight(trial.preset, trial.set) ? 3 : 0);
  // Python takes longer to start, and DDP then sends the whole model, twice over its first link.
  if (trial.program == Program::ddp)
    seconds += 5 + travelling_seconds(trial, 2 * 32e-6 * model.summed);
  const auto steps = static_cast<double>(trial.warmup + trial.steps);
  return kTaken * (seconds + steps * estimated_step_seconds(trial, model));
}

double estimated_seconds(const std::vector<Trial>& trials, const std::vector<StudyModel>& models) {
  double seconds = 0;
  for (const Trial& trial : trials) seconds += estimated_seconds(trial, models);
  return seconds;
}

}  // namespace laconic
