// codec/huffman_stream.hpp — words of a Huffman code as bits, from the highest of each byte down;
// BitWriter writes them.
//
// Elements are split into four runs of equal length, the last ones perhaps
// shorter or empty, each with a stream of its own: where a word begins is known
// only after the one before it, so a single stream would leave a processor
// waiting.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/bit_stream.hpp"
#include "laconic/codec/huffman_code.hpp"

namespace laconic {

// One stream of words. Past the end there are zeros, and position() tells.
class WordReader {
 public:
  WordReader() = default;
  WordReader(const DecodingTable& table, ByteView bytes)
      : entries_(table.entries.data()),
        shift_(64u - static_cast<unsigned>(table.width)),
        bytes_(bytes) {}

  std::uint64_t position() const { return position_; }  // in bits

  // op(byte) for each of the next words. Requires: count <= 4, as four words have at most 48 of the
  // 57 bits that a window surely has.
  template <class Op>
  void read(std::size_t count, const Op& op) {
    std::uint64_t window = peek();
    for (std::size_t i = 0; i < count; ++i) {
      const DecodingTable::Entry entry = entries_[window >> shift_];
      window <<= entry.length;
      position_ += entry.length;
      op(entry.byte);
    }
  }

 private:
  std::uint64_t peek() const {
    const std::uint64_t at = position_ / 8;
    std::uint64_t word = 0;
    if (at + sizeof word <= bytes_.size())
      std::memcpy(&word, bytes_.data() + at, sizeof word);
    else if (at < bytes_.size())
      std::memcpy(&word, bytes_.data() + at, bytes_.size() - at);
    return __builtin_bswap64(word) << (position_ % 8);
  }

  const DecodingTable::Entry* entries_ = nullptr;
  unsigned shift_ = 0;
  ByteView bytes_;
  std::uint64_t position_ = 0;
};

inline constexpr std::size_t kHuffmanStreams = 4;

// The elements of one stream.
struct StreamRun {
  std::size_t begin = 0, count = 0;
};

inline StreamRun stream_run(std::size_t elements, std::size_t stream) {
  const std::size_t most = (elements + kHuffmanStreams - 1) / kHuffmanStreams;
  const std::size_t begin = std::min(stream * most, elements);
  return {begin, std::min(most, elements - begin)};
}

// op(element, byte) for all elements of all streams.
template <class Op>
void read_streams(std::array<WordReader, kHuffmanStreams>& readers, std::size_t elements,
                  const Op& op) {
  const std::size_t common = stream_run(elements, kHuffmanStreams - 1).count / 4 * 4;
  const std::size_t stride = stream_run(elements, 0).count;
  for (std::size_t i = 0; i < common; i += 4)
    for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream) {
      std::size_t element = stream * stride + i;
      readers[stream].read(4, [&](unsigned byte) { op(element++, byte); });
    }
  for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream) {
    const StreamRun run = stream_run(elements, stream);
    std::size_t element = run.begin + common;
    while (element < run.begin + run.count)
      readers[stream].read(std::min<std::size_t>(4, run.begin + run.count - element),
                           [&](unsigned byte) { op(element++, byte); });
  }
}

}  // namespace laconic
