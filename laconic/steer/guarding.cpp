#include "laconic/steer/guarding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/policy/class_policy.hpp"

namespace laconic {

namespace {

// JSON has no infinity.
double told_norm(double square) {
  const double norm = std::sqrt(square);
  return std::isfinite(norm) ? std::min(norm, kBeyond) : kBeyond;
}

// Codecs compare by what they spend on some matrix.
std::uint64_t bytes_spent(const CodecSpec& codec) {
  return max_payload_bytes(codec, {Dtype::f32, {1024, 64}});
}

}  // namespace

CodecOverride rung_above(const RunConfig& config, Traffic traffic, const CodecOverride& now) {
  const std::vector<CodecSpec> codecs =
      now.codec ? std::vector{*now.codec} : lossy_codecs(class_policy(traffic, config).value());
  if (codecs.empty()) return {.is_bypassed = true, .codec = {}};  // power_sgd with exact factors
  const auto [least, most] = std::ranges::minmax(codecs, {}, bytes_spent);
  CodecOverride next = next_rung(least);
  while (!next.is_bypassed &&
         (bytes_spent(*next.codec) < bytes_spent(most) || !check(traffic, next, config).empty()))
    next = next_rung(*next.codec);
  return next;
}

bool Guarding::is_due(std::int64_t step) const {
  const SteeringSection& steering = parts_.config.steering;
  return steering.guard != GuardMode::off && !parts_.world.is_alone() &&
         !parts_.judge.is_waiting() && step % steering.every == 0;
}

void Guarding::measure(bool is_on) {
  parts_.links.measure_fidelity(is_on);
}

void Guarding::before_step(std::int64_t step, const std::function<ShadowStep()>& shadow) {
  const std::int64_t every = parts_.config.steering.shadow;
  if (every > 0 && step % every == 0) {
    shadow_ = shadow();
    // What is still queued would be counted, and waited for, in the step itself.
    if (!parts_.world.is_alone()) parts_.world.engine().flush();
  }
  is_measuring_ = is_due(step);
  if (is_measuring_) measure(true);
}

void Guarding::before_update(const Measured& measured) {
  if (shadow_ && !shadow_->measured.is_skipped)
    compared_ = compare(parts_.world, parts_.weights, *shadow_, measured);
}

void Guarding::after_step(std::int64_t step) {
  if (is_measuring_) {
    measure(false);
    judge_measurements(step);
  }
  if (!std::exchange(shadow_, std::nullopt)) return;
  if (compared_)
    tell_shadow();
  else
    parts_.reports.note(
        step, fmt::format("guard: shadow at step {}: not finite, and not compared", step));
  compared_.reset();
}

// Every rank adds the same numbers in the same order.
std::map<Traffic, Measurement> Guarding::gather_measurements() {
  std::vector<Fidelity> mine(kTrafficClasses);
  for (const auto& [traffic, fidelity] : parts_.links.fidelity())
    mine[static_cast<std::size_t>(traffic)] += fidelity;
  std::map<Traffic, Measurement> measurements;
  for (const Bytes& bytes : parts_.world.gather(as_bytes(std::span<const Fidelity>(mine))))
    for (std::size_t t = 0; t < mine.size(); ++t) {
      const auto fidelity = get<Fidelity>(bytes, t * sizeof(Fidelity));
      if (fidelity.messages > 0) measurements[static_cast<Traffic>(t)].fidelity += fidelity;
    }
  for (auto& [traffic, measurement] : measurements)
    measurement.next = rung_above(parts_.config, traffic, parts_.steering.override_of(traffic));
  return measurements;
}

// All ranks have the same numbers, but a processor that rounds in another way may be on the other
// side of a threshold with them.
SteeringState Guarding::as_first_judged(const std::vector<Alarm>& alarms) {
  return parse_steering(parts_.world.decide_on_rank_0([&] {
    SteeringState mine{.overrides = {}, .guard = state_};
    for (const Alarm& alarm : alarms)
      if (alarm.is_followed) mine.overrides[alarm.traffic] = alarm.proposed;
    return to_json(mine);
  }));
}

void Guarding::judge_measurements(std::int64_t step) {
  const std::map<Traffic, Measurement> measurements = gather_measurements();
  const std::vector<Alarm> alarms =
      judge(guard_spec_of(parts_.config.steering), state_, step, measurements);
  const SteeringState decided = as_first_judged(alarms);
  state_ = decided.guard;
  tell_measurements(step, measurements);
  for (const auto& [traffic, codec_override] : decided.overrides)
    parts_.steering.override_codec(traffic, codec_override);
  for (const Alarm& alarm : alarms) {
    parts_.reports.note(step, to_text(alarm));
    alarms_.push_back(alarm);
  }
  parts_.steering.set_guard(state_);
}

void Guarding::tell_measurements(std::int64_t step,
                                 const std::map<Traffic, Measurement>& measurements) {
  Readings readings;
  for (const auto& [traffic, measurement] : measurements) {
    const GuardReading now = reading_of(measurement.fidelity), drift = state_.at(traffic).drift();
    readings.push_back({std::string(name_of(traffic)),
                        {{"cosine", now.cosine},
                         {"relative_error", now.relative_error},
                         {"residual_ratio", now.residual_ratio},
                         {"residual_norm", told_norm(measurement.fidelity.residual)},
                         {"cosine_drift", drift.cosine},
                         {"relative_error_drift", drift.relative_error},
                         {"residual_ratio_drift", drift.residual_ratio}}});
  }
  parts_.reports.readings(step, readings);
}

void Guarding::tell_shadow() {
  last_shadow_ = *compared_;
  worst_shadow_cosine_ = std::min(worst_shadow_cosine_, compared_->cosine);
  parts_.reports.line(to_text(*compared_));
  parts_.reports.readings(compared_->step, {{"step",
                                             {{"cosine", compared_->cosine},
                                              {"norm_ratio", compared_->norm_ratio},
                                              {"loss_difference", compared_->loss_difference}}}});
}

GuardSummary Guarding::summary() const {
  return {.classes = state_,
          .alarms = alarms_,
          .shadow = last_shadow_,
          .worst_shadow_cosine = worst_shadow_cosine_};
}

}  // namespace laconic
