#include "laconic/engine/recorder.hpp"

#include <algorithm>

#include "laconic/base/error.hpp"

namespace laconic {

FlightRecorder::FlightRecorder(std::size_t capacity) : capacity_(capacity) {}

std::int64_t FlightRecorder::now_ns() const {
  const auto age = std::chrono::steady_clock::now() - origin_;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(age).count();
}

std::uint64_t FlightRecorder::post(Record::Kind kind, Rank peer, Tag tag, std::uint64_t bytes) {
  const std::int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  open_.emplace_hint(open_.end(), id,
                     Record{.id = id,
                            .kind = kind,
                            .state = Record::State::posted,
                            .peer = peer,
                            .tag = tag,
                            .bytes = bytes,
                            .posted_ns = now,
                            .finished_ns = 0});
  return id;
}

Record FlightRecorder::finish(std::uint64_t id, Record::State state, std::uint64_t bytes) {
  const std::int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  LACONIC_ASSERT(found != open_.end(), std::to_string(id));
  Record record = found->second;
  open_.erase(found);
  record.state = state;
  record.bytes = bytes;
  record.finished_ns = now;
  finished_.push_back(record);
  if (finished_.size() > capacity_) finished_.pop_front();
  return record;
}

std::vector<Record> FlightRecorder::records() const {
  std::vector<Record> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(finished_.begin(), finished_.end());
    for (const auto& [id, record] : open_) all.push_back(record);
  }
  std::sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.id < b.id; });
  return all;
}

}  // namespace laconic
