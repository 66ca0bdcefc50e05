#include "tests/golden/golden_frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "laconic/base/crc32c.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/transform_basis.hpp"

namespace laconic {

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kSequence = (7ull << 24) + 2;  // step 7, frame 2

// Ones at `places`, zeros elsewhere.
std::vector<float> sparse(std::size_t count, const std::vector<std::size_t>& places) {
  std::vector<float> data(count);
  for (const std::size_t i : places) data[i] = 1;
  return data;
}

template <class Integer>
void put_all(Bytes& out, const std::vector<float>& data) {
  for (const float x : data) put(out, static_cast<Integer>(x));
}

Bytes tensor_bytes(const TensorSpec& tensor, const std::vector<float>& data) {
  Bytes bytes;
  switch (tensor.dtype) {
    case Dtype::i64: put_all<std::int64_t>(bytes, data); break;
    case Dtype::i32: put_all<std::int32_t>(bytes, data); break;
    case Dtype::i16: put_all<std::int16_t>(bytes, data); break;
    case Dtype::i8: put_all<std::int8_t>(bytes, data); break;
    case Dtype::u8:
    case Dtype::boolean: put_all<std::uint8_t>(bytes, data); break;
    default:
      bytes.resize(data.size() * bytes_of(tensor.dtype));
      narrow_bytes(tensor.dtype, data.data(), data.size(), bytes.data());
  }
  return bytes;
}

// Maps for auto_encoder that a reader can follow: the code is the first numbers of a row.
struct FirstOfRow {
  FirstOfRow(std::size_t code, std::size_t columns) : e(code * columns), d(columns * code) {
    for (std::size_t i = 0; i < std::min(code, columns); ++i)
      e[i * columns + i] = 1, d[i * code + i] = 1;
  }
  LinearMaps maps() const { return {e.data(), d.data()}; }
  std::vector<float> e, d;
};

// A basis for transform that a reader can follow: columns 0, 1 and 2 of five, in 4, 2 and 1 bits.
TransformBasis basis_of_first() {
  TransformBasis basis{.columns = 5, .bits = {4, 2, 1}, .directions = std::vector<float>(15)};
  for (std::size_t i = 0; i < 3; ++i) basis.directions[i * 3 + i] = 1;
  basis.hash = hash_of(basis);
  return basis;
}

FirstOfRow maps_of(const CodecSpec& codec, const TensorSpec& tensor) {
  const auto* learned = std::get_if<AutoEncoder>(&codec);
  if (learned == nullptr) return {0, 0};
  return {static_cast<std::size_t>(learned->code), matrix_shape(tensor).columns};
}

}  // namespace

const std::vector<GoldenFrame>& golden_frames() {
  static const std::vector<GoldenFrame> all = {
#include "tests/golden/golden_table.inc"
  };
  return all;
}

const std::vector<InvalidFrame>& invalid_frames() {
  static const std::vector<InvalidFrame> all = {
      {"magic", "raw-2x3", 3, "47", true},
      {"version-2", "raw-2x3", 4, "02", true},
      {"codec-0", "raw-2x3", 5, "00", true},
      {"codec-11", "raw-2x3", 5, "0b", true},
      {"codec-with-other-parameters", "raw-2x3", 5, "03", true},
      {"dtype-11", "raw-2x3", 6, "0b", true},
      {"dims-9", "raw-2x3", 7, "09", true},
      {"visit-3", "raw-2x3", 8, "03", true},
      {"visit-of-integers", "token-ids-i64", 8, "01", true},
      {"parameters-beyond-the-end", "raw-2x3", 9, "ff", true},
      {"flag-unknown", "raw-2x3", 10, "0200", true},
      {"hash-of-a-lone-frame", "scalar-f64", 10, "0100", true},
      {"visits-of-a-lone-frame", "raw-2x3", 12, "01000000", true},
      {"difference-without-visits", "difference-with-hash", 12, "00000000", true},
      {"key-of-a-lone-frame", "raw-2x3", 24, "2a00000000000000", true},
      {"payload-too-short", "raw-2x3", 32, "1700000000000000", true},
      {"payload-beyond-the-end", "raw-2x3", 32, "ffffffffffffffff", true},
      {"shape-beyond-2-48", "raw-2x3", 40, "0100000000000100", true},
      {"shape-product-overflows", "raw-2x3", 40, "00000000000001000000000000000100", true},
      {"shape-of-another-size", "raw-2x3", 40, "0300000000000000", true},
      {"changed-on-the-way", "raw-2x3", 60, "01", false},
      {"half-another-nan", "half-f16-overflow-and-nan", 55, "017e", true},
      {"quantise-bits-9", "quantise-odd-length", 40, "09", true},
      {"quantise-infinite-scale", "quantise-odd-length", 58, "0000807f", true},
      {"quantise-padding", "quantise-odd-length", 68, "01", true},
      {"quantise-codes-of-a-zero-block", "quantise-odd-length", 67, "fd", true},
      {"sign-negative-scale", "sign-two-blocks", 52, "000090c0", true},
      {"sign-padding", "sign-two-blocks", 61, "05", true},
      {"top_k-method-3", "top_k-fixed", 65, "03", true},
      {"top_k-width", "top_k-fixed", 66, "0b", true},
      {"top_k-index-beyond-the-end", "top_k-fixed", 67, "fa00", true},
      {"top_k-another-count", "top_k-bitmap", 67, "d4", true},
      {"huffman-form-2", "huffman-coded", 49, "02", true},
      {"huffman-first-after-last", "huffman-coded", 50, "80", true},
      {"huffman-lengths-of-no-code", "huffman-coded", 52, "12", true},
      {"huffman-stream-too-long", "huffman-coded", 73, "05", true},
      {"huffman-padding", "huffman-coded", 85, "51", true},
      {"transform-form-2", "transform-directions", 66, "02", true},
      {"transform-no-direction", "transform-directions", 71, "000000000000000000", true},
      {"low_rank-infinite-factor", "low_rank-one", 61, "0000807f", true},
  };
  return all;
}

Bytes make_frame(const GoldenFrame& golden) {
  const FrameHeader header{parse_codec(golden.codec),
                           golden.tensor,
                           golden.visit,
                           golden.visits,
                           kSequence,
                           golden.key,
                           golden.hash};
  const FirstOfRow learned = maps_of(header.codec, header.tensor);
  CodecInput input;
  input.seed = golden.seed;
  input.maps = learned.maps();
  const TransformBasis basis = basis_of_first();
  input.transform = &basis;
  const Bytes data = tensor_bytes(golden.tensor, golden.data);
  Bytes message;
  const auto payload = open_frame(message, header);
  close_frame(message, 0, encode(header.codec, {header.tensor, data.data()}, input, payload));
  return message;
}

std::vector<float> decode_frame(const Frame& frame) {
  const TensorSpec& tensor = frame.header.tensor;
  const FirstOfRow learned = maps_of(frame.header.codec, tensor);
  CodecInput input;
  input.maps = learned.maps();
  const TransformBasis basis = basis_of_first();
  input.transform = &basis;
  const std::size_t count = elements_of(tensor);
  // As f32 where decode() computes in it; the other types come back by themselves.
  std::vector<float> numbers(count);
  Bytes bytes(count * bytes_of(tensor.dtype));
  decode(frame.header.codec, frame.payload, input, {tensor, bytes.data()});
  if (is_float(tensor.dtype)) {
    widen_bytes(tensor.dtype, bytes.data(), count, numbers.data());
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t value = 0;  // all golden integers are small and not negative
      std::memcpy(&value, bytes.data() + i * bytes_of(tensor.dtype), bytes_of(tensor.dtype));
      numbers[i] = static_cast<float>(value);
    }
  }
  return numbers;
}

Bytes make_frame(const InvalidFrame& invalid) {
  for (const GoldenFrame& golden : golden_frames()) {
    if (std::string_view(golden.name) != invalid.base) continue;
    Bytes frame = make_frame(golden);
    const Bytes change = bytes_of_hex(invalid.hex);
    std::copy(change.begin(), change.end(),
              frame.begin() + static_cast<std::ptrdiff_t>(invalid.at));
    if (!invalid.is_mended) return frame;
    frame.resize(frame.size() - kFrameCrcBytes);
    put(frame, crc32c(frame));
    return frame;
  }
  throw std::logic_error(fmt::format("no golden frame {}", invalid.base));
}

std::string hex_of(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

Bytes bytes_of_hex(std::string_view hex) {
  Bytes bytes;
  std::string digits;
  for (const char c : hex)
    if (c != ' ') digits += c;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace laconic
