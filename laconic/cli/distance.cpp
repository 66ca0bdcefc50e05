#include "laconic/cli/distance.hpp"

#include <cmath>

#include "laconic/codec/convert.hpp"

namespace laconic {

namespace {

double element_at(Dtype dtype, ByteView bytes, std::size_t i) {
  const std::size_t at = i * bytes_of(dtype);
  switch (dtype) {
    case Dtype::f64: return get<double>(bytes, at);
    case Dtype::i64: return static_cast<double>(get<std::int64_t>(bytes, at));
    case Dtype::i32: return get<std::int32_t>(bytes, at);
    case Dtype::i16: return get<std::int16_t>(bytes, at);
    case Dtype::i8: return get<std::int8_t>(bytes, at);
    case Dtype::u8:
    case Dtype::boolean: return get<std::uint8_t>(bytes, at);
    default: break;
  }
  float value = 0;
  widen_bytes(dtype, bytes.data() + at, 1, &value);
  return value;
}

}  // namespace

double Distance::relative_error() const {
  return square_error == 0 ? 0 : std::sqrt(square_error / square_x);
}

double Distance::cosine() const {
  return square_error == 0 ? 1 : product / std::sqrt(square_x * square_y);
}

Distance distance_of(Dtype dtype, ByteView x, ByteView y) {
  Distance d;
  for (std::size_t i = 0; i < x.size() / bytes_of(dtype); ++i) {
    const double a = element_at(dtype, x, i), b = element_at(dtype, y, i), error = std::abs(a - b);
    d.square_error += error * error;
    d.square_x += a * a;
    d.square_y += b * b;
    d.product += a * b;
    if (!(error <= d.max_error)) d.max_error = error;  // NaN too, and it stays
  }
  return d;
}

}  // namespace laconic
