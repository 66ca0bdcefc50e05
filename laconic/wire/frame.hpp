// wire/frame.hpp — a payload with everything a receiver needs to read it.
//
// The bytes are fixed by docs/wire-format.md. A message is one frame or several,
// one after the other; nothing around them says how many. A frame does not say
// which tensor it holds: that both ends know, and the sequence number tells them
// when they disagree.
//
// A Frame is a view: it is valid as long as the message it was read from, and its
// payload may lie at any address. read_frame() trusts no byte: first the
// fields that say where the check sum is (magic, version, dims, parameter
// bytes, the flag of the hash, payload bytes), then the check sum, then all the rest.
// So a bit that flipped on the way is reported as "CRC-32C", or as one of
// those few fields, and a WireError about any other field means that the
// writer was wrong. It does not look into the payload: decode() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "laconic/base/bytes.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

enum class Visit : std::uint8_t {
  alone = 0,       // no memory of it is kept
  first = 1,       // sets the reference of its key
  difference = 2,  // to the reference of its key
};

struct FrameHeader {
  CodecSpec codec;
  TensorSpec tensor;
  Visit visit = Visit::alone;
  std::uint32_t visits = 0;           // of the key, before this one; Visit::difference only
  std::uint64_t sequence = 0;         // make_sequence()
  std::uint64_t key = 0;              // sample id; 0 with Visit::alone
  std::optional<std::uint64_t> hash;  // of the reference; Visit::difference only
  bool operator==(const FrameHeader&) const = default;
};

struct Frame {
  FrameHeader header;
  ByteView payload;
  std::size_t payload_offset = 0;  // from the start of the message
  std::size_t size = 0;            // of the whole frame: the next one begins so much later
};

inline constexpr std::uint32_t kFrameMagic = 0x464E434C;  // "LCNF"
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::size_t kFrameFixedBytes = 40;  // of the header, before the parameters
inline constexpr std::size_t kFrameCrcBytes = 4;

// step * 2^24 + number of the frame within the step.
inline constexpr std::uint32_t kFramesPerStep = 1 << 24;
std::uint64_t make_sequence(std::uint64_t step, std::uint32_t number);  // asserts that both fit
constexpr std::uint64_t step_of(std::uint64_t sequence) {
  return sequence / kFramesPerStep;
}
constexpr std::uint32_t number_of(std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence % kFramesPerStep);
}

// Every reason why no frame has this header. Where: the name of the field in docs/wire-format.md.
Problems check(const FrameHeader& header);

// --- writing: open, encode into the span, close. Requires, everywhere: check(header) is empty.

std::size_t header_bytes(const FrameHeader& header);  // what precedes the payload
std::size_t max_frame_bytes(const FrameHeader& header);

// Appends a header to `message` and makes room for the largest payload, whose bytes are left as
// they are. At most one allocation, none when max_frame_bytes() are reserved. The span is valid
// until the message next changes size. Throws std::bad_alloc when there is no such memory.
std::span<std::byte> open_frame(Bytes& message, const FrameHeader& header);

// Ends the frame that was opened when the message had `start` bytes: sets the payload's size, drops
// the room that was not used, appends the check sum.
void close_frame(Bytes& message, std::size_t start, std::size_t payload_bytes);

// --- reading. Throws WireError with an offset from the start of the message; the fields are those
// of docs/wire-format.md, "header" and "frame" when bytes are missing, or an option of the codec.
// Requires: offset <= message.size().
Frame read_frame(ByteView message, std::size_t offset = 0);

// --- comparing what came with what was expected. All throw WireError.

// Throws about a field of the header, by its name in docs/wire-format.md.
[[noreturn]] void refuse_frame(const Frame& frame, const std::string& field,
                               const std::string& why);
// Throws about the first field that is not as expected. Does not compare the hash: that takes the
// reference.
void require_header(const Frame& frame, const FrameHeader& expected);
// Throws when bytes follow a frame that began with its message.
void require_end(const Frame& frame, ByteView message);
// Reads a message that is one frame, with this header.
Frame read_expected(ByteView message, const FrameHeader& expected);

}  // namespace laconic
