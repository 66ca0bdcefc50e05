// report/trace.hpp — where the time of one rank went.
//
//   TraceSpan span(trace, "forward", "compute");   // until the end of the scope
//
// Spans may come from any thread, but those of one track must nest: viewers
// draw a track as one stack. Where they overlap instead, as messages do, each
// says so, and the track gets as many rows as it needs. The default track is the
// category. Memory is bounded: beyond the limit spans are counted as dropped and
// still add to the summary. A disabled trace reads no clock and takes no lock.
//
// The file is Chrome's trace-event JSON (chrome://tracing, ui.perfetto.dev):
// the process is the rank, the thread the track. An arrow is a pair of flow
// events, from the end of one span to the end of another.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace laconic {

struct TraceTotal {
  std::string category;
  std::string name;
  std::uint64_t count = 0;
  double seconds = 0;
  bool operator==(const TraceTotal&) const = default;
};

// What a span says beside its name.
struct TraceDetail {
  bool may_overlap = false;  // others of its track; the same for all of a track
  std::string args;          // members of a JSON object: "peer":1,"wire_bytes":4096
  // An arrow goes from the span with this number in `flow_out` to those with it in `flow_in`; 0: no
  // arrow. One without another end is not drawn.
  std::uint64_t flow_out = 0;
  std::uint64_t flow_in = 0;
};

class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kDefaultMaxEvents = 1'000'000;  // 40 MB without details

  Trace() = default;  // disabled
  explicit Trace(int rank, std::size_t max_events = kDefaultMaxEvents);

  bool is_enabled() const { return is_enabled_; }
  void add(std::string_view name, std::string_view category, std::string_view track, Time begin,
           Time end);
  void add(std::string_view name, std::string_view category, std::string_view track, Time begin,
           Time end, TraceDetail detail);
  std::uint64_t dropped() const;
  std::vector<TraceTotal> summary() const;  // by category, then the longest first

  // Whole or not at all; recording may go on meanwhile. Throws SystemError.
  void write(const std::string& path) const;

 private:
  using Id = std::uint32_t;
  struct Event {
    Id name, category, track;
    std::uint32_t detail;                // place in `details_` + 1; 0: none
    std::int64_t begin_ns, duration_ns;  // begin is from `origin_`
  };
  struct Content {  // a copy, to be written without the lock
    std::deque<Event> events;
    std::deque<TraceDetail> details;
    std::vector<std::string> texts;
    std::uint64_t dropped = 0;
  };
  struct Sum {
    std::uint64_t count = 0;
    std::int64_t ns = 0;
  };

  Id id_of(std::string_view text);
  void add(std::string_view name, std::string_view category, std::string_view track, Time begin,
           Time end, TraceDetail* detail);
  Content content() const;
  class Writer;

  bool is_enabled_ = false;
  int rank_ = 0;
  std::size_t max_events_ = 0;
  Time origin_{};
  double origin_unix_seconds_ = 0;

  mutable std::mutex mutex_;  // guards everything below
  std::map<std::string, Id, std::less<>> ids_;
  std::vector<std::string> texts_;  // by id
  std::deque<Event> events_;        // a deque never moves what it holds while it grows
  std::deque<TraceDetail> details_;
  std::map<std::pair<Id, Id>, Sum> sums_;
  std::uint64_t dropped_ = 0;
};

// Requires: the texts and the trace outlive the span; texts are literals as a rule.
class TraceSpan {
 public:
  TraceSpan(Trace& trace, std::string_view name, std::string_view category,
            std::string_view track = {})
      : trace_(trace.is_enabled() ? &trace : nullptr) {
    if (trace_ == nullptr) return;
    name_ = name;
    category_ = category;
    track_ = track.empty() ? category : track;
    begin_ = std::chrono::steady_clock::now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr)
      trace_->add(name_, category_, track_, begin_, std::chrono::steady_clock::now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  std::string_view name_, category_, track_;
  Trace::Time begin_;
};

}  // namespace laconic
