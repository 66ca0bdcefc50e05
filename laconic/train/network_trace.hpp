// train/network_trace.hpp — communication in a rank's trace: messages, operations, waits, codecs.
//
// Tracks, for each traffic class that has anything to show:
//
//   dp.gradient            operations of many messages, from start to done
//   dp.gradient sends      messages, from queuing to having left this rank
//   dp.gradient receives   messages, from the first time they were asked for to their last segment
//   dp.gradient codec      encoding and decoding
//
// Waits are on the track `compute`, where they took the time; an arrow leads to each from the
// message or the operation that ended it.
#pragma once

#include <atomic>
#include <cstdint>

#include "laconic/engine/engine.hpp"
#include "laconic/report/trace.hpp"

namespace laconic {

class NetworkTrace {
 public:
  // Observes the engine as long as it lives. Requires: both outlive it.
  NetworkTrace(Trace& trace, Engine& engine);
  ~NetworkTrace();
  NetworkTrace(const NetworkTrace&) = delete;
  NetworkTrace& operator=(const NetworkTrace&) = delete;

  // What ends from here on is said to be of this step.
  void begin_step(std::int64_t step) { step_ = step; }

 private:
  void add(const EngineEvent& event);

  Trace& trace_;
  Engine& engine_;
  std::atomic<std::int64_t> step_ = 0;
};

}  // namespace laconic
