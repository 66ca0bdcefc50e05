// transport/shape.hpp — a slow network, as a value.
//
//   rate=100mbit,latency=5ms,jitter=1ms
//   rate=1gbit; 0-3: rate=20mbit,latency=40ms; 2>1: jitter=3ms
//   rate=100mbit,egress=host,seed=7
//
// The clause without a head is for every pair of ranks; the others change it
// for one pair, 0-3 both ways, 2>1 one way. Rates are in bit, kbit, mbit or
// gbit per second (powers of ten; absent or `unlimited`: no limit), times in us, ms or s.
// egress=host: a rank has one rate for all it sends, instead of one for each
// receiver. seed names the draws of the jitter.
//
// Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "laconic/base/problem.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct LinkShape {
  std::uint64_t bits_per_second = 0;  // 0: no limit
  std::chrono::microseconds latency{0};
  std::chrono::microseconds jitter{0};  // added to the latency, uniform in 0 ... jitter
  bool operator==(const LinkShape&) const = default;
};

enum class Egress : std::uint8_t { link, host };

struct ShapeSpec {
  LinkShape all;
  std::map<std::pair<Rank, Rank>, LinkShape> links;  // from, to: instead of `all`
  Egress egress = Egress::link;
  std::uint64_t seed = 0;
  bool operator==(const ShapeSpec&) const = default;
};

const LinkShape& shape_of(const ShapeSpec& spec, Rank from, Rank to);

// How long the wire is busy with a message.
std::chrono::nanoseconds time_on_wire(const LinkShape& shape, std::size_t bytes);

// Every reason why this is no network of `ranks` ranks.
Problems check(const ShapeSpec& spec, int ranks);

std::string to_text(const ShapeSpec& spec);    // what parse_shape understands; empty: not shaped
ShapeSpec parse_shape(std::string_view text);  // throws ConfigError with all problems

}  // namespace laconic
