#include "laconic/engine/meter.hpp"

namespace laconic {

namespace {

Count minus(const Count& a, const Count& b) {
  return {a.messages - b.messages, a.raw_bytes - b.raw_bytes, a.wire_bytes - b.wire_bytes,
          a.computed_bytes - b.computed_bytes};
}
Times minus(const Times& a, const Times& b) {
  return {a.active - b.active, a.exposed - b.exposed, a.codec - b.codec, a.decode - b.decode};
}

AxesReading minus(const AxesReading& a, const AxesReading& b) {
  return {minus(a.sent, b.sent), minus(a.times, b.times)};
}

template <class Key, class Value>
std::map<Key, Value> minus(std::map<Key, Value> later, const std::map<Key, Value>& earlier) {
  for (const auto& [key, value] : earlier) later[key] = minus(later[key], value);
  return later;
}

}  // namespace

Count& Count::operator+=(const Count& other) {
  messages += other.messages;
  raw_bytes += other.raw_bytes;
  wire_bytes += other.wire_bytes;
  computed_bytes += other.computed_bytes;
  return *this;
}

Times& Times::operator+=(const Times& other) {
  active += other.active;
  exposed += other.exposed;
  codec += other.codec;
  decode += other.decode;
  return *this;
}

MeterReading operator-(const MeterReading& later, const MeterReading& earlier) {
  return {.sent = minus(later.sent, earlier.sent),
          .received = minus(later.received, earlier.received),
          .times = minus(later.times, earlier.times),
          .by_axes = minus(later.by_axes, earlier.by_axes)};
}

Count sent(const MeterReading& reading, Traffic traffic) {
  Count sum;
  for (const auto& [key, count] : reading.sent)
    if (key.first == traffic) sum += count;
  return sum;
}

Count sent(const MeterReading& reading) {
  Count sum;
  for (const auto& [key, count] : reading.sent) sum += count;
  return sum;
}

void Meter::sent(Traffic traffic, Rank to, const Count& count, std::uint32_t unit) {
  const std::lock_guard lock(mutex_);
  reading_.sent[{traffic, to}] += count;
  if (has_axes(traffic)) reading_.by_axes[{traffic, unit}].sent += count;
}

void Meter::received(Traffic traffic, Rank from, const Count& count) {
  const std::lock_guard lock(mutex_);
  reading_.received[{traffic, from}] += count;
}

void Meter::spent(Traffic traffic, const Times& times) {
  {
    const std::lock_guard lock(mutex_);
    reading_.times[traffic] += times;
  }
  if (!is_observed_) return;
  const std::lock_guard lock(observer_mutex_);
  if (observer_) observer_(traffic, times);
}

void Meter::spent(Traffic traffic, std::uint32_t unit, const Times& times) {
  spent_along(traffic, unit, times);
  spent(traffic, times);
}

void Meter::spent_along(Traffic traffic, std::uint32_t unit, const Times& times) {
  if (!has_axes(traffic)) return;
  const std::lock_guard lock(mutex_);
  reading_.by_axes[{traffic, unit}].times += times;
}

void Meter::observe(Observer observer) {
  const std::lock_guard lock(observer_mutex_);
  observer_ = std::move(observer);
  is_observed_ = observer_ != nullptr;
}

void Meter::include(const MeterReading& reading) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : reading.sent) reading_.sent[key] += count;
  for (const auto& [key, count] : reading.received) reading_.received[key] += count;
  for (const auto& [traffic, times] : reading.times) reading_.times[traffic] += times;
  for (const auto& [key, part] : reading.by_axes) {
    reading_.by_axes[key].sent += part.sent;
    reading_.by_axes[key].times += part.times;
  }
}

MeterReading Meter::read() const {
  const std::lock_guard lock(mutex_);
  return reading_;
}

}  // namespace laconic
