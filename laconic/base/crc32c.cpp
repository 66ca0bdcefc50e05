#include "laconic/base/crc32c.hpp"

#include <array>
#include <bit>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace laconic {

namespace {

// A check sum is a polynomial over GF(2) modulo kPolynomial, the highest bit standing for x^0. One
// more zero byte multiplies it by x^8.
constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::uint32_t kMaskDelta = 0xA282EAD8;  // from TensorFlow's crc32c.h

constexpr std::uint32_t times_x(std::uint32_t a) {
  return a >> 1 ^ (a & 1 ? kPolynomial : 0);
}

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = std::uint32_t{1} << 31; bit != 0; bit >>= 1, b = times_x(b))
    if (a & bit) product ^= b;
  return product;
}

// x^(8 * bytes)
constexpr std::uint32_t power_of_bytes(std::size_t bytes) {
  std::uint32_t result = std::uint32_t{1} << 31, square = std::uint32_t{1} << 23;  // 1 and x^8
  for (; bytes != 0; bytes >>= 1, square = times(square, square))
    if (bytes & 1) result = times(result, square);
  return result;
}

using Table = std::array<std::uint32_t, 256>;

// Entry i is (i << shift) * factor. The map is linear, so eight products make it all.
constexpr Table table_of(std::uint32_t factor, int shift) {
  Table table{};
  for (std::uint32_t i = 1; i < 256; ++i)
    table[i] = std::has_single_bit(i) ? times(i << shift, factor)
                                      : table[i & (i - 1)] ^ table[i & (~i + 1)];
  return table;
}

// --- by table, eight bytes at a time

// kSlices[k][b]: byte b followed by k zero bytes.
constexpr std::array<Table, 8> kSlices = [] {
  std::array<Table, 8> slices{};
  for (std::size_t k = 0; k < 8; ++k) slices[k] = table_of(power_of_bytes(k + 1), 0);
  return slices;
}();

std::uint32_t add_byte_by_table(std::uint32_t state, std::byte b) {
  return state >> 8 ^ kSlices[0][(state ^ std::to_integer<std::uint32_t>(b)) & 0xFF];
}

std::uint32_t add_word_by_table(std::uint32_t state, std::uint64_t word) {
  word ^= state;
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < 8; ++k) sum ^= kSlices[7 - k][word >> 8 * k & 0xFF];
  return sum;
}

#ifdef __SSE4_2__

// --- by instruction. It takes three cycles but one can begin in every cycle, so three streams run
// side by side: a, b and c, each `piece` bytes. The sum of all three is then
// (a * x^(8 piece) + b) * x^(8 piece) + c.

constexpr std::size_t kShortPiece = 128;
constexpr std::size_t kLongPiece = 1024;
// Above it the bytes are cut into thirds: memory is read ahead best in few, long streams. Working
// out the factor takes about a microsecond.
constexpr std::size_t kThirdsFrom = 128 * 1024;

template <std::size_t kPiece>
struct TimesPiece {
  static constexpr std::uint32_t kFactor = power_of_bytes(kPiece);
  static constexpr std::array<Table, 4> kTables = {table_of(kFactor, 0), table_of(kFactor, 8),
                                                   table_of(kFactor, 16), table_of(kFactor, 24)};
  std::uint32_t operator()(std::uint32_t state) const {
    return kTables[0][state & 0xFF] ^ kTables[1][state >> 8 & 0xFF] ^
           kTables[2][state >> 16 & 0xFF] ^ kTables[3][state >> 24];
  }
};

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Adds three pieces from the front of `bytes` and takes them off. Requires: piece is a multiple of
// 64, bytes holds three.
template <class Times>
std::uint32_t add_three(std::uint32_t state, ByteView& bytes, std::size_t piece,
                        const Times& times_power) {
  std::uint64_t a = state, b = 0, c = 0;
  const std::byte* at = bytes.data();
  for (const std::byte* const end = at + piece; at != end; at += 64)
    for (int k = 0; k < 64; k += 8) {
      a = _mm_crc32_u64(a, word_at(at + k));
      b = _mm_crc32_u64(b, word_at(at + piece + k));
      c = _mm_crc32_u64(c, word_at(at + 2 * piece + k));
    }
  bytes = bytes.subspan(3 * piece);
  const std::uint32_t ab =
      times_power(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
  return times_power(ab) ^ static_cast<std::uint32_t>(c);
}

template <std::size_t kPiece>
std::uint32_t add_pieces(std::uint32_t state, ByteView& bytes) {
  while (bytes.size() >= 3 * kPiece) state = add_three(state, bytes, kPiece, TimesPiece<kPiece>());
  return state;
}

std::uint32_t add_thirds(std::uint32_t state, ByteView& bytes) {
  const std::size_t piece = bytes.size() / 3 / 64 * 64;
  const std::uint32_t factor = power_of_bytes(piece);
  return add_three(state, bytes, piece, [&](std::uint32_t a) { return times(a, factor); });
}

std::uint32_t add(std::uint32_t state, ByteView bytes) {
  if (bytes.size() >= kThirdsFrom) state = add_thirds(state, bytes);
  state = add_pieces<kLongPiece>(state, bytes);
  state = add_pieces<kShortPiece>(state, bytes);
  std::uint64_t wide = state;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8))
    wide = _mm_crc32_u64(wide, word_at(bytes.data()));
  state = static_cast<std::uint32_t>(wide);
  for (const std::byte b : bytes) state = _mm_crc32_u8(state, std::to_integer<std::uint8_t>(b));
  return state;
}

#endif

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t previous, ByteView bytes) {
  std::uint32_t state = ~previous;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8))
    state = add_word_by_table(state, get<std::uint64_t>(bytes, 0));
  for (const std::byte b : bytes) state = add_byte_by_table(state, b);
  return ~state;
}

std::uint32_t crc32c(std::uint32_t previous, ByteView bytes) {
#ifdef __SSE4_2__
  return ~add(~previous, bytes);
#else
  return crc32c_by_table(previous, bytes);
#endif
}

std::uint32_t crc32c(ByteView bytes) {
  return crc32c(0, bytes);
}

std::uint32_t masked_crc32c(ByteView bytes) {
  return std::rotr(crc32c(bytes), 15) + kMaskDelta;
}

}  // namespace laconic
