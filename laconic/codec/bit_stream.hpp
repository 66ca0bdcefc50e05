// codec/bit_stream.hpp — bits packed from the highest of each byte down.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "laconic/base/bytes.hpp"

namespace laconic {

// Writes four bytes at a time, and none after the last.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // The `width` low bits of value. Requires: width <= 32 and no higher bit is set.
  void write(std::uint64_t value, unsigned width) {
    waiting_ = waiting_ << width | value;
    filled_ += width;
    if (filled_ < 32) return;
    filled_ -= 32;
    const std::uint32_t full = __builtin_bswap32(static_cast<std::uint32_t>(waiting_ >> filled_));
    std::memcpy(out_, &full, sizeof full);
    out_ += sizeof full;
  }
  // The same for width <= 64.
  void write_long(std::uint64_t value, unsigned width) {
    if (width > 32) {
      write(value >> 32, width - 32);
      value &= 0xFFFFFFFFu;
      width = 32;
    }
    write(value, width);
  }
  // `count` one-bits and a zero-bit.
  void write_ones(std::uint64_t count) {
    for (; count >= 32; count -= 32) write(0xFFFFFFFFu, 32);
    write((std::uint64_t{2} << count) - 2, static_cast<unsigned>(count) + 1);
  }
  // Fills the last byte with zeros, and returns the end of what was written. Call it once.
  std::byte* finish() {
    waiting_ <<= 32 - filled_;
    for (int shift = 24; filled_ > 0; shift -= 8) {
      *out_++ = static_cast<std::byte>(waiting_ >> shift);
      filled_ -= std::min(filled_, 8u);
    }
    return out_;
  }

 private:
  std::byte* out_;
  std::uint64_t waiting_ = 0;  // its `filled_` low bits are not written yet
  unsigned filled_ = 0;        // < 32
};

// Never reads outside its bytes.
class BitReader {
 public:
  explicit BitReader(ByteView bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }  // in bits
  std::uint64_t left() const { return 8 * bytes_.size() - position_; }

  // Requires: width <= 48, width <= left().
  std::uint64_t read(int width) {
    const std::uint64_t window = peek();
    position_ += static_cast<std::uint64_t>(width);
    return width == 0 ? 0 : window >> (64 - width);
  }
  // The number of one-bits before the next zero-bit, which is passed too; nothing if there are
  // more than `limit` or the bytes end first.
  std::optional<std::uint64_t> read_ones(std::uint64_t limit) {
    for (std::uint64_t ones = 0; left() > 0;) {
      const std::uint64_t visible = std::min<std::uint64_t>(left(), kWindow);
      const auto run = static_cast<std::uint64_t>(std::countl_one(peek()));
      ones += std::min(run, visible);
      if (ones > limit) return std::nullopt;
      position_ += run < visible ? run + 1 : visible;
      if (run < visible) return ones;
    }
    return std::nullopt;
  }
  // Whether what is left of the current byte is zero.
  bool rest_is_zero() const {
    return position_ % 8 == 0 ||
           std::to_integer<unsigned>(bytes_[position_ / 8] << (position_ % 8)) == 0;
  }

 private:
  static constexpr std::uint64_t kWindow = 56;  // bits of peek() that are always there

  // The bits from the position on, the first in the highest; zeros after the end.
  std::uint64_t peek() const {
    const std::uint64_t at = position_ / 8;
    std::uint64_t word = 0;
    if (at + 8 <= bytes_.size())
      std::memcpy(&word, bytes_.data() + at, 8);
    else
      std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(at), bytes_.end(),
                reinterpret_cast<std::byte*>(&word));
    return __builtin_bswap64(word) << (position_ % 8);
  }

  ByteView bytes_;
  std::uint64_t position_ = 0;
};

}  // namespace laconic
