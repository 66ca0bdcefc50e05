#include "laconic/study/study_measure.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <tuple>

#include "laconic/study/expression.hpp"
#include "laconic/study/statistics.hpp"
#include "laconic/study/study_fit.hpp"

namespace laconic {

namespace {

using Measures = std::map<std::string, double>;

constexpr std::size_t kLossSteps = 5;
constexpr double kHeader = 66;  // of a packet: Ethernet 14, IPv4 20, TCP with time stamps 32

// What the trial sets, or else what its command says (`--set key=value`, `--key value`), of which
// the last wins; 0: not known.
double number_of(const Outcome& outcome, const std::string& key, const std::string& peers_key) {
  std::string value;
  const std::vector<std::string>& words = outcome.command;
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "--set" && words[i + 1].starts_with(key + "="))
      value = words[i + 1].substr(key.size() + 1);
    else if (words[i] == "--" + peers_key)
      value = words[i + 1];
  for (const std::string& name : {key, peers_key})
    if (const auto set = outcome.trial.set.find(name); set != outcome.trial.set.end())
      value = set->second;
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

struct BatchShape {
  double batch = 0, microbatch = 0;  // 0: not known
  double replicas = 1;
};

BatchShape shape_of(const Outcome& outcome) {
  BatchShape shape{.batch = number_of(outcome, "train.batch", "batch"),
                   .microbatch = number_of(outcome, "train.microbatch", "microbatch")};
  shape.replicas = outcome.trial.program == Program::ddp
                       ? outcome.trial.hosts
                       : std::max(1.0, number_of(outcome, "mesh.dp", "dp"));
  return shape;
}

// Messages of training, not agreements between ranks and the pre-flight.
bool is_training(const ClassTotal& total) {
  return total.traffic != "control" && total.traffic != "preflight";
}

bool remembers_samples(const Trial& trial) {
  const auto memory = trial.set.find("pp.activation.memory");
  return memory != trial.set.end() ? memory->second == "delta"
                                   : trial.preset == "ac-sgd" || trial.preset == "pipeline-20mbit";
}

void add_of_a_step(const Outcome& outcome, const std::string& name, double StepRow::*what,
                   Measures& measures) {
  if (const auto value = of_a_step(outcome, what)) measures[name] = *value;
}

// Every replica goes through a shard of its own. A step with samples of two epochs is in neither.
void add_first_epoch(const Outcome& outcome, const BatchShape& shape, Measures& measures) {
  if (!remembers_samples(outcome.trial) || !(shape.batch > 0)) return;
  const double shard = std::floor(outcome.samples / shape.replicas);
  std::vector<double> seconds;
  for (const StepRow& row : outcome.steps)
    if (row.step > 1 && static_cast<double>(row.step) * shape.batch / shape.replicas <= shard)
      seconds.push_back(row.seconds);
  if (!seconds.empty()) measures["first_epoch_seconds"] = median_of(seconds);
}

void add_steps(const Outcome& outcome, Measures& measures) {
  add_of_a_step(outcome, "step_seconds", &StepRow::seconds, measures);
  if (outcome.trial.program == Program::laconic) {
    add_of_a_step(outcome, "exposed_seconds", &StepRow::exposed_seconds, measures);
    add_of_a_step(outcome, "first_rank_bytes", &StepRow::wire_bytes, measures);
  }
  const BatchShape shape = shape_of(outcome);
  if (const auto step = measures.find("step_seconds");
      shape.batch > 0 && step != measures.end() && step->second > 0)
    measures["samples_per_second"] = shape.batch / step->second;
  add_first_epoch(outcome, shape, measures);
  const double microbatches =
      shape.microbatch > 0 ? std::floor(shape.batch / shape.replicas / shape.microbatch) : 0;
  if (!outcome.computing_seconds.empty() && microbatches > 0)
    measures["computing_seconds"] = microbatches * mean_of(outcome.computing_seconds);
}

void add_codec(const ClassTotal& total, const std::string& of, double steps, Measures& measures) {
  measures[of + "decode_seconds"] += total.decode_seconds / steps;
  measures[of + "encode_seconds"] += (total.codec_seconds - total.decode_seconds) / steps;
}

void add_traffic(const Outcome& outcome, Measures& measures) {
  const auto steps = static_cast<double>(outcome.steps.size());
  if (outcome.traffic.empty()) return;
  const bool tells_apart =
      std::any_of(outcome.traffic.begin(), outcome.traffic.end(),
                  [](const ClassTotal& total) { return total.decode_seconds > 0; });
  for (const ClassTotal& total : outcome.traffic) {
    measures["codec_seconds"] += total.codec_seconds / steps;
    if (tells_apart) add_codec(total, "", steps, measures);
    if (!is_training(total)) continue;
    if (tells_apart) add_codec(total, total.traffic + ".", steps, measures);
    measures["messages"] += total.messages / steps;
    measures[total.traffic + ".messages"] += total.messages / steps;
    measures[total.traffic + ".active_seconds"] += total.active_seconds / steps;
    measures["sent_bytes"] += total.wire_bytes / steps;
    measures["raw_bytes"] += total.raw_bytes / steps;
    measures[total.traffic + ".sent_bytes"] += total.wire_bytes / steps;
    measures[total.traffic + ".raw_bytes"] += total.raw_bytes / steps;
    measures[total.traffic + ".codec_seconds"] += total.codec_seconds / steps;
    measures[total.traffic + ".exposed_seconds"] += total.exposed_seconds / steps;
    if (total.wire_bytes > 0)
      measures[total.traffic + ".shorter"] = total.raw_bytes / total.wire_bytes;
  }
}

// The peer's bytes are the kernel's of steps that count. Ours are composed: the meter's of these
// steps, times what the kernel counted for each byte of the meter over the whole run.
void add_interface(const Outcome& outcome, Measures& measures) {
  if (outcome.counted_sent_bytes > 0) measures["network_bytes"] = outcome.counted_sent_bytes;
  double metered = 0, trained = 0, first_rank = 0;
  for (const ClassTotal& total : outcome.traffic) {
    metered += total.wire_bytes;
    trained += is_training(total) ? total.wire_bytes : 0;
  }
  for (const StepRow& row : outcome.steps) first_rank += row.wire_bytes;
  const double kernels = outcome.interface_sent_bytes;
  if (!(metered > 0) || !(kernels > 0)) return;
  measures["meter_error"] = (kernels - kHeader * outcome.interface_packets) / metered - 1;
  if (const auto step = measures.find("first_rank_bytes"); first_rank > 0 && step != measures.end())
    measures["network_bytes"] = step->second * trained / first_rank * kernels / metered;
}

// In the steps up to that one. Evaluations are between them, and not counted.
double trained_seconds(const Outcome& outcome, std::int64_t step) {
  double seconds = 0;
  for (const StepRow& row : outcome.steps)
    if (row.step <= step) seconds += row.seconds;
  return seconds;
}

void add_loss(const Outcome& outcome, Measures& measures) {
  std::vector<double> losses;
  for (const StepRow& row : outcome.steps) losses.push_back(row.loss);
  if (losses.size() > kLossSteps)
    losses.erase(losses.begin(), losses.end() - static_cast<std::ptrdiff_t>(kLossSteps));
  if (const double mean = mean_of(losses); std::isfinite(mean)) measures["loss"] = mean;
  if (outcome.validation_loss != 0) measures["validation_loss"] = outcome.validation_loss;
}

using Settings = std::map<std::string, std::string>;
using RowIndex = std::map<std::tuple<std::string, Settings, int>, const StudyRow*>;

// The row of the same part and round whose settings are those of the first choice that fits the
// axes of this one; null where there is none.
const StudyRow* row_against(const StudyRow& row, const std::vector<Choice>& against,
                            const RowIndex& index) {
  for (const Choice& choice : against) {
    Settings settings = row.settings;
    bool has_axes = true;
    for (const auto& [axis, names] : choice) {
      has_axes = has_axes && settings.contains(axis);
      settings[axis] = names.front();
    }
    if (!has_axes) continue;
    const auto found = index.find({row.part, settings, row.round});
    return found == index.end() ? nullptr : found->second;
  }
  return nullptr;
}

constexpr std::string_view kValue = "value.";

std::optional<double> value_of_setting(const StudyFile& study, const StudyRow& row,
                                       const std::string& name) {
  const StudyAxis* axis = find_axis(study, name);
  const auto settings = row.settings.find(name);
  if (axis == nullptr || settings == row.settings.end()) return {};
  const Setting* setting = find_setting(*axis, settings->second);
  return setting == nullptr ? std::nullopt : setting->value;
}

constexpr std::string_view kAgainst = "against.";

}  // namespace

std::map<std::string, double> measures_of(const Outcome& outcome) {
  if (!outcome.failure.empty() || outcome.steps.empty()) return {};
  Measures measures = outcome.metrics;
  measures["seconds"] = outcome.seconds;
  measures["trained_seconds"] = trained_seconds(outcome, outcome.steps.back().step);
  measures["ranks"] = outcome.trial.hosts;
  add_loss(outcome, measures);
  add_steps(outcome, measures);
  add_traffic(outcome, measures);
  add_interface(outcome, measures);
  return measures;
}

std::vector<CurvePoint> curve_of(const Outcome& outcome) {
  std::vector<CurvePoint> curve;
  if (!outcome.failure.empty() || outcome.steps.empty()) return curve;
  std::vector<ValidationRow> all = outcome.validations;
  const std::int64_t last = outcome.steps.back().step;
  if (outcome.validation_loss != 0 && (all.empty() || all.back().step < last))
    all.push_back({last, outcome.validation_loss});
  for (const ValidationRow& row : all)
    if (std::isfinite(row.loss))
      curve.push_back({row.step, trained_seconds(outcome, row.step), row.loss});
  return curve;
}

std::optional<double> loss_after(const std::vector<CurvePoint>& curve, double seconds) {
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (curve[i].seconds < seconds) continue;
    if (curve[i].seconds == seconds) return curve[i].loss;
    if (i == 0) return {};
    const CurvePoint &from = curve[i - 1], &to = curve[i];
    const double share = (seconds - from.seconds) / (to.seconds - from.seconds);
    return from.loss + share * (to.loss - from.loss);
  }
  return {};
}

std::optional<double> value_in(const StudyFile& study, const StudyRow& row,
                               const std::string& measure) {
  if (!row.failure.empty()) return {};
  if (measure.starts_with(kValue))
    return value_of_setting(study, row, measure.substr(kValue.size()));
  const auto found = row.measures.find(measure);
  return found == row.measures.end() ? std::nullopt : std::optional(found->second);
}

void add_derived(const StudyFile& study, std::vector<StudyRow>& rows) {
  RowIndex index;
  for (const StudyRow& row : rows) index[{row.part, row.settings, row.round}] = &row;
  for (const MeasureSpec& measure : study.measures) {
    const std::string& expression = measure.is.empty() ? measure.after : measure.is;
    if (expression.empty()) continue;
    for (StudyRow& row : rows) {
      const StudyRow* other = row_against(row, measure.against, index);
      const ValueOf value_of = [&](const std::string& name) {
        if (!name.starts_with(kAgainst)) return value_in(study, row, name);
        return other == nullptr ? std::nullopt
                                : value_in(study, *other, name.substr(kAgainst.size()));
      };
      auto value = evaluate(expression, value_of);
      if (value && measure.is.empty()) value = loss_after(row.curve, *value);
      if (value) row.measures[measure.name] = *value;
    }
  }
  for (const FitSpec& spec : study.fits) fit(study, spec, rows);
}

}  // namespace laconic
