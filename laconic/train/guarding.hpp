// train/guarding.hpp — the guard in a run: which steps are looked at, what is told, what follows.
//
// Every steering.every steps all senders look at what they send; what they saw is
// gathered, added in the order of ranks and judged (train/guard.hpp). Every rank judges, to tell
// of it; what counts, and with "fallback" is done before the next step
// (train/steering.hpp), is what rank 0 came to. As long as a bypass is being measured nobody looks,
// since looking takes time. Every steering.shadow steps the gradient is compared with that of a
// shadow step (train/shadow.hpp). Neither changes what a step computes.
//
//   before_step ─► train_step: ... before_update ... ─► after_step
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "laconic/config/run_config.hpp"
#include "laconic/train/bypass_judge.hpp"
#include "laconic/train/guard.hpp"
#include "laconic/train/reports.hpp"
#include "laconic/train/shadow.hpp"
#include "laconic/train/steering.hpp"
#include "laconic/train/step.hpp"
#include "laconic/train/summary.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

// What a class would be sent by if it must be better than now: the next rung above all codecs that
// it has (sums may have one for each way) that can be. Pure.
CodecOverride rung_above(const RunConfig& config, Traffic traffic, const CodecOverride& now);

class Guarding {
 public:
  // What a run is made of. Requires: all of it outlives the guarding.
  struct Parts {
    const RunConfig& config;
    World& world;
    const Gpt& gpt;
    Pipeline& pipeline;
    UpdateRule& rule;
    Steering& steering;
    const BypassJudge& judge;
    Reports& reports;
  };
  explicit Guarding(const Parts& parts) : parts_(parts), state_(parts.steering.state().guard) {}

  // All collective.
  void before_step(const StepPlan& plan, const TrainState& state);
  void before_update(const Measured& measured);
  void after_step(const StepReport& report);

  // Of this run so far; readings also of those that it goes on from.
  GuardSummary summary() const;

 private:
  bool is_due(std::int64_t step) const;
  void look(bool looks);
  std::map<Traffic, Look> gather_looks();
  SteeringState as_first_judged(const std::vector<Alarm>& alarms);
  void judge_looks(std::int64_t step);
  void tell_looks(std::int64_t step, const std::map<Traffic, Look>& looks);
  void tell_shadow();

  Parts parts_;
  GuardState state_;
  std::vector<Alarm> alarms_;
  bool is_looking_ = false;               // at the step under way
  std::optional<ShadowStep> shadow_;      // of it
  std::optional<ShadowReport> compared_;  // with it
  std::optional<ShadowReport> last_shadow_;
  double worst_shadow_cosine_ = 1;
};

}  // namespace laconic
