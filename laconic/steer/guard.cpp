#include "laconic/steer/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kFirstLooks = 3;

double told(double ratio) {
  return std::isfinite(ratio) ? std::min(ratio, kBeyond) : kBeyond;
}

// --- the ladder

CodecSpec after(Quantise codec) {
  if (codec.grid == Grid::powers) codec.grid = Grid::tread;  // more powers only reach lower
  for (const int bits : {2, 3, 4, 6, 8})
    if (bits > codec.bits) {
      codec.bits = bits;
      return codec;
    }
  return Half{Dtype::bf16};
}

// --- one measurement

std::vector<Crossing> crossings(const GuardSpec& spec, const GuardReading& r) {
  std::vector<Crossing> all;
  if (r.cosine < spec.min_cosine)
    all.push_back({"cosine", "steering.min_cosine", r.cosine, spec.min_cosine, true});
  if (r.relative_error > spec.max_error)
    all.push_back({"relative error", "steering.max_error", r.relative_error, spec.max_error});
  if (r.residual_ratio > spec.max_residual)
    all.push_back({"residual ratio", "steering.max_residual", r.residual_ratio, spec.max_residual});
  return all;
}

GuardReading mean_with(const GuardReading& mean, std::int64_t count, const GuardReading& r) {
  const auto n = static_cast<double>(count);
  const auto with = [&](double a, double b) { return (a * n + b) / (n + 1); };
  return {with(mean.cosine, r.cosine), with(mean.relative_error, r.relative_error),
          with(mean.residual_ratio, r.residual_ratio)};
}

GuardReading worse(const GuardReading& a, const GuardReading& b) {
  return {std::min(a.cosine, b.cosine), std::max(a.relative_error, b.relative_error),
          std::max(a.residual_ratio, b.residual_ratio)};
}

void remember(ClassHistory& watch, std::int64_t step, const GuardReading& reading) {
  if (watch.measurements < kFirstLooks)
    watch.first = mean_with(watch.first, watch.measurements, reading);
  watch.worst = worse(watch.worst, reading);
  watch.last = reading;
  watch.step = step;
  ++watch.measurements;
}

// --- texts

std::string to_text(const Crossing& c) {
  return fmt::format("{} {:.3g} is {} {} = {:g}", c.what, c.value, c.is_below ? "below" : "above",
                     c.threshold, c.limit);
}

std::string way_of(const CodecOverride& codec_override) {
  return codec_override.is_bypassed ? "raw" : "by " + to_text(*codec_override.codec);
}

nlohmann::ordered_json json_of(const GuardReading& r) {
  return {{"cosine", r.cosine},
          {"relative_error", r.relative_error},
          {"residual_ratio", r.residual_ratio}};
}

GuardReading reading_from(const nlohmann::json& json) {
  return {json.at("cosine"), json.at("relative_error"), json.at("residual_ratio")};
}

Traffic class_of(const std::string& name) {
  if (const auto traffic = traffic_named(name)) return *traffic;
  throw ConfigError({{"steering", fmt::format("'{}' is no class of messages", printable(name))}});
}

}  // namespace

GuardSpec guard_spec_of(const SteeringSection& s) {
  return {.acts = s.guard == GuardMode::fallback,
          .min_cosine = s.min_cosine,
          .max_error = s.max_error,
          .max_residual = s.max_residual,
          .patience = s.patience};
}

GuardReading reading_of(const Fidelity& fidelity) {
  const double cosine = fidelity.cosine();
  return {std::isfinite(cosine) ? cosine : 0, told(fidelity.relative_error()),
          told(fidelity.residual_ratio())};
}

GuardReading ClassHistory::drift() const {
  return {last.cosine - first.cosine, last.relative_error - first.relative_error,
          last.residual_ratio - first.residual_ratio};
}

CodecOverride next_rung(const CodecSpec& now) {
  if (const auto* quantise = std::get_if<Quantise>(&now))
    return {.is_bypassed = false, .codec = after(*quantise)};
  if (const auto* sign = std::get_if<Sign>(&now))
    return {.is_bypassed = false, .codec = Quantise{.bits = 4, .block = sign->block}};
  return {.is_bypassed = true, .codec = {}};
}

std::vector<Alarm> judge(const GuardSpec& spec, GuardState& state, std::int64_t step,
                         const std::map<Traffic, Measurement>& measurements) {
  std::vector<Alarm> alarms;
  for (const auto& [traffic, measurement] : measurements) {
    if (measurement.fidelity.messages == 0) continue;
    const GuardReading reading = reading_of(measurement.fidelity);
    ClassHistory& watch = state[traffic];
    remember(watch, step, reading);
    std::vector<Crossing> crossed = crossings(spec, reading);
    watch.bad_in_a_row = crossed.empty() ? 0 : watch.bad_in_a_row + 1;
    if (crossed.empty() || watch.bad_in_a_row % spec.patience != 0) continue;
    alarms.push_back({.traffic = traffic,
                      .step = step,
                      .in_a_row = watch.bad_in_a_row,
                      .crossed = std::move(crossed),
                      .proposed = measurement.next,
                      .is_followed = spec.acts});
    if (spec.acts) watch.measurements = watch.bad_in_a_row = 0;
  }
  return alarms;
}

std::string to_text(const Alarm& a) {
  std::vector<std::string> crossed;
  for (const Crossing& c : a.crossed) crossed.push_back(to_text(c));
  const std::string then =
      a.is_followed
          ? fmt::format("from step {} on {}", a.step + 1, way_of(a.proposed))
          : fmt::format("steering.guard = \"fallback\" would send it {}", way_of(a.proposed));
  return fmt::format(
      "guard: step {}, {}: {} ({}); {}", a.step, name_of(a.traffic), join(crossed, ", "),
      a.in_a_row == 1 ? "1 measurement" : fmt::format("{} measurements in a row", a.in_a_row),
      then);
}

// The key "looks" is older than the word for it here: checkpoints have it.
std::string to_json(const GuardState& state) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [traffic, watch] : state)
    json[std::string(name_of(traffic))] = {
        {"looks", watch.measurements},   {"bad_in_a_row", watch.bad_in_a_row},
        {"first", json_of(watch.first)}, {"step", watch.step},
        {"last", json_of(watch.last)},   {"worst", json_of(watch.worst)}};
  return json.dump();
}

GuardState guard_state_from(const std::string& text) {
  try {
    GuardState state;
    const nlohmann::json all = nlohmann::json::parse(text);
    for (const auto& [name, json] : all.items())
      state[class_of(name)] = {.measurements = json.at("looks"),
                               .bad_in_a_row = json.at("bad_in_a_row"),
                               .first = reading_from(json.at("first")),
                               .step = json.at("step"),
                               .last = reading_from(json.at("last")),
                               .worst = reading_from(json.at("worst"))};
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError({{"steering", fmt::format("no state of a guard: {}", error.what())}});
  }
}

}  // namespace laconic
