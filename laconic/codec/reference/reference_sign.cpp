#include <bit>
#include <cmath>

#include "laconic/codec/reference/reference.hpp"

namespace laconic::reference {

namespace {

std::size_t block_of(const Sign& codec) {
  return static_cast<std::size_t>(codec.block);
}

float sum_of_piece(const Floats& x, std::size_t begin, std::size_t end) {
  float sums[16] = {};
  for (std::size_t i = begin; i < end; ++i) sums[(i - begin) % 16] += std::fabs(x[i]);
  for (const std::size_t h : {8, 4, 2, 1})
    for (std::size_t j = 0; j < h; ++j) sums[j] += sums[j + h];
  return sums[0];
}

float mean_magnitude(const Floats& x, std::size_t begin, std::size_t end) {
  double total = 0;
  for (std::size_t piece = begin; piece < end; piece += 4096)
    total += static_cast<double>(sum_of_piece(x, piece, std::min(piece + 4096, end)));
  const double mean = total / static_cast<double>(end - begin);
  if (!std::isfinite(mean)) return std::bit_cast<float>(0x7FC00000u);
  return mean < 0x1p-126 ? 0.0f : static_cast<float>(mean);
}

}  // namespace

Bytes encode(const Sign& codec, const TensorSpec&, const Floats& x, const CodecInput&) {
  Bytes payload;
  for (std::size_t begin = 0; begin < x.size(); begin += block_of(codec))
    put(payload, mean_magnitude(x, begin, std::min(begin + block_of(codec), x.size())));
  for (std::size_t begin = 0; begin < x.size(); begin += 8) {
    unsigned byte = 0;
    for (std::size_t i = begin; i < std::min(begin + 8, x.size()); ++i)
      if (std::signbit(x[i])) byte |= 1u << (i - begin);
    put(payload, static_cast<std::uint8_t>(byte));
  }
  return payload;
}

Floats decode(const Sign& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&) {
  const std::size_t count = elements_of(tensor);
  const std::size_t blocks = (count + block_of(codec) - 1) / block_of(codec);
  Floats x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto scale = get<std::uint32_t>(payload, 4 * (i / block_of(codec)));
    const auto byte = get<std::uint8_t>(payload, 4 * blocks + i / 8);
    x[i] = std::bit_cast<float>((byte >> i % 8 & 1) != 0 ? scale ^ 0x80000000u : scale);
  }
  return x;
}

}  // namespace laconic::reference
