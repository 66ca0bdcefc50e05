// transport/fault.hpp — what goes wrong, and when, as a value.
//
//   drop:to=2,at=17; flip:at=5,bit=100; truncate:at=9,bytes=10; delay:at=3,ms=200; close:at=40;
//   kill:at=41
//
// A fault strikes once, at one send of one rank. `at` counts sends from 0, and
// only those that the fault is about: rank= says who misbehaves (otherwise every
// rank does, each at its own count), to= whose messages, traffic= which class
// ("dp.gradient"). At one send several may strike, in the order they are written.
//
//   drop      the message is lost, the sender does not know
//   flip      bit number `bit` is inverted, counted from the first byte's lowest, modulo the size
//   truncate  the last `bytes` bytes are missing
//   delay     the send takes `ms` milliseconds more
//   close     the rank closes its transport
//   kill      the process is killed (SIGKILL), the message unsent
//
// Pure, but for the counts that strike() keeps in its argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

enum class FaultKind : std::uint8_t { drop, flip, truncate, delay, close, kill };

struct FaultSpec {
  FaultKind kind = FaultKind::drop;
  std::uint64_t at = 0;
  std::optional<Rank> rank;
  std::optional<Rank> to;
  std::optional<Traffic> traffic;
  std::uint64_t amount = 0;  // bit, bytes or ms, as the kind has it
  bool operator==(const FaultSpec&) const = default;
};
using FaultSpecs = std::vector<FaultSpec>;

// Whether the fault is about this send, whenever it is.
bool concerns(const FaultSpec& fault, Rank from, Rank to, Tag tag);

// Counts one send and returns the faults that strike it. counts[i] belongs to faults[i] and starts
// at 0.
FaultSpecs strike(const FaultSpecs& faults, std::vector<std::uint64_t>& counts, Rank from, Rank to,
                  Tag tag);

// What these leave of a message; nothing when it is dropped.
std::optional<Bytes> damaged(const FaultSpecs& faults, ByteView message);

Problems check(const FaultSpecs& faults, int ranks);

std::string to_text(const FaultSpecs& faults);
FaultSpecs parse_faults(std::string_view text);  // throws ConfigError with all problems

}  // namespace laconic
