// steer/guarding.hpp — the guard in a run: which steps are looked at, what is told, what follows.
//
// Every steering.every steps all senders measure what receivers get of their messages; what they
// found is gathered, added in the order of ranks and judged (steer/guard.hpp). Every rank judges,
// to tell of it; what counts, and with "fallback" is done before the next step
// (steer/steering.hpp), is what rank 0 came to. As long as a bypass is being measured nobody
// measures, since that takes time. Every steering.shadow steps the gradient is compared with that
// of a shadow step (steer/shadow.hpp). Neither changes what a step computes.
//
//   before_step ─► train_step: ... before_update ... ─► after_step
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/report/tensorboard.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/steer/bypass_judge.hpp"
#include "laconic/steer/guard.hpp"
#include "laconic/steer/shadow.hpp"
#include "laconic/steer/steering.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// What a class would be sent by if it must be better than now: the next rung above all codecs that
// it has (sums may have one for each way) that can be. Pure.
CodecOverride rung_above(const RunConfig& config, Traffic traffic, const CodecOverride& now);

// Named numbers, by what they are of: {"pp.activation", {{"cosine", 0.98}}}.
using Readings = std::vector<std::pair<std::string, std::vector<Scalar>>>;

// Where the guard tells what it sees.
struct GuardReports {
  std::function<void(const std::string& text)> line;                     // to people
  std::function<void(std::int64_t step, const std::string& text)> note;  // and to the log
  std::function<void(std::int64_t step, const Readings& readings)> readings;
};

// What the guard saw in a run.
struct GuardSummary {
  GuardState classes;                  // that were looked at
  std::vector<Alarm> alarms;           // of this run
  std::optional<ShadowReport> shadow;  // the last
  double worst_shadow_cosine = 1;
  bool is_empty() const { return classes.empty() && !shadow; }
};

class Guarding {
 public:
  // What a run is made of. Requires: all of it outlives the guarding.
  struct Parts {
    const RunConfig& config;
    World& world;
    const Weights& weights;
    const LinkRegistry& links;
    Steering& steering;
    const BypassJudge& judge;
    GuardReports reports;
  };
  explicit Guarding(const Parts& parts) : parts_(parts), state_(parts.steering.state().guard) {}

  // Whether senders measure in this step: then nothing of the steps around it may be under way.
  bool is_due(std::int64_t step) const;

  // All collective. `step` is counted from 1; `shadow` computes the shadow of the coming step.
  void before_step(std::int64_t step, const std::function<ShadowStep()>& shadow);
  void before_update(const Measured& measured);
  void after_step(std::int64_t step);

  // What this run saw so far; readings also of those that it goes on from.
  GuardSummary summary() const;

 private:
  void measure(bool is_on);
  std::map<Traffic, Measurement> gather_measurements();
  SteeringState as_first_judged(const std::vector<Alarm>& alarms);
  void judge_measurements(std::int64_t step);
  void tell_measurements(std::int64_t step, const std::map<Traffic, Measurement>& measurements);
  void tell_shadow();

  Parts parts_;
  GuardState state_;
  std::vector<Alarm> alarms_;
  bool is_measuring_ = false;             // at the step under way
  std::optional<ShadowStep> shadow_;      // of it
  std::optional<ShadowReport> compared_;  // with it
  std::optional<ShadowReport> last_shadow_;
  double worst_shadow_cosine_ = 1;
};

}  // namespace laconic
