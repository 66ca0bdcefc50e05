// Neighbouring gradients and activations differ in sign and fraction as noise does, but hardly in
// magnitude: of the eight bits around the exponent two to four are news. So numbers are turned by
// one bit, which brings the exponent into a byte of its own; those bytes get Huffman's code and the
// others travel as they are. Nothing is lost beyond the rounding to `kind`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/huffman_code.hpp"
#include "laconic/codec/huffman_stream.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

constexpr auto kPlain = std::byte{0}, kCoded = std::byte{1};
constexpr std::size_t kStreamSizes = (kHuffmanStreams - 1) * sizeof(std::uint32_t);
constexpr std::size_t kHeader = 3;  // form, first and last byte that occur

std::size_t lengths_bytes(unsigned first, unsigned last) {
  return first == last ? 0 : (last - first + 2) / 2;
}

// --- numbers as a coded byte and the rest. Word is u16 or u32.

template <class Word>
constexpr std::size_t kRest = sizeof(Word) - 1;

template <class Word>
unsigned coded_byte(Word turned) {
  return turned >> (8 * kRest<Word>);
}

template <class Word>
void put_rest(Word turned, std::byte* out) {
  std::memcpy(out, &turned, kRest<Word>);  // little-endian: the highest byte is left out
}

template <class Word>
Word joined(unsigned byte, const std::byte* rest) {
  Word turned = 0;
  std::memcpy(&turned, rest, kRest<Word>);
  return static_cast<Word>(turned | static_cast<Word>(byte) << (8 * kRest<Word>));
}

// The smallest coded byte of numbers that are not finite.
unsigned first_infinite(Dtype kind) {
  return kind == Dtype::f16 ? 0xF8 : 0xFF;
}

// op(Word) with the unsigned type of such a number.
template <class Op>
auto with_word(Dtype kind, const Op& op) {
  return kind == Dtype::f32 ? op(std::uint32_t{}) : op(std::uint16_t{});
}

// --- the parts of a coded payload

struct CodedPayload {
  unsigned first = 0, last = 0;  // bytes that occur
  CodeLengths lengths{};         // all zero when there is only one
  ByteView rest;
  std::array<ByteView, kHuffmanStreams> streams;  // empty when there is only one
  std::size_t streams_offset = 0;
};

void require_code(bool condition, std::size_t offset, const char* field, const std::string& what) {
  if (!condition) throw WireError(offset, field, what);
}

// Throws where the payload has no room for its parts or the lengths are those of no code.
CodedPayload split_coded(ByteView payload, std::size_t count, std::size_t rest_bytes) {
  require_code(payload.size() >= kHeader, 0, "payload",
               fmt::format("{} bytes instead of {} or more", payload.size(), kHeader));
  CodedPayload parts;
  parts.first = std::to_integer<unsigned>(payload[1]);
  parts.last = std::to_integer<unsigned>(payload[2]);
  require_code(parts.first <= parts.last, 1, "payload.first",
               fmt::format("{} is after the last, {}", parts.first, parts.last));
  const std::size_t length_bytes = lengths_bytes(parts.first, parts.last);
  const std::size_t sizes_offset = kHeader + length_bytes + count * rest_bytes;
  const bool is_constant = parts.first == parts.last;
  parts.streams_offset = sizes_offset + (is_constant ? 0 : kStreamSizes);
  require_code(payload.size() >= parts.streams_offset, 0, "payload",
               fmt::format("{} bytes instead of {} or more", payload.size(), parts.streams_offset));
  parts.rest = payload.subspan(kHeader + length_bytes, count * rest_bytes);
  ByteView left = payload.subspan(parts.streams_offset);
  if (is_constant) {
    require_code(left.empty(), parts.streams_offset, "payload",
                 fmt::format("{} bytes too many", left.size()));
    return parts;
  }
  for (std::size_t stream = 0; stream + 1 < kHuffmanStreams; ++stream) {
    const std::size_t at = sizes_offset + stream * sizeof(std::uint32_t);
    const std::size_t size = get<std::uint32_t>(payload, at);
    require_code(size <= left.size(), at, "payload.stream_bytes",
                 fmt::format("{} of {} that are left", size, left.size()));
    parts.streams[stream] = left.first(size);
    left = left.subspan(size);
  }
  parts.streams[kHuffmanStreams - 1] = left;
  const ByteView nibbles = payload.subspan(kHeader, length_bytes);
  for (unsigned byte = parts.first; byte <= parts.last; ++byte) {
    const unsigned i = byte - parts.first;
    const auto both = std::to_integer<unsigned>(nibbles[i / 2]);
    parts.lengths[byte] = static_cast<std::uint8_t>(i % 2 == 0 ? both >> 4 : both & 15);
  }
  const bool has_padding = (parts.last - parts.first) % 2 == 0;
  require_code(!has_padding || (std::to_integer<unsigned>(nibbles.back()) & 15) == 0,
               kHeader + length_bytes - 1, "payload.lengths", "padding that is not zero");
  require_code(parts.lengths[parts.first] > 0 && parts.lengths[parts.last] > 0, kHeader,
               "payload.lengths", "the first or the last byte has no code");
  require_code(is_complete_code(parts.lengths), kHeader, "payload.lengths",
               "no code has words of these lengths");
  return parts;
}

std::array<WordReader, kHuffmanStreams> readers_of(const CodedPayload& parts,
                                                   const DecodingTable& table) {
  std::array<WordReader, kHuffmanStreams> readers;
  for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream)
    readers[stream] = WordReader(table, parts.streams[stream]);
  return readers;
}

// op(element, byte) for all elements.
template <class Op>
void read_bytes(const CodedPayload& parts, std::size_t count, const Op& op) {
  if (parts.first == parts.last) {
    for (std::size_t i = 0; i < count; ++i) op(i, parts.first);
    return;
  }
  const DecodingTable table = decoding_table(parts.lengths);
  std::array<WordReader, kHuffmanStreams> readers = readers_of(parts, table);
  read_streams(readers, count, op);
}

void check_streams(const CodedPayload& parts, std::size_t count) {
  const DecodingTable table = decoding_table(parts.lengths);
  std::array<WordReader, kHuffmanStreams> readers = readers_of(parts, table);
  read_streams(readers, count, [](std::size_t, unsigned) {});
  std::size_t offset = parts.streams_offset;
  for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream) {
    const ByteView bytes = parts.streams[stream];
    const std::uint64_t bits = readers[stream].position();
    require_code((bits + 7) / 8 == bytes.size(), offset, "payload.codes",
                 fmt::format("{} bytes instead of {}", bytes.size(), (bits + 7) / 8));
    offset += bytes.size();
    require_code(bits % 8 == 0 || std::to_integer<unsigned>(bytes.back() << (bits % 8)) == 0,
                 offset - 1, "payload.codes", "padding that is not zero");
  }
}

template <class Word>
void check_coded(Dtype kind, std::size_t count, ByteView payload) {
  const CodedPayload parts = split_coded(payload, count, kRest<Word>);
  if (parts.first != parts.last) check_streams(parts, count);
  if (parts.last < first_infinite(kind)) return;
  const auto rest_offset = static_cast<std::size_t>(parts.rest.data() - payload.data());
  read_bytes(parts, count, [&](std::size_t i, unsigned byte) {
    if (byte < first_infinite(kind)) return;
    const Word number = std::rotr(joined<Word>(byte, parts.rest.data() + i * kRest<Word>), 1);
    const auto* bytes = reinterpret_cast<const std::byte*>(&number);
    require_code(find_odd_nan(kind, bytes, 1) == 1, rest_offset + i * kRest<Word>, "payload.values",
                 fmt::format("{:x} is not the NaN that is written", number));
  });
}

template <class Word>
void decode_coded(Dtype kind, std::size_t count, ByteView payload, float* out) {
  const CodedPayload parts = split_coded(payload, count, kRest<Word>);
  Scratch<Word> numbers(count);
  read_bytes(parts, count, [&](std::size_t i, unsigned byte) {
    numbers[i] = std::rotr(joined<Word>(byte, parts.rest.data() + i * kRest<Word>), 1);
  });
  widen(kind, numbers.data(), count, out);
}

template <class Word>
std::size_t encode_as(Dtype kind, const float* x, std::size_t count, std::byte* out) {
  Scratch<Word> numbers(count);
  narrow(kind, x, count, numbers.data());
  std::array<ByteCounts, kHuffmanStreams> counts{};
  const std::size_t stride = stream_run(count, 0).count;
  const auto add = [&](std::size_t stream, std::size_t i) {
    numbers[i] = std::rotl(numbers[i], 1);
    ++counts[stream][coded_byte(numbers[i])];
  };
  // The streams in turn: equal bytes in a row would wait for the same counter.
  const std::size_t common = stream_run(count, kHuffmanStreams - 1).count;
  for (std::size_t i = 0; i < common; ++i)
    for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream)
      add(stream, stream * stride + i);
  for (std::size_t stream = 0; stream + 1 < kHuffmanStreams; ++stream) {
    const StreamRun run = stream_run(count, stream);
    for (std::size_t i = common; i < run.count; ++i) add(stream, run.begin + i);
  }
  ByteCounts total_counts{};
  for (const ByteCounts& each : counts)
    std::ranges::transform(each, total_counts, total_counts.begin(), std::plus<>());
  const auto is_used = [](std::uint64_t n) { return n > 0; };
  const auto first =
      static_cast<unsigned>(std::ranges::find_if(total_counts, is_used) - total_counts.begin());
  unsigned last = 255;
  while (total_counts[last] == 0) --last;
  const CodeLengths lengths = huffman_lengths(total_counts);

  const std::size_t length_bytes = lengths_bytes(first, last);
  const std::size_t sizes_offset = kHeader + length_bytes + count * kRest<Word>;
  const bool is_constant = first == last;
  std::array<std::uint32_t, kHuffmanStreams> stream_bytes{};
  std::size_t total = sizes_offset + (is_constant ? 0 : kStreamSizes);
  for (std::size_t stream = 0; stream < kHuffmanStreams && !is_constant; ++stream) {
    std::uint64_t bits = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) bits += counts[stream][byte] * lengths[byte];
    stream_bytes[stream] = static_cast<std::uint32_t>((bits + 7) / 8);
    total += (bits + 7) / 8;
  }
  const bool is_too_long = count > std::numeric_limits<std::uint32_t>::max();  // for stream_bytes
  if (is_too_long || total >= 1 + count * sizeof(Word)) {
    out[0] = kPlain;
    narrow_bytes(kind, x, count, out + 1);
    return 1 + count * sizeof(Word);
  }
  out[0] = kCoded;
  out[1] = static_cast<std::byte>(first);
  out[2] = static_cast<std::byte>(last);
  for (std::size_t i = 0; i < length_bytes; ++i) {
    const unsigned byte = first + 2 * static_cast<unsigned>(i);
    const unsigned low = byte < last ? lengths[byte + 1] : 0u;
    out[kHeader + i] = static_cast<std::byte>(lengths[byte] << 4 | low);
  }
  std::byte* rest = out + kHeader + length_bytes;
  for (std::size_t i = 0; i < count; ++i, rest += kRest<Word>) put_rest(numbers[i], rest);
  if (is_constant) return total;
  std::memcpy(rest, stream_bytes.data(), kStreamSizes);
  std::byte* codes = rest + kStreamSizes;
  const std::array<std::uint16_t, 256> words = canonical_words(lengths);
  for (std::size_t stream = 0; stream < kHuffmanStreams; ++stream) {
    const StreamRun run = stream_run(count, stream);
    BitWriter writer(codes);
    for (std::size_t i = run.begin; i < run.begin + run.count; ++i) {
      const unsigned byte = coded_byte(numbers[i]);
      writer.write(words[byte], lengths[byte]);
    }
    codes = writer.finish();
  }
  return total;
}

}  // namespace

std::size_t encode(const Huffman& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput&, std::byte* out) {
  const std::size_t count = elements_of(tensor);
  if (count == 0) return 0;
  return with_word(codec.kind,
                   [&](auto word) { return encode_as<decltype(word)>(codec.kind, x, count, out); });
}

void check_payload(const Huffman& codec, const TensorSpec& tensor, ByteView payload) {
  const std::size_t count = elements_of(tensor);
  const std::size_t most = max_payload_bytes(codec, tensor);
  if (payload.size() > most || (payload.empty() && count > 0))
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {} or fewer", payload.size(), most));
  if (count == 0) return;
  if (payload[0] == kPlain) {
    const ByteView values = payload.subspan(1);
    if (payload.size() != most)
      throw WireError(0, "payload", fmt::format("{} bytes instead of {}", payload.size(), most));
    const std::size_t odd = find_odd_nan(codec.kind, values.data(), count);
    if (odd < count)
      throw WireError(1 + odd * bytes_of(codec.kind), "payload.values",
                      "a NaN that is not the one that is written");
    return;
  }
  if (payload[0] != kCoded)
    throw WireError(0, "payload.form",
                    fmt::format("{} is neither 0 nor 1", std::to_integer<int>(payload[0])));
  if (payload.size() == most)
    throw WireError(0, "payload", "coded, but no shorter than the plain numbers");
  with_word(codec.kind,
            [&](auto word) { check_coded<decltype(word)>(codec.kind, count, payload); });
}

void decode(const Huffman& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&,
            float* out) {
  const std::size_t count = elements_of(tensor);
  if (count == 0) return;
  if (payload[0] == kPlain) return widen_bytes(codec.kind, payload.data() + 1, count, out);
  with_word(codec.kind,
            [&](auto word) { decode_coded<decltype(word)>(codec.kind, count, payload, out); });
}

bool has_only_finite(const Huffman& codec, const TensorSpec& tensor, ByteView payload) {
  if (payload.empty()) return true;
  if (payload[0] == kPlain)
    return is_finite(CodecSpec(Raw{}), {codec.kind, tensor.shape}, payload.subspan(1));
  return std::to_integer<unsigned>(payload[2]) < first_infinite(codec.kind);
}

std::vector<Section> sections(const Huffman& codec, const TensorSpec& tensor, ByteView payload) {
  if (payload.empty()) return {};
  const std::size_t count = elements_of(tensor);
  if (payload[0] == kPlain)
    return {{"form", 0, 1, "plain"},
            {"values", 1, payload.size() - 1,
             fmt::format("{} {}, row-major", count, name_of(codec.kind))}};
  const std::size_t rest_bytes = bytes_of(codec.kind) - 1;
  const CodedPayload parts = split_coded(payload, count, rest_bytes);
  const std::size_t length_bytes = lengths_bytes(parts.first, parts.last);
  std::vector<Section> all = {
      {"form", 0, kHeader, fmt::format("coded, bytes {} to {}", parts.first, parts.last)},
      {"lengths", kHeader, length_bytes, "4 bits for each byte's code"},
      {"rest", kHeader + length_bytes, parts.rest.size(),
       fmt::format("{} times {} plain", count, rest_bytes)}};
  if (parts.first == parts.last) return all;
  const std::size_t code_bytes = payload.size() - parts.streams_offset;
  all.push_back({"stream_bytes", parts.streams_offset - kStreamSizes, kStreamSizes,
                 "3 u32; the fourth stream has the rest"});
  all.push_back({"codes", parts.streams_offset, code_bytes,
                 fmt::format("{:.2f} bits an element",
                             8.0 * static_cast<double>(code_bytes) / static_cast<double>(count))});
  return all;
}

}  // namespace laconic::part
