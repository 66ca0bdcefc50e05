#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/factor.hpp"
#include "laconic/codec/kernel/conversion.hpp"

namespace laconic {

namespace {

// f16 and bf16 are added in f32 and rounded once. Going through buffers costs little: they stay in
// the first cache.
void add_floats(Dtype dtype, std::byte* sum, const std::byte* addend, std::uint64_t count) {
  constexpr std::uint64_t kPiece = 1024;
  std::array<float, kPiece> a, b;
  const std::uint64_t size = bytes_of(dtype);
  for (std::uint64_t i = 0; i < count; i += kPiece) {
    const std::uint64_t n = std::min(kPiece, count - i);
    widen_bytes(dtype, sum + i * size, n, a.data());
    widen_bytes(dtype, addend + i * size, n, b.data());
    kernel::conversion().add(a.data(), b.data(), n);
    narrow_bytes(dtype, a.data(), n, sum + i * size);
  }
}

// op(a, b) on elements of any alignment.
template <class T, class Op>
void combine(std::byte* sum, const std::byte* addend, std::uint64_t count, const Op& op) {
  for (std::uint64_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, sum + i * sizeof(T), sizeof(T));
    std::memcpy(&b, addend + i * sizeof(T), sizeof(T));
    a = op(a, b);
    std::memcpy(sum + i * sizeof(T), &a, sizeof(T));
  }
}

double add_doubles(double a, double b) {
  const double sum = a + b;
  return sum == sum ? sum : std::bit_cast<double>(std::uint64_t{0x7FF8} << 48);
}

// Unsigned, so that overflow wraps.
template <class T>
void add_integers(std::byte* sum, const std::byte* addend, std::uint64_t count) {
  combine<T>(sum, addend, count, [](T a, T b) { return static_cast<T>(a + b); });
}

void add_elements(Dtype dtype, std::byte* sum, const std::byte* addend, std::uint64_t count) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16: return add_floats(dtype, sum, addend, count);
    case Dtype::f64: return combine<double>(sum, addend, count, add_doubles);
    case Dtype::i64: return add_integers<std::uint64_t>(sum, addend, count);
    case Dtype::i32: return add_integers<std::uint32_t>(sum, addend, count);
    case Dtype::i16: return add_integers<std::uint16_t>(sum, addend, count);
    case Dtype::i8:
    case Dtype::u8: return add_integers<std::uint8_t>(sum, addend, count);
    case Dtype::boolean:
      return combine<std::uint8_t>(sum, addend, count, [](std::uint8_t a, std::uint8_t b) {
        return static_cast<std::uint8_t>(a | b);
      });
  }
}

// What of a payload is to be added: everything after `offset`, as elements of `dtype`.
struct Summands {
  std::size_t offset;
  Dtype dtype;
};

Summands summands_of(const CodecSpec& codec, const TensorSpec& tensor) {
  if (std::holds_alternative<RandomK>(codec)) return {8, value_dtype(tensor.dtype)};
  if (std::holds_alternative<AutoEncoder>(codec)) return {0, Dtype::f32};
  return {0, tensor.dtype};
}

}  // namespace

void add_payload(const CodecSpec& codec, const TensorSpec& tensor, std::span<std::byte> sum,
                 ByteView addend) {
  LACONIC_ASSERT(is_summable(codec), to_text(codec));
  if (sum.size() != addend.size())
    throw WireError(0, "payload",
                    fmt::format("{} bytes do not add to {}", addend.size(), sum.size()));
  if (sum.empty()) return;
  const auto [offset, dtype] = summands_of(codec, tensor);
  if (offset > 0 && get<std::uint64_t>(sum, 0) != get<std::uint64_t>(addend, 0))
    throw WireError(0, "payload.seed",
                    fmt::format("{} chose other elements than {}", get<std::uint64_t>(addend, 0),
                                get<std::uint64_t>(sum, 0)));
  const ScopedDenormals flush(true);
  add_elements(dtype, sum.data() + offset, addend.data() + offset,
               (sum.size() - offset) / bytes_of(dtype));
  // A learned code is never infinite: what overflows is NaN, as in encode().
  if (std::holds_alternative<AutoEncoder>(codec))
    settle_nan(dtype, sum.size() / bytes_of(dtype), sum.data());
}

}  // namespace laconic
