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
  add(name, category, track, begin, end, nullptr);
}

void Trace::add(std::string_view name, std::string_view category, std::string_view track,
                Time begin, Time end, TraceDetail detail) {
  add(name, category, track, begin, end, &detail);
}

void Trace::add(std::string_view name, std::string_view category, std::string_view track,
                Time begin, Time end, TraceDetail* detail) {
  if (!is_enabled_) return;
  const std::int64_t begin_ns = nanoseconds(begin - origin_);
  const std::int64_t duration_ns = nanoseconds(end - std::max(begin, origin_));
  const std::lock_guard lock(mutex_);
  Event event{id_of(name), id_of(category), id_of(track), 0, begin_ns, duration_ns};
  Sum& sum = sums_[{event.category, event.name}];
  ++sum.count;
  sum.ns += duration_ns;
  if (events_.size() >= max_events_) {
    ++dropped_;
    return;
  }
  if (detail != nullptr) {
    details_.push_back(std::move(*detail));
    event.detail = static_cast<std::uint32_t>(details_.size());
  }
  events_.push_back(event);
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

Trace::Content Trace::content() const {
  const std::lock_guard lock(mutex_);
  return {events_, details_, texts_, dropped_};
}

// Spans that may overlap are laid out in rows: in the order of their beginnings each takes the
// first row of its track that is free again, so that no row has two at a time. A row is a thread to
// the viewer: `threads_` numbers them, `thread_of_` says where each event is.
class Trace::Writer {
 public:
  Writer(const Trace& trace, Content content)
      : rank_(trace.rank_),
        origin_unix_seconds_(trace.origin_unix_seconds_),
        content_(std::move(content)),
        thread_of_(content_.events.size()) {
    for (const std::string& text : content_.texts) quoted_.push_back(quoted_json(text));
    for (const TraceDetail& detail : content_.details) arrows_.insert(detail.flow_in);
    arrows_.erase(0);
    lay_out();
  }

  void write(AtomicFile& file) const {
    file.write(header());
    for (const auto& [place, thread] : threads_) file.write(thread_json(place, thread));
    for (std::size_t i = 0; i < content_.events.size(); ++i) file.write(event_json(i));
    file.write("\n]}\n");
  }

 private:
  using Row = std::pair<Id, std::size_t>;  // track, number in it

  const TraceDetail* detail_of(const Event& event) const {
    return event.detail == 0 ? nullptr : &content_.details[event.detail - 1];
  }

  void lay_out() {
    std::map<Id, std::vector<std::size_t>> by_track;
    for (std::size_t i = 0; i < content_.events.size(); ++i)
      by_track[content_.events[i].track].push_back(i);
    for (auto& [track, events] : by_track) {
      std::ranges::stable_sort(events, {},
                               [&](std::size_t i) { return content_.events[i].begin_ns; });
      std::vector<std::int64_t> free_at;  // by row
      for (const std::size_t i : events) thread_of_[i] = thread_at({track, row_of(i, free_at)});
    }
  }

  std::size_t row_of(std::size_t i, std::vector<std::int64_t>& free_at) const {
    const Event& event = content_.events[i];
    const TraceDetail* detail = detail_of(event);
    if (detail == nullptr || !detail->may_overlap) return 0;
    const auto row =
        std::ranges::find_if(free_at, [&](std::int64_t free) { return free <= event.begin_ns; });
    const auto number = static_cast<std::size_t>(row - free_at.begin());
    if (row == free_at.end()) free_at.push_back(0);
    free_at[number] = event.begin_ns + event.duration_ns;
    return number;
  }

  int thread_at(const Row& row) {
    return threads_.try_emplace(row, static_cast<int>(threads_.size())).first->second;
  }

  std::string header() const {
    return fmt::format(
        R"({{"displayTimeUnit":"ms","otherData":{{"rank":{},"unix_seconds_at_zero":{:.6f},)"
        R"("dropped_events":{}}},"traceEvents":[)"
        "\n"
        R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
        rank_, origin_unix_seconds_, content_.dropped, rank_, rank_);
  }

  std::string thread_json(const Row& row, int thread) const {
    std::string name = content_.texts[row.first];
    if (row.second > 0) name += fmt::format(" ({})", row.second + 1);
    return fmt::format(
        ",\n"
        R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{1},"args":{{"name":{2}}}}},)"
        "\n"
        R"({{"name":"thread_sort_index","ph":"M","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}})",
        rank_, thread, quoted_json(name));
  }

  std::string event_json(std::size_t i) const {
    const Event& event = content_.events[i];
    const TraceDetail* detail = detail_of(event);
    std::string text = fmt::format(
        ",\n"
        R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{})",
        quoted_[event.name], quoted_[event.category], microseconds(event.begin_ns),
        microseconds(event.duration_ns), rank_, thread_of_[i]);
    if (detail == nullptr) return text + "}";
    if (!detail->args.empty()) text += fmt::format(R"(,"args":{{{}}})", detail->args);
    text += "}";
    if (arrows_.contains(detail->flow_out)) text += flow_json(i, detail->flow_out, R"("ph":"s")");
    if (detail->flow_in != 0) text += flow_json(i, detail->flow_in, R"("ph":"f","bp":"e")");
    return text;
  }

  // A viewer looks for the span around the time of the arrow, so that is just before its end.
  std::string flow_json(std::size_t i, std::uint64_t flow, const char* phase) const {
    const Event& event = content_.events[i];
    const std::int64_t at = event.begin_ns + std::max<std::int64_t>(event.duration_ns - 1, 0);
    return fmt::format(
        ",\n"
        R"({{"name":"awaited","cat":"flow",{},"id":"{:x}","ts":{},"pid":{},"tid":{}}})",
        phase, flow, microseconds(at), rank_, thread_of_[i]);
  }

  const int rank_;
  const double origin_unix_seconds_;
  const Content content_;
  std::vector<std::string> quoted_;  // texts
  std::set<std::uint64_t> arrows_;   // that have an end
  std::map<Row, int> threads_;
  std::vector<int> thread_of_;  // by event
};

void Trace::write(const std::string& path) const {
  const Writer writer(*this, content());  // the disk is slow; nobody waits for it
  AtomicFile file(path);
  writer.write(file);
  file.commit();
}

}  // namespace laconic
