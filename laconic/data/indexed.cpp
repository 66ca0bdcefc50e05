#include "laconic/data/indexed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/data/index_format.hpp"

namespace laconic {

namespace {

constexpr const char* kPrepareAgain = "prepare the data again";

// Calls act(T{}) with the C++ type of the tokens.
template <class Act>
decltype(auto) with_type(TokenType type, Act act) {
  switch (type) {
    case TokenType::uint8: return act(std::uint8_t{});
    case TokenType::int8: return act(std::int8_t{});
    case TokenType::int16: return act(std::int16_t{});
    case TokenType::int32: return act(std::int32_t{});
    case TokenType::int64: return act(std::int64_t{});
    case TokenType::uint16: break;
  }
  return act(std::uint16_t{});
}

bool is_known(std::uint8_t code) {
  return (code >= 1 && code <= 5) || code == 8;
}

// Takes the next `count` items of `size` bytes off `rest`. Written so that no count overflows.
ByteView take(ByteView& rest, std::uint64_t count, std::size_t size, const std::string& name,
              const char* field) {
  if (count > rest.size() / size)
    throw FileError(name, field,
                    fmt::format("{} entries of {} bytes do not fit into the {} bytes left", count,
                                size, rest.size()),
                    kPrepareAgain);
  const ByteView taken = rest.first(static_cast<std::size_t>(count) * size);
  rest = rest.subspan(taken.size());
  return taken;
}

template <class T>
T item(ByteView items, std::uint64_t i) {
  return get<T>(items, static_cast<std::size_t>(i) * sizeof(T));
}

}  // namespace

std::size_t size_of(TokenType type) {
  return with_type(type, [](auto zero) { return sizeof zero; });
}

TokenType token_type_for(std::int64_t vocabulary) {
  return vocabulary < 65500 ? TokenType::uint16 : TokenType::int32;
}

Index parse_index(ByteView bytes, std::uint64_t bin_bytes, const std::string& name) {
  if (bytes.size() < kIndexHeaderBytes)
    throw FileError(
        name, "header",
        fmt::format("{} bytes; the header alone is {}", bytes.size(), kIndexHeaderBytes),
        kPrepareAgain);
  if (std::memcmp(bytes.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    throw FileError(name, "magic", "not a Megatron index", "give the prefix of a .bin/.idx pair");
  if (const auto version = get<std::uint64_t>(bytes, 9); version != kIndexVersion)
    throw FileError(name, "version", fmt::format("{}; known is {}", version, kIndexVersion),
                    kPrepareAgain);
  const auto code = get<std::uint8_t>(bytes, 17);
  if (!is_known(code))
    throw FileError(name, "token type", fmt::format("code {} is no integer type", code),
                    kPrepareAgain);

  Index index;
  index.type_ = static_cast<TokenType>(code);
  index.sequences_ = get<std::uint64_t>(bytes, 18);
  const auto marks = get<std::uint64_t>(bytes, 26);
  ByteView rest = bytes.subspan(kIndexHeaderBytes);
  index.lengths_ = take(rest, index.sequences_, 4, name, "lengths");
  index.pointers_ = take(rest, index.sequences_, 8, name, "pointers");
  index.marks_ = take(rest, marks, 8, name, "document marks");
  if (!rest.empty() && rest.size() != index.sequences_)
    throw FileError(name, "end", fmt::format("{} bytes too many", rest.size()), kPrepareAgain);
  index.check_sequences(bin_bytes, name);
  index.check_marks(name);
  index.documents_ = marks - 1;
  return index;
}

void Index::check_sequences(std::uint64_t bin_bytes, const std::string& name) {
  const std::size_t size = size_of(type_);
  std::uint64_t expected = 0;  // cannot overflow: it never exceeds bin_bytes
  for (std::uint64_t s = 0; s < sequences_; ++s) {
    const auto length = item<std::int32_t>(lengths_, s);
    const auto pointer = item<std::int64_t>(pointers_, s);
    if (length < 0)
      throw FileError(name, "lengths", fmt::format("sequence {} has {} tokens", s, length),
                      kPrepareAgain);
    if (pointer < 0 || static_cast<std::uint64_t>(pointer) != expected)
      throw FileError(
          name, "pointers",
          fmt::format("sequence {} is at byte {}, should be at {}", s, pointer, expected),
          kPrepareAgain);
    const std::uint64_t bytes = static_cast<std::uint64_t>(length) * size;
    if (bytes > bin_bytes - expected)
      throw FileError(
          name, "lengths",
          fmt::format("sequence {} ends behind the {} bytes of the .bin file", s, bin_bytes),
          "the .bin file may be truncated; prepare the data again");
    expected += bytes;
  }
  if (expected != bin_bytes)
    throw FileError(
        name, "lengths",
        fmt::format("they make {} bytes, but the .bin file has {}", expected, bin_bytes),
        "the two files must come from the same run; prepare the data again");
  tokens_ = bin_bytes / size;
}

void Index::check_marks(const std::string& name) const {
  const std::uint64_t count = marks_.size() / 8;
  const auto refuse = [&](const std::string& what) {
    throw FileError(name, "document marks", what, kPrepareAgain);
  };
  if (count == 0) refuse("there are none; the least is the single mark 0");
  std::int64_t before = 0;
  for (std::uint64_t d = 0; d < count; ++d) {
    const auto mark = item<std::int64_t>(marks_, d);
    if (mark < before || static_cast<std::uint64_t>(mark) > sequences_ || (d == 0 && mark != 0))
      refuse(
          fmt::format("mark {} is {} behind {}, with {} sequences", d, mark, before, sequences_));
    before = mark;
  }
  if (static_cast<std::uint64_t>(before) != sequences_)
    refuse(fmt::format("the last is {}, should be {}", before, sequences_));
}

std::uint64_t Index::first_token(std::uint64_t sequence) const {
  if (sequence == sequences_) return tokens_;
  return static_cast<std::uint64_t>(item<std::int64_t>(pointers_, sequence)) / size_of(type_);
}

Index::Range Index::sequence(std::uint64_t s) const {
  return {first_token(s), first_token(s + 1)};
}

Index::Range Index::sequences_of(std::uint64_t d) const {
  return {static_cast<std::uint64_t>(item<std::int64_t>(marks_, d)),
          static_cast<std::uint64_t>(item<std::int64_t>(marks_, d + 1))};
}

Index::Range Index::document(std::uint64_t d) const {
  const Range sequences = sequences_of(d);
  return {first_token(sequences.begin), first_token(sequences.end)};
}

namespace {

// The first number in [0, count) of which `holds` is true; it stays true from there on.
template <class Holds>
std::uint64_t first_that(std::uint64_t count, const Holds& holds) {
  std::uint64_t begin = 0;
  while (count > 0) {
    const std::uint64_t half = count / 2;
    if (holds(begin + half)) {
      count = half;
    } else {
      begin += half + 1;
      count -= half + 1;
    }
  }
  return begin;
}

}  // namespace

// Empty sequences hold no token.
std::uint64_t Index::sequence_at(std::uint64_t token) const {
  return first_that(sequences_, [&](std::uint64_t s) { return first_token(s + 1) > token; });
}

bool Index::ends_document(std::uint64_t sequence) const {
  const auto next = static_cast<std::int64_t>(sequence + 1);
  const std::uint64_t count = marks_.size() / 8;
  const std::uint64_t found =
      first_that(count, [&](std::uint64_t d) { return item<std::int64_t>(marks_, d) >= next; });
  return found < count && item<std::int64_t>(marks_, found) == next;
}

void Index::find_completions(std::uint64_t first, std::span<bool> out) const {
  LACONIC_ASSERT(first <= tokens_ && out.size() <= tokens_ - first,
                 fmt::format("{} + {} tokens of {}", first, out.size(), tokens_));
  if (out.empty()) return;
  std::uint64_t s = sequence_at(first);
  bool is_completion = ends_document(s);
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (; first_token(s + 1) <= first + i; is_completion = ends_document(s)) ++s;
    out[i] = is_completion;
  }
}

IndexedDataset::IndexedDataset(const std::string& prefix)
    : prefix_(prefix),
      idx_(prefix + ".idx"),
      bin_(prefix + ".bin"),
      index_(parse_index(idx_.bytes(), bin_.bytes().size(), prefix + ".idx")) {}

void IndexedDataset::read(std::uint64_t first, std::span<std::int64_t> out) const {
  LACONIC_ASSERT(first <= tokens() && out.size() <= tokens() - first,
                 fmt::format("{} + {} tokens of {}", first, out.size(), tokens()));
  with_type(index_.type(), [&]<class T>(T) {
    const ByteView from = bin().subspan(first * sizeof(T));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = item<T>(from, i);
  });
}

namespace {

// The inner loop has a constant length so that -O2 vectorises it.
template <class T>
IndexedDataset::Extent extent_of(ByteView tokens) {
  constexpr std::size_t kBlock = 256;
  T least = std::numeric_limits<T>::max(), greatest = std::numeric_limits<T>::min();
  const auto take_in = [&](T token) {
    least = std::min(least, token);
    greatest = std::max(greatest, token);
  };
  std::array<T, kBlock> block;
  for (; tokens.size() >= sizeof block; tokens = tokens.subspan(sizeof block)) {
    std::memcpy(block.data(), tokens.data(), sizeof block);
    for (std::size_t i = 0; i < kBlock; ++i) take_in(block[i]);
  }
  for (std::size_t i = 0; i < tokens.size() / sizeof(T); ++i) take_in(item<T>(tokens, i));
  return {least, greatest};
}

}  // namespace

IndexedDataset::Extent IndexedDataset::extent() const {
  if (tokens() == 0) return {};
  return with_type(index_.type(), [&]<class T>(T) { return extent_of<T>(bin()); });
}

}  // namespace laconic
