// engine/recorder.hpp — the last operations of a rank, and what they say about a hang.
//
// Each rank keeps a ring of its last sends and receives. When something times
// out, every rank's record is collected and verdict() says in one line who did
// not do what: "rank 3 never posted recv #4182 of dp.gradient 2 from rank 2".
// Recording is always on and costs a lock and a few words.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/transport/tag.hpp"

namespace laconic {

struct Record {
  enum class Kind : std::uint8_t { send, recv };
  enum class State : std::uint8_t { posted, done, failed };

  std::uint64_t id = 0;  // counted from 0 on this rank
  Kind kind = Kind::send;
  State state = State::posted;
  Rank peer = 0;
  Tag tag = 0;
  std::uint64_t bytes = 0;       // 0: not known yet
  std::int64_t posted_ns = 0;    // since the recorder was made
  std::int64_t finished_ns = 0;  // 0: not finished
  bool operator==(const Record&) const = default;
};

class FlightRecorder {
 public:
  // `capacity` counts operations that are finished; those still open are kept beside them.
  explicit FlightRecorder(std::size_t capacity);
  std::uint64_t post(Record::Kind kind, Rank peer, Tag tag, std::uint64_t bytes);  // its id
  // Returns the record as it is now. Requires: the operation is open.
  Record finish(std::uint64_t id, Record::State state, std::uint64_t bytes);
  // Oldest first. Operations that are still open are always there, however old.
  std::vector<Record> records() const;
  std::int64_t now_ns() const;  // on the clock of the records

 private:
  const std::size_t capacity_;
  const std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Record> open_;
  std::deque<Record> finished_;  // in the order they did
};

// One rank's record as it is written to disk and sent to others.
struct Flight {
  Rank rank = 0;
  std::string host;
  std::string doing;  // "step 17: waiting for dp.gradient 2" in the rank's own words
  std::string error;  // what ended it; empty: nothing
  std::vector<Record> records;
  std::int64_t taken_ns = 0;  // when, on the clock of the records: FlightRecorder::now_ns()
  bool is_cause = false;      // it failed by itself: it was not another rank that went
};
std::string to_json(const Flight& flight);
Flight parse_flight(std::string_view json);  // throws FileError

// What the flights of some or all of `size` ranks say: one line, then the evidence. Pure.
std::string verdict(const std::vector<Flight>& flights, int size);

}  // namespace laconic
