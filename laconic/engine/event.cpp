#include "laconic/engine/event.hpp"

#include <fmt/format.h>

#include <utility>

#include "laconic/engine/recorder.hpp"

namespace laconic {

namespace {

thread_local Footprint* current_footprint = nullptr;

// Tags are not used again while anybody remembers them, so this names one message. It is odd; those
// of operations are even (engine/progress_thread.cpp).
std::uint64_t flow_of(Rank from, Tag tag) {
  return ((tag + 1) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(from) << 1) | 1;
}

}  // namespace

EngineEvent message_event(const Record& done, std::uint64_t raw_bytes, std::uint64_t wire_bytes) {
  const bool is_send = done.kind == Record::Kind::send;
  const EngineEvent::Time now = std::chrono::steady_clock::now();
  return {.kind = is_send ? EngineEvent::Kind::send : EngineEvent::Kind::recv,
          .traffic = fields_of(done.tag).traffic,
          .begin = now - std::chrono::nanoseconds(done.finished_ns - done.posted_ns),
          .end = now,
          .what = to_text(done.tag),
          .peers = {done.peer},
          .raw_bytes = raw_bytes,
          .wire_bytes = wire_bytes,
          .flow = is_send ? 0 : flow_of(done.peer, done.tag)};
}

EngineEvent wait_event(Rank from, Tag tag, EngineEvent::Time begin, EngineEvent::Time end) {
  return {.kind = EngineEvent::Kind::wait,
          .traffic = fields_of(tag).traffic,
          .begin = begin,
          .end = end,
          .what = to_text(tag),
          .peers = {from},
          .flow = flow_of(from, tag)};
}

EngineEvent wait_event(Traffic traffic, EngineEvent::Time begin, EngineEvent::Time end,
                       std::uint64_t flow, std::uint32_t unit) {
  const bool is_along = has_axes(traffic) && unit != 0;
  return {.kind = EngineEvent::Kind::wait,
          .traffic = traffic,
          .begin = begin,
          .end = end,
          .what = fmt::format("operations of {}{}", name_of(traffic),
                              is_along ? " " + unit_text(traffic, unit) : ""),
          .peers = {},
          .flow = flow};
}

EngineEvent codec_event(Traffic traffic, double seconds) {
  const EngineEvent::Time now = std::chrono::steady_clock::now();
  const auto duration = std::chrono::duration_cast<EngineEvent::Time::duration>(
      std::chrono::duration<double>(seconds));
  return {.kind = EngineEvent::Kind::codec,
          .traffic = traffic,
          .begin = now - duration,
          .end = now,
          .what = fmt::format("codec of {}", name_of(traffic)),
          .peers = {}};
}

FootprintScope::FootprintScope(Footprint* footprint)
    : outer_(std::exchange(current_footprint, footprint)) {}

FootprintScope::~FootprintScope() {
  current_footprint = outer_;
}

Footprint* FootprintScope::current() {
  return current_footprint;
}

}  // namespace laconic
