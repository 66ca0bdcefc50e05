#include "laconic/codec/reference/reference.hpp"
#include "laconic/codec/reference/reference_float.hpp"

namespace laconic::reference {

namespace {

Floats values_of(Dtype dtype, ByteView payload) {
  Floats values;
  for (std::size_t at = 0; at < payload.size(); at += bytes_of(dtype))
    values.push_back(dtype == Dtype::f32 ? get<float>(payload, at)
                                         : widened(dtype, get<std::uint16_t>(payload, at)));
  return values;
}

// Element (i, j) is the sum over c, in order, of left(i, c) * right(j, c).
Floats sum_of_products(const float* left, std::size_t n, const float* right, std::size_t m,
                       std::size_t r) {
  Floats out(n * m);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j)
      for (std::size_t c = 0; c < r; ++c) {
        const float product = left[i * r + c] * right[j * r + c];
        out[i * m + j] = c == 0 ? product : out[i * m + j] + product;
      }
  return out;
}

}  // namespace

Floats decode(const LowRank& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&) {
  const auto [n, m] = matrix_shape(tensor);
  const std::uint64_t r = effective_rank(codec, tensor);
  const Floats factors = values_of(codec.factors, payload);
  return sum_of_products(factors.data(), n, factors.data() + n * r, m, r);
}

Floats decode(const AutoEncoder& codec, const TensorSpec& tensor, ByteView payload,
              const CodecInput& input) {
  const auto [n, m] = matrix_shape(tensor);
  const Floats z = values_of(codec.values, payload);
  return sum_of_products(z.data(), n, input.maps.decoder, m, static_cast<std::size_t>(codec.code));
}

}  // namespace laconic::reference
