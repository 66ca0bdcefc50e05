#include "laconic/train/guarding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/train/policy.hpp"

namespace laconic {

namespace {

// JSON has no infinity.
double told_norm(double square) {
  const double norm = std::sqrt(square);
  return std::isfinite(norm) ? std::min(norm, kBeyond) : kBeyond;
}

// As configured, without those that lose nothing.
std::vector<CodecSpec> lossy_codecs(const RunConfig& config, Traffic traffic) {
  std::vector<CodecSpec> codecs;
  switch (traffic) {
    case Traffic::pp_activation: codecs = {parse_codec(config.pp_activation.codec)}; break;
    case Traffic::pp_gradient: codecs = {parse_codec(config.pp_gradient.codec)}; break;
    case Traffic::embedding_tied: codecs = {parse_codec(config.embedding_tied.codec)}; break;
    default: {
      const GradientPolicy policy = policy_of(config);
      codecs = {policy.up, policy.down};
    }
  }
  std::erase(codecs, CodecSpec(Raw{}));
  return codecs;
}

// Codecs compare by what they spend on some matrix.
std::uint64_t bytes_spent(const CodecSpec& codec) {
  return max_payload_bytes(codec, {Dtype::f32, {1024, 64}});
}

}  // namespace

CodecOverride rung_above(const RunConfig& config, Traffic traffic, const CodecOverride& now) {
  const std::vector<CodecSpec> codecs =
      now.codec ? std::vector{*now.codec} : lossy_codecs(config, traffic);
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
  return steering.guard != "off" && !parts_.world.is_alone() && !parts_.judge.is_waiting() &&
         step % steering.every == 0;
}

void Guarding::look(bool looks) {
  parts_.pipeline.measure_fidelity(looks);
  parts_.rule.measure_fidelity(looks);
}

void Guarding::before_step(const StepPlan& plan, const TrainState& state) {
  const std::int64_t step = state.step + 1, every = parts_.config.steering.shadow;
  if (every > 0 && step % every == 0) {
    shadow_ = shadow_step(plan, parts_.gpt, parts_.pipeline, parts_.rule, state);
    // What is still queued would be counted, and waited for, in the step itself.
    if (!parts_.world.is_alone()) parts_.world.engine().flush();
  }
  is_looking_ = is_due(step);
  if (is_looking_) look(true);
}

void Guarding::before_update(const Measured& measured) {
  if (shadow_ && !shadow_->measured.is_skipped)
    compared_ = compare(parts_.world, parts_.gpt, *shadow_, measured);
}

void Guarding::after_step(const StepReport& report) {
  if (is_looking_) {
    look(false);
    judge_looks(report.step);
  }
  if (!std::exchange(shadow_, std::nullopt)) return;
  if (compared_)
    tell_shadow();
  else
    parts_.reports.note(
        report.step,
        fmt::format("guard: shadow at step {}: not finite, and not compared", report.step));
  compared_.reset();
}

// Every rank adds the same numbers in the same order.
std::map<Traffic, Look> Guarding::gather_looks() {
  std::vector<Fidelity> mine(kTrafficClasses);
  for (const auto& seen : {parts_.pipeline.fidelity(), parts_.rule.fidelity()})
    for (const auto& [traffic, fidelity] : seen)
      mine[static_cast<std::size_t>(traffic)] += fidelity;
  std::map<Traffic, Look> looks;
  for (const Bytes& bytes : parts_.world.gather(as_bytes(std::span<const Fidelity>(mine))))
    for (std::size_t t = 0; t < mine.size(); ++t) {
      const auto seen = get<Fidelity>(bytes, t * sizeof(Fidelity));
      if (seen.messages > 0) looks[static_cast<Traffic>(t)].seen += seen;
    }
  for (auto& [traffic, look] : looks)
    look.next = rung_above(parts_.config, traffic, parts_.steering.treatment_of(traffic));
  return looks;
}

// All ranks have the same numbers, but a processor that rounds in another way may be on the other
// side of a threshold with them.
SteeringState Guarding::as_first_judged(const std::vector<Alarm>& alarms) {
  return parse_steering(parts_.world.first_decides([&] {
    SteeringState mine{.treatments = {}, .guard = state_};
    for (const Alarm& alarm : alarms)
      if (alarm.is_followed) mine.treatments[alarm.traffic] = alarm.proposed;
    return to_json(mine);
  }));
}

void Guarding::judge_looks(std::int64_t step) {
  const std::map<Traffic, Look> looks = gather_looks();
  const std::vector<Alarm> alarms =
      judge(guard_spec_of(parts_.config.steering), state_, step, looks);
  const SteeringState decided = as_first_judged(alarms);
  state_ = decided.guard;
  tell_looks(step, looks);
  for (const auto& [traffic, treatment] : decided.treatments)
    parts_.steering.treat(traffic, treatment);
  for (const Alarm& alarm : alarms) {
    parts_.reports.note(step, to_text(alarm));
    alarms_.push_back(alarm);
  }
  parts_.steering.set_guard(state_);
}

void Guarding::tell_looks(std::int64_t step, const std::map<Traffic, Look>& looks) {
  Readings readings;
  for (const auto& [traffic, look] : looks) {
    const GuardReading now = reading_of(look.seen), drift = state_.at(traffic).drift();
    readings.push_back({std::string(name_of(traffic)),
                        {{"cosine", now.cosine},
                         {"relative_error", now.relative_error},
                         {"residual_ratio", now.residual_ratio},
                         {"residual_norm", told_norm(look.seen.residual)},
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
