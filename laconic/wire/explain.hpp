// wire/explain.hpp — what every byte of a message is.
//
// For people who look at a capture, so it bears anything: bytes that are no frame give the
// rows up to the fault, and the fault. Rows of one frame follow each other
// without gaps. After a fault nothing is explained, since nobody knows where the
// next frame would begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"

namespace laconic {

struct ExplainedField {
  std::size_t frame = 0;     // counted from 0
  std::uint64_t offset = 0;  // from the start of the message
  std::uint64_t bytes = 0;
  std::string field;    // as in docs/wire-format.md: "visits", "quantise.bits", "payload: scales"
  std::string hex;      // the first bytes of it
  std::string meaning;  // "3 f32, one per block of 256"
};

struct WireFault {
  std::size_t frame = 0;
  std::uint64_t offset = 0;
  std::string field;
  std::string what;  // the whole message of the WireError
};

struct Explanation {
  std::vector<ExplainedField> rows;
  std::optional<WireFault> fault;
  std::size_t frames = 0;  // without a fault
};

// At most `max_frames` frames.
Explanation explain(ByteView message, std::size_t max_frames = SIZE_MAX);

}  // namespace laconic
