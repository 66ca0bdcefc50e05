#include "laconic/report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "laconic/base/clock.hpp"
#include "laconic/file/atomic_file.hpp"

namespace laconic {

namespace {

// A caller that puts numbers into names must not fill the memory with them.
constexpr std::size_t kMaxTexts = 10'000;
constexpr std::string_view kOther = "(other)";

std::string quoted_json(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::int64_t nanoseconds(std::chrono::steady_clock::duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return std::max<std::int64_t>(count, 0);
}

// Trace times are microseconds; in integers, since a double would round them after some hours.
std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

}  // namespace

Trace::Trace(int rank, std::size_t max_events)
    : is_enabled_(true),
      rank_(rank),
      max_events_(max_events),
      origin_(std::chrono::steady_clock::now()),
      origin_unix_seconds_(unix_seconds()) {}

// Requires: mutex_ is held.
Trace::Id Trace::id_of(std::string_view text) {
  const auto known = ids_.find(text);
  if (known != ids_.end()) return known->second;
  if (texts_.size() >= kMaxTexts && text != kOther) return id_of(kOther);
  const Id id = static_cast<Id>(texts_.size());
  texts_.emplace_back(text);
  ids_.emplace(text, id);
  return id;
}

void Trace::add(std::string_view name, std::string_view category, std::string_view track,
                Time begin, Time end) {
  if (!is_enabled_) return;
  const std::int64_t begin_ns = nanoseconds(begin - origin_);
  const std::int64_t duration_ns = nanoseconds(end - begin);
  const std::lock_guard lock(mutex_);
  const Event event{id_of(name), id_of(category), id_of(track), begin_ns, duration_ns};
  Sum& sum = sums_[{event.category, event.name}];
  ++sum.count;
  sum.ns += duration_ns;
  if (events_.size() < max_events_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

std::uint64_t Trace::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

std::vector<TraceTotal> Trace::summary() const {
  std::vector<TraceTotal> totals;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [ids, sum] : sums_)
      totals.push_back(
          {texts_[ids.first], texts_[ids.second], sum.count, static_cast<double>(sum.ns) * 1e-9});
  }
  std::ranges::sort(totals, {}, [](const TraceTotal& total) {
    return std::tuple(total.category, -total.seconds, total.name);
  });
  return totals;
}

std::string Trace::header_json(std::uint64_t dropped) const {
  return fmt::format(
      R"({{"displayTimeUnit":"ms","otherData":{{"rank":{},"unix_seconds_at_zero":{:.6f},)"
      R"("dropped_events":{}}},"traceEvents":[)"
      "\n"
      R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
      rank_, origin_unix_seconds_, dropped, rank_, rank_);
}

std::string Trace::event_json(const Event& event, const std::vector<std::string>& quoted) const {
  return fmt::format(
      ",\n"
      R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{}}})",
      quoted[event.name], quoted[event.category], microseconds(event.begin_ns),
      microseconds(event.duration_ns), rank_, event.track);
}

void Trace::write(const std::string& path) const {
  std::unique_lock lock(mutex_);
  const std::deque<Event> events = events_;
  const std::vector<std::string> texts = texts_;
  const std::uint64_t dropped = dropped_;
  lock.unlock();  // the disk is slow; nobody waits for it

  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(quoted_json(text));
  AtomicFile file(path);
  file.write(header_json(dropped));
  std::set<Id> tracks;
  for (const Event& event : events) {
    if (tracks.insert(event.track).second)
      file.write(
          fmt::format(",\n"
                      R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                      rank_, event.track, quoted[event.track]));
    file.write(event_json(event, quoted));
  }
  file.write("\n]}\n");
  file.commit();
}

}  // namespace laconic
