// steer/bypass_judge.hpp — steering.bypass = "auto": measures some steps, and decides once.
//
// Steps in which sums are exact anyway (dp.gradient.warmup) are not counted, nor is
// the first in which they are not (memory is touched, caches fill). Then
// steering.after steps are, all ranks tell what they spent, rank 0 answers for every class that is
// encoded (steer/bypass.hpp), and all do as it says. A checkpoint says that it has
// been decided: a run that goes on keeps to it.
//
// With a delta memory most messages of the first epoch are first visits, which are
// longer than what comes later. So their length is not what was measured but what
// the codec makes of a difference; of messages that travel raw by pp.gradient.when
// it is what it is.
//
// What one could get wrong: ranks that sum exactly (dp.gradient.stages) have bytes and no
// codec time. They say nothing of what encoding costs, and do not count.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "laconic/engine/meter.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/steer/bypass.hpp"
#include "laconic/steer/steering.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// The share of the messages of a class between stages, sent from place `pp`, that is encoded.
double encoded_share(const PipelinePlan& plan, Traffic traffic, int pp);

// What counts instead of what was measured: for tests, which must not depend on the clock.
using CostsOf = std::function<ClassCosts(Traffic, const ClassCosts& measured)>;

class BypassJudge {
 public:
  // What a run is made of. Requires: all of it outlives the judge.
  struct Parts {
    const RunConfig& config;
    const ModelSpec& spec;
    World& world;
    const PipelinePlan& plan;
    Steering& steering;
    LinkFacts link;
    int encoded = 0;  // so many first ranks of a pipeline encode sums
    CostsOf costs;    // may be empty
  };
  // `first_step`: how many steps the run had done before.
  BypassJudge(const Parts& parts, std::int64_t first_step);

  // Steps are being measured, or will be: who adds to their time waits.
  bool is_waiting() const { return is_waiting_; }
  // Why this run will not come to decide anything, though it should; empty: it will.
  const std::string& note() const { return note_; }

  // After `step` steps in all; `spent` by this rank in the last one. Collective. Returns what was
  // decided, if anything was: a line for every class.
  std::vector<std::string> step_done(std::int64_t step, const MeterReading& spent);

 private:
  void add(const MeterReading& spent);
  std::vector<std::string> decide();
  BypassQuestion question(Traffic traffic, const std::vector<Bytes>& costs,
                          double background_cost) const;
  bool is_encoded_here(Traffic traffic) const;
  double wire_bytes(Traffic traffic) const;
  ClassCosts costs_of(Traffic traffic) const;

  const Parts parts_;
  std::int64_t begin_ = 0;  // steps done before the first that counts
  std::int64_t end_ = 0;
  bool is_waiting_ = false;  // something will still be decided
  std::string note_;
  std::map<Traffic, Count> counts_;
  std::map<Traffic, Times> times_;
};

}  // namespace laconic
