#include <cstring>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"

namespace laconic {

namespace {

// True if no number has all exponent bits set. Word is as wide as the number; no alignment needed.
template <class Word>
bool no_exponent_is_full(const std::byte* bytes, std::size_t count, Word exponent) {
  Word found = 0;  // no early end: the loop then runs on vectors, and damage is rare
  for (std::size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    found |= static_cast<Word>((word & exponent) == exponent);
  }
  return found == 0;
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
    case ScaleType::pow2: return no_exponent_is_full<std::uint8_t>(scales, count, 0xFF);
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

}  // namespace

bool is_finite(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  return std::visit([&](const auto& c) { return check_one(c, tensor, payload); }, codec);
}

bool is_finite(const float* values, std::size_t count) {
  return are_finite(Dtype::f32, reinterpret_cast<const std::byte*>(values), count);
}

}  // namespace laconic
