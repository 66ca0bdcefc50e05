// engine/segment.hpp — how a message is cut for the transport, and put together again.
//
//   segment = slice of the message, 16 bytes of trailer
//   trailer = u32 magic, u32 flags, u64 place           little-endian
//
// `flags` says whether the segment is the first (1), the last (2) or both (3) of
// its message; `place` is the length of the whole message in the first segment
// and the offset of the slice in every other. All segments of a message carry
// its tag, and a transport keeps the order of equal tags, so no more is needed.
// It stands behind the slice because a message of one segment, the common case,
// then becomes what the receiver gets by cutting 16 bytes off its end.
//
// What came from a peer is not trusted: anything that cut_segment() does not make is
// refused, and memory grows with the bytes that came, not with what they promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "laconic/base/bytes.hpp"

namespace laconic {

inline constexpr std::size_t kSegmentTrailer = 16;
// Reserved at most for a message of which less has come.
inline constexpr std::size_t kMaxAdvance = std::size_t{16} << 20;

// An empty message is one segment too. Requires: segment_bytes > 0.
constexpr std::uint64_t segments_of(std::uint64_t message_bytes, std::size_t segment_bytes) {
  return message_bytes == 0 ? 1 : (message_bytes + segment_bytes - 1) / segment_bytes;
}
// What the meter counts for a message.
constexpr std::uint64_t wire_bytes(std::uint64_t message_bytes, std::size_t segment_bytes) {
  return message_bytes + kSegmentTrailer * segments_of(message_bytes, segment_bytes);
}

// Puts the segment that begins at `offset` into `out`, whose memory is used again and again.
// Returns where the next one begins: message.size() after the last.
std::size_t cut_segment(ByteView message, std::size_t offset, std::size_t segment_bytes,
                        Bytes& out);

// The segments of one message, in order.
class Assembly {
 public:
  // The message, when this was its last segment. Throws WireError; the assembly is then useless.
  std::optional<Bytes> add(Bytes segment);
  std::uint64_t wire_bytes() const { return wire_; }  // that came so far
  std::uint64_t bytes() const { return message_.size(); }
  std::uint64_t total() const { return total_; }  // 0 until the first segment

 private:
  void require_place(const Bytes& segment, std::uint32_t flags, std::uint64_t place) const;
  void append(const Bytes& slice);

  Bytes message_;
  std::uint64_t total_ = 0;
  std::uint64_t wire_ = 0;
  bool is_begun_ = false;
};

}  // namespace laconic
