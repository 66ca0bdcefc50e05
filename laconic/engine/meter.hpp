// engine/meter.hpp — every byte that leaves a rank, by traffic class and peer, and where time went.
//
// raw: what would have crossed without encoding. wire: what did, frames and
// segment headers included (not TCP's own). Both are counted at the sender;
// received bytes are counted too, so that two ranks can be compared. Where nobody
// sees the messages (a transport's own sum) what any sum must send is computed,
// and counted as `computed` besides.
//
// Classes of tensor grids are counted once more by axes, that is by the unit of their tags.
//
// Time: `active` is when at least one operation of the class was under way,
// `exposed` when the computing thread waited for one. active - exposed was
// hidden behind computation. `codec` is time spent encoding and decoding, `decode` the part of it
// that went to messages that had come: to read, decode and add them up.
//
// Thread-safe; always on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "laconic/transport/tag.hpp"

namespace laconic {

struct Count {
  std::uint64_t messages = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t computed_bytes = 0;  // the part of wire_bytes that nobody counted
  Count& operator+=(const Count& other);
  bool operator==(const Count&) const = default;
};

struct Times {
  double active = 0;
  double exposed = 0;
  double codec = 0;
  double decode = 0;  // of codec
  Times& operator+=(const Times& other);
};

// A class along one set of axes.
struct AxesReading {
  Count sent;
  Times times;
};

// Everything counted so far: a value, to be subtracted from a later one.
struct MeterReading {
  std::map<std::pair<Traffic, Rank>, Count> sent;      // by receiver
  std::map<std::pair<Traffic, Rank>, Count> received;  // by sender; raw_bytes stays 0
  std::map<Traffic, Times> times;
  std::map<std::pair<Traffic, std::uint32_t>, AxesReading> by_axes;  // of classes that has_axes()
};
MeterReading operator-(const MeterReading& later, const MeterReading& earlier);
Count sent(const MeterReading& reading, Traffic traffic);  // over all peers
Count sent(const MeterReading& reading);                   // over everything

class Meter {
 public:
  void sent(Traffic traffic, Rank to, const Count& count, std::uint32_t unit = 0);
  void received(Traffic traffic, Rank from, const Count& count);
  void spent(Traffic traffic, const Times& times);
  void spent(Traffic traffic, std::uint32_t unit, const Times& times);
  // By axes alone: the time that something of the class was under way is not a sum over axes.
  void spent_along(Traffic traffic, std::uint32_t unit, const Times& times);
  // Calls `observer` after every spent(), in the thread that has called it; an empty one ends it,
  // and no call is under way when this returns.
  using Observer = std::function<void(Traffic, const Times&)>;
  void observe(Observer observer);
  // What another meter has counted, from before there was this one.
  void include(const MeterReading& reading);
  MeterReading read() const;

 private:
  mutable std::mutex mutex_;  // guards the reading
  MeterReading reading_;
  std::atomic<bool> is_observed_ = false;
  std::mutex observer_mutex_;  // held during a call
  Observer observer_;
};

}  // namespace laconic
