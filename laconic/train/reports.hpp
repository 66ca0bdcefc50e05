// train/reports.hpp — everything that is told about a run while it runs, to people and to files.
//
// Rank 0 speaks and writes; the others at most leave a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/engine/meter.hpp"
#include "laconic/report/console.hpp"
#include "laconic/report/jsonl.hpp"
#include "laconic/report/tensorboard.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/steer/guarding.hpp"
#include "laconic/train/evaluate.hpp"
#include "laconic/train/network_trace.hpp"
#include "laconic/train/step.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

class Reports {
 public:
  Reports(const RunConfig& config, std::int64_t first_step, const World& world);

  // Operations that all ranks can make in a second: step lines tell MFU.
  void set_speed(double flops_per_second) { flops_per_second_ = flops_per_second; }

  Trace* trace() { return trace_ ? &*trace_ : nullptr; }
  // What the trace shows from here on is of this step.
  void begin_step(std::int64_t step) {
    if (network_trace_) network_trace_->begin_step(step);
  }
  void line(const std::string& text);
  // A line that the log keeps, too: something was decided after this step.
  void note(std::int64_t step, const std::string& text);
  // `wire` is what this rank did to the network in the step; null: there is none.
  void step(const StepReport& report, const MeterReading* wire);
  void evaluation(std::int64_t step, const Evaluation& evaluation);
  // What the guard has read of a step.
  void readings(std::int64_t step, const Readings& readings);
  void finish();

 private:
  void write_step(const StepReport& report, const StepLine& line);

  const RunConfig& config_;
  Rank rank_;
  double flops_per_second_ = 0;
  std::optional<Progress> progress_;  // on the rank that speaks
  std::optional<JsonLines> jsonl_;
  std::optional<TensorboardWriter> tensorboard_;
  std::optional<Trace> trace_;
  std::optional<NetworkTrace> network_trace_;
};

}  // namespace laconic
