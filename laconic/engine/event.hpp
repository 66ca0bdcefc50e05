// engine/event.hpp — what happened on the network of one rank, for whoever draws it.
//
//   engine.observe([&](const EngineEvent& event) { ... });   // until engine.observe({})
//
// An event is told when it has ended, from the thread in which it did: of an outbox, the progress
// thread or the one that computes. Calls never overlap. While nobody observes, an event costs the
// look at one flag.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "laconic/transport/tag.hpp"

namespace laconic {

struct EngineEvent {
  using Time = std::chrono::steady_clock::time_point;
  enum class Kind : std::uint8_t {
    send,       // a message: from queuing to having left
    recv,       // a message: from the first time it was asked for to its last segment
    operation,  // many messages: from start to done
    wait,       // the computing thread had nothing to do but wait
    codec,      // encoding or decoding
  };

  Kind kind = Kind::send;
  Traffic traffic = Traffic::control;
  Time begin;
  Time end;
  // "all_reduce of dp.gradient 2 #17", "pp.activation 0 #3.0", "sums of dp.gradient".
  std::string what;
  std::set<Rank> peers;  // the other end, or ends
  // What was sent, or received; of an operation: what it sent. As the meter counts.
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  // The same number for a message or an operation and the wait that it ended; 0: none.
  std::uint64_t flow = 0;
};

// A message that has just left or come, as its record says; `raw_bytes` of one that left.
struct Record;
EngineEvent message_event(const Record& done, std::uint64_t raw_bytes, std::uint64_t wire_bytes);
// A wait for a message, or for operations of a class, the last of which has this `flow`.
EngineEvent wait_event(Rank from, Tag tag, EngineEvent::Time begin, EngineEvent::Time end);
EngineEvent wait_event(Traffic traffic, EngineEvent::Time begin, EngineEvent::Time end,
                       std::uint64_t flow, std::uint32_t unit = 0);
EngineEvent codec_event(Traffic traffic, double seconds);  // that end now

using EngineObserver = std::function<void(const EngineEvent&)>;

// What somebody has asked of the engine.
struct Footprint {
  std::set<Rank> peers;  // sent to, or received from
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;  // sent, as the meter will count them
};
// While it lives, what the calling thread asks of any engine is added to `footprint`, if that is
// not null: what an operation does is what is asked while it is advanced.
class FootprintScope {
 public:
  explicit FootprintScope(Footprint* footprint);
  static Footprint* current();  // of the calling thread; null: none
  ~FootprintScope();
  FootprintScope(const FootprintScope&) = delete;
  FootprintScope& operator=(const FootprintScope&) = delete;

 private:
  Footprint* const outer_;
};

}  // namespace laconic
