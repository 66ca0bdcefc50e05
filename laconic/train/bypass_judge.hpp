// train/bypass_judge.hpp — steering.bypass = "auto": measures some steps, and decides once.
//
// The first step of a run is not counted (memory is touched, caches fill), nor are
// steps in which sums are exact anyway (dp.gradient.warmup). Then steering.after
// steps are, all ranks tell what they spent, rank 0 answers for every class that is
// encoded (train/bypass.hpp), and all do as it says. A checkpoint says that it has
// been decided: a run that goes on keeps to it.
//
// With a delta memory most messages of the first epoch are first visits, which are
// longer than what comes later. So their length is not what was measured but what
// the codec makes of a difference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/engine/meter.hpp"
#include "laconic/train/bypass.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/steering.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

// Whether messages of the class lose something by their policy on this mesh.
bool is_encoded(Traffic traffic, const RunConfig& config);

class BypassJudge {
 public:
  // Requires: all of these outlive it.
  BypassJudge(const RunConfig& config, const GptShape& shape, World& world, const LinkFacts& link,
              Steering& steering, std::int64_t first_step);

  // After `step` steps in all; `spent` by this rank in the last one. Collective. Returns what was
  // decided, if anything was: a line for every class.
  std::vector<std::string> step_done(std::int64_t step, const MeterReading& spent);

 private:
  void add(const MeterReading& spent);
  std::vector<std::string> decide();
  BypassQuestion question(Traffic traffic, const std::vector<Bytes>& costs,
                          double background_cost) const;
  ClassCosts costs_of(Traffic traffic) const;

  const RunConfig& config_;
  const GptShape& shape_;
  World& world_;
  const LinkFacts link_;
  Steering& steering_;
  std::int64_t begin_ = 0;  // steps done before the first that counts
  std::int64_t end_ = 0;
  bool is_waiting_ = false;  // something can still be decided
  std::map<Traffic, Count> counts_;
  std::map<Traffic, Times> times_;
};

}  // namespace laconic
