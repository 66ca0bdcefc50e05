#include <algorithm>
#include <cstring>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/part.hpp"

namespace laconic {

namespace {

// True if no number has all exponent bits set. Eight bytes at a time: where the exponent is full,
// adding its lowest bit carries into the place of the sign, which was cleared, and no further. No
// early end, since damage is rare. No alignment needed.
template <class Word>
bool no_exponent_is_full(const std::byte* bytes, std::size_t count, Word exponent) {
  constexpr std::size_t kLanes = 8 / sizeof(Word);
  constexpr std::uint64_t kEach = ~std::uint64_t{0} / std::numeric_limits<Word>::max();
  const std::uint64_t exponents = kEach * exponent;
  const std::uint64_t lowest = kEach * static_cast<Word>(exponent & (~exponent + 1u));
  const std::uint64_t signs = kEach << (8 * sizeof(Word) - 1);
  std::uint64_t found = 0;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::uint64_t words;
    std::memcpy(&words, bytes + i * sizeof(Word), sizeof words);
    found |= (words & exponents) + lowest;
  }
  std::uint64_t rest = 0;
  if (i < count) std::memcpy(&rest, bytes + i * sizeof(Word), (count - i) * sizeof(Word));
  found |= (rest & exponents) + lowest;
  return (found & signs) == 0;
}

bool are_finite(Dtype dtype, const std::byte* bytes, std::size_t count) {
  switch (dtype) {
    case Dtype::f32: return no_exponent_is_full<std::uint32_t>(bytes, count, 0x7F800000);
    case Dtype::f16: return no_exponent_is_full<std::uint16_t>(bytes, count, 0x7C00);
    case Dtype::bf16: return no_exponent_is_full<std::uint16_t>(bytes, count, 0x7F80);
    case Dtype::f64: return no_exponent_is_full<std::uint64_t>(bytes, count, 0x7FF0000000000000);
    default: return true;  // integers
  }
}

bool are_finite(Dtype dtype, ByteView bytes) {
  return are_finite(dtype, bytes.data(), bytes.size() / bytes_of(dtype));
}

bool check_one(const Raw&, const TensorSpec& tensor, ByteView payload) {
  return are_finite(tensor.dtype, payload);
}

bool check_one(const Half& c, const TensorSpec&, ByteView payload) {
  return are_finite(c.kind, payload);
}

bool check_one(const Quantise& c, const TensorSpec& tensor, ByteView payload) {
  const std::size_t count = scale_count(c, tensor);
  const std::byte* scales = payload.data() + (c.rotate ? sizeof(std::uint64_t) : 0);
  switch (c.scale) {
    case ScaleType::f32: return are_finite(Dtype::f32, scales, count);
    case ScaleType::f16: return are_finite(Dtype::f16, scales, count);
    case ScaleType::pow2:
      return std::find(scales, scales + count, std::byte{0xFF}) == scales + count;
  }
  return false;
}

bool check_one(const Sign& c, const TensorSpec& tensor, ByteView payload) {
  const auto block = static_cast<std::uint64_t>(c.block);
  return are_finite(Dtype::f32, payload.data(), (elements_of(tensor) + block - 1) / block);
}

// Kept values come last in the payload.
bool check_kept(const Kept& kept, const ValueSpec& values, const TensorSpec& tensor,
                ByteView payload) {
  const TensorSpec flat = value_tensor(tensor.dtype, kept_count(kept, elements_of(tensor)));
  const CodecSpec codec = std::visit([](const auto& v) { return CodecSpec(v); }, values);
  return is_finite(codec, flat, payload.last(max_payload_bytes(codec, flat)));
}

bool check_one(const TopK& c, const TensorSpec& tensor, ByteView payload) {
  return payload.empty() || check_kept(c.kept, c.values, tensor, payload);
}

bool check_one(const RandomK& c, const TensorSpec& tensor, ByteView payload) {
  return payload.empty() || check_kept(c.kept, c.values, tensor, payload);
}

bool check_one(const LowRank& c, const TensorSpec&, ByteView payload) {
  return are_finite(c.factors, payload);
}

bool check_one(const AutoEncoder& c, const TensorSpec&, ByteView payload) {
  return are_finite(c.values, payload);
}

bool check_one(const Huffman& c, const TensorSpec& tensor, ByteView payload) {
  return part::has_only_finite(c, tensor, payload);
}

bool check_one(const Transform& c, const TensorSpec& tensor, ByteView payload) {
  return part::has_only_finite(c, tensor, payload);
}

}  // namespace

bool is_finite(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  return std::visit([&](const auto& c) { return check_one(c, tensor, payload); }, codec);
}

bool is_finite(const float* values, std::size_t count) {
  return are_finite(Dtype::f32, reinterpret_cast<const std::byte*>(values), count);
}

}  // namespace laconic
