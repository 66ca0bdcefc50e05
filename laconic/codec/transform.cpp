#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/transform_basis.hpp"

// Coordinates of the rows in the directions of the basis, direction by direction, go through the
// quantisers that there are: those with as many bits are one tensor whose rows are spans of one
// direction, with a scale each (sign for one bit, where a level at zero would leave none), and what
// is left over of the rows a second one. So nothing here packs bits or rounds scales.

namespace laconic::part {

namespace {

constexpr std::byte kPlainForm{0}, kTransformedForm{1};
constexpr std::size_t kClasses = 8;  // directions of 1 ... 8 bits
constexpr std::size_t kTransformHead = 1 + 4 + 2 * kClasses;

using DirectionCounts = std::array<std::size_t, kClasses>;  // by bits - 1

Quantise plain_codec(const Transform& codec) {
  return {.bits = 8, .block = 64, .scale = codec.scale};
}

// Directions of so many bits: a piece of the payload.
struct TransformPiece {
  int bits = 0;
  std::size_t first = 0, count = 0;  // directions
  std::size_t row = 0, rows = 0;     // of the matrix
  std::size_t span = 0;              // rows that share a scale
  TensorSpec tensor;                 // [directions * spans, span]
  std::size_t begin = 0, bytes = 0;  // in the payload
};

CodecSpec piece_codec(const Transform& codec, const TransformPiece& piece) {
  if (piece.bits == 1) return Sign{.block = static_cast<std::int64_t>(piece.span)};
  return Quantise{.bits = piece.bits, .group = ScaleGroup::row, .block = 0, .scale = codec.scale};
}

// Those with most bits first, as in the basis.
std::vector<TransformPiece> pieces_of(const Transform& codec, const TensorSpec& tensor,
                                      const DirectionCounts& counts) {
  const std::size_t rows = matrix_shape(tensor).rows;
  const auto span = static_cast<std::size_t>(codec.span);
  const std::size_t whole = rows / span * span;
  std::vector<TransformPiece> pieces;
  std::size_t first = 0, begin = kTransformHead;
  for (std::size_t bits = kClasses; bits > 0; first += counts[bits - 1], --bits)
    for (const auto& [row, count, length] :
         {std::tuple{std::size_t{0}, whole, span}, std::tuple{whole, rows - whole, rows - whole}}) {
      if (counts[bits - 1] == 0 || count == 0) continue;
      TransformPiece piece{
          .bits = static_cast<int>(bits),
          .first = first,
          .count = counts[bits - 1],
          .row = row,
          .rows = count,
          .span = length,
          .tensor = {.dtype = Dtype::f32,
                     .shape = {static_cast<std::int64_t>(counts[bits - 1] * count / length),
                               static_cast<std::int64_t>(length)}},
          .begin = begin};
      piece.bytes = max_payload_bytes(piece_codec(codec, piece), piece.tensor);
      begin += piece.bytes;
      pieces.push_back(std::move(piece));
    }
  return pieces;
}

std::size_t end_of_pieces(const std::vector<TransformPiece>& pieces) {
  return pieces.empty() ? kTransformHead : pieces.back().begin + pieces.back().bytes;
}

DirectionCounts counts_in(ByteView payload) {
  DirectionCounts counts{};
  for (std::size_t i = 0; i < kClasses; ++i) counts[i] = get<std::uint16_t>(payload, 5 + 2 * i);
  return counts;
}

DirectionCounts counts_of(const TransformBasis& basis) {
  DirectionCounts counts{};
  for (const std::uint8_t bits : basis.bits) ++counts[bits - 1U];
  return counts;
}

bool is_plain_form(ByteView payload) {
  return payload[0] == kPlainForm;
}

std::size_t encode_plain_form(const Transform& codec, const TensorSpec& tensor, const float* x,
                              const CodecInput& input, std::byte* out) {
  out[0] = kPlainForm;
  return 1 + encode(plain_codec(codec), tensor, x, input, out + 1);
}

// One piece of the coordinates [rows, kept], direction by direction, or back.
template <class Move>
void for_each_coordinate(const TransformPiece& piece, std::size_t kept, const Move& move) {
  for (std::size_t d = 0; d < piece.count; ++d)
    for (std::size_t r = 0; r < piece.rows; ++r)
      move(d * piece.rows + r, (piece.row + r) * kept + piece.first + d);
}

void require_basis(const TransformBasis* basis, const TensorSpec& tensor, ByteView payload) {
  const auto hash = get<std::uint32_t>(payload, 1);
  if (basis == nullptr)
    throw WireError(1, "payload.basis",
                    fmt::format("coded by basis {:08x}, and none is here", hash));
  if (hash != basis->hash || counts_in(payload) != counts_of(*basis) ||
      basis->columns != matrix_shape(tensor).columns)
    throw WireError(1, "payload.basis",
                    fmt::format("coded by basis {:08x} for {} columns, here is {:08x} for {}", hash,
                                matrix_shape(tensor).columns, basis->hash, basis->columns));
}

}  // namespace

std::size_t encode(const Transform& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  if (elements_of(tensor) == 0) return 0;
  const auto [rows, columns] = matrix_shape(tensor);
  const TransformBasis* basis = input.transform;
  if (basis == nullptr || basis->columns != columns)
    return encode_plain_form(codec, tensor, x, input, out);
  const DirectionCounts counts = counts_of(*basis);
  const std::vector<TransformPiece> pieces = pieces_of(codec, tensor, counts);
  if (end_of_pieces(pieces) >= max_payload_bytes(codec, tensor))
    return encode_plain_form(codec, tensor, x, input, out);
  const std::size_t kept = basis->bits.size();
  std::vector<float> coordinates(rows * kept), values;
  kernel::multiply(x, rows, columns, basis->directions.data(), kept, coordinates.data());
  out[0] = kTransformedForm;
  std::memcpy(out + 1, &basis->hash, 4);
  for (std::size_t i = 0; i < kClasses; ++i) {
    const auto count = static_cast<std::uint16_t>(counts[i]);
    std::memcpy(out + 5 + 2 * i, &count, 2);
  }
  for (const TransformPiece& piece : pieces) {
    values.resize(piece.count * piece.rows);
    for_each_coordinate(piece, kept,
                        [&](std::size_t to, std::size_t from) { values[to] = coordinates[from]; });
    if (piece.bits == 1)
      encode(std::get<Sign>(piece_codec(codec, piece)), piece.tensor, values.data(), input,
             out + piece.begin);
    else
      encode(std::get<Quantise>(piece_codec(codec, piece)), piece.tensor, values.data(), input,
             out + piece.begin);
  }
  return end_of_pieces(pieces);
}

void check_payload(const Transform& codec, const TensorSpec& tensor, ByteView payload) {
  if (elements_of(tensor) == 0) {
    if (!payload.empty())
      throw WireError(0, "payload", fmt::format("{} bytes of no elements", payload.size()));
    return;
  }
  if (payload.empty()) throw WireError(0, "payload", "is empty");
  if (is_plain_form(payload)) return check_payload(plain_codec(codec), tensor, payload.subspan(1));
  if (payload[0] != kTransformedForm)
    throw WireError(0, "payload.form",
                    fmt::format("{} is neither 0 nor 1", std::to_integer<int>(payload[0])));
  if (payload.size() < kTransformHead)
    throw WireError(0, "payload",
                    fmt::format("{} bytes, and a head has {}", payload.size(), kTransformHead));
  std::size_t directions = 0;
  const DirectionCounts counts = counts_in(payload);
  for (const std::size_t count : counts) directions += count;
  if (directions == 0 || directions > matrix_shape(tensor).columns)
    throw WireError(
        5, "payload.counts",
        fmt::format("{} directions of {} columns", directions, matrix_shape(tensor).columns));
  const std::vector<TransformPiece> pieces = pieces_of(codec, tensor, counts);
  if (payload.size() != end_of_pieces(pieces) || payload.size() >= max_payload_bytes(codec, tensor))
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}, less than {}", payload.size(),
                                end_of_pieces(pieces), max_payload_bytes(codec, tensor)));
  for (const TransformPiece& piece : pieces) {
    const ByteView bytes = payload.subspan(piece.begin, piece.bytes);
    try {
      laconic::check_payload(piece_codec(codec, piece), piece.tensor, bytes);
    } catch (const WireError& error) {
      throw WireError(piece.begin + error.offset(), error.field(), error.what());
    }
  }
}

void decode(const Transform& codec, const TensorSpec& tensor, ByteView payload,
            const CodecInput& input, float* out) {
  if (payload.empty()) return;
  if (is_plain_form(payload))
    return decode(plain_codec(codec), tensor, payload.subspan(1), input, out);
  const TransformBasis* basis = input.transform;
  require_basis(basis, tensor, payload);
  const auto [rows, columns] = matrix_shape(tensor);
  const std::size_t kept = basis->bits.size();
  std::vector<float> coordinates(rows * kept), values;
  for (const TransformPiece& piece : pieces_of(codec, tensor, counts_in(payload))) {
    values.resize(piece.count * piece.rows);
    const ByteView bytes = payload.subspan(piece.begin, piece.bytes);
    if (piece.bits == 1)
      decode(std::get<Sign>(piece_codec(codec, piece)), piece.tensor, bytes, input, values.data());
    else
      decode(std::get<Quantise>(piece_codec(codec, piece)), piece.tensor, bytes, input,
             values.data());
    for_each_coordinate(piece, kept,
                        [&](std::size_t from, std::size_t to) { coordinates[to] = values[from]; });
  }
  kernel::multiply_factors(coordinates.data(), rows, basis->directions.data(), columns, kept, out);
}

bool has_only_finite(const Transform& codec, const TensorSpec& tensor, ByteView payload) {
  if (payload.empty()) return true;
  if (is_plain_form(payload)) return is_finite(plain_codec(codec), tensor, payload.subspan(1));
  const std::vector<TransformPiece> pieces = pieces_of(codec, tensor, counts_in(payload));
  return std::ranges::all_of(pieces, [&](const TransformPiece& piece) {
    return is_finite(piece_codec(codec, piece), piece.tensor,
                     payload.subspan(piece.begin, piece.bytes));
  });
}

std::vector<Section> sections(const Transform& codec, const TensorSpec& tensor, ByteView payload) {
  if (payload.empty()) return {};
  std::vector<Section> all = {
      {"form", 0, 1, is_plain_form(payload) ? "0: plain" : "1: transformed"}};
  if (is_plain_form(payload)) {
    for (Section section : sections(plain_codec(codec), tensor, payload.subspan(1))) {
      ++section.offset;
      all.push_back(std::move(section));
    }
    return all;
  }
  all.push_back({"basis", 1, 4, "hash of the basis"});
  all.push_back({"counts", 5, 2 * kClasses, "directions of 1 ... 8 bits"});
  for (const TransformPiece& piece : pieces_of(codec, tensor, counts_in(payload)))
    all.push_back({fmt::format("bits_{}", piece.bits), piece.begin, piece.bytes,
                   fmt::format("{} directions of rows {} to {} by {}", piece.count, piece.row,
                               piece.row + piece.rows - 1, to_text(piece_codec(codec, piece)))});
  return all;
}

}  // namespace laconic::part
