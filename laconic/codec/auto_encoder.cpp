#include <fmt/format.h>

#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/codec/factor.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

struct EncoderShape {
  EncoderShape(const AutoEncoder& codec, const TensorSpec& tensor)
      : rows(elements_of(tensor) == 0 ? 0 : matrix_shape(tensor).rows),
        columns(matrix_shape(tensor).columns),
        code(static_cast<std::size_t>(codec.code)),
        width(bytes_of(codec.values)) {}
  std::size_t values() const { return rows * code; }
  std::size_t bytes() const { return values() * width; }

  std::size_t rows, columns, code;
  std::size_t width;  // bytes of a value
};

// E[code, columns] as [columns, code].
std::vector<float> transposed(const float* encoder, const EncoderShape& shape) {
  std::vector<float> result(shape.columns * shape.code);
  for (std::size_t j = 0; j < shape.columns; ++j)
    for (std::size_t c = 0; c < shape.code; ++c)
      result[j * shape.code + c] = encoder[c * shape.columns + j];
  return result;
}

}  // namespace

std::size_t encode(const AutoEncoder& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  const EncoderShape shape(codec, tensor);
  if (shape.values() == 0) return 0;
  LACONIC_ASSERT(input.maps.encoder != nullptr, to_text(codec));
  const std::vector<float> map = transposed(input.maps.encoder, shape);
  std::vector<float> z(shape.values());
  kernel::multiply(x, shape.rows, shape.columns, map.data(), shape.code, z.data());
  put_factors(codec.values, z.data(), z.size(), out);
  settle_nan(codec.values, z.size(), out);
  return shape.bytes();
}

void check_payload(const AutoEncoder& codec, const TensorSpec& tensor, ByteView payload) {
  const EncoderShape shape(codec, tensor);
  if (payload.size() != shape.bytes())
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}: a code of {} for each of {} rows",
                                payload.size(), shape.bytes(), shape.code, shape.rows));
  const FactorCount found = count_factors(codec.values, payload.data(), shape.values());
  if (found.unfit > 0)
    throw WireError(found.first_unfit * shape.width, "payload.values",
                    "an infinity or a NaN that no encoder writes");
}

void decode(const AutoEncoder& codec, const TensorSpec& tensor, ByteView payload,
            const CodecInput& input, float* out) {
  const EncoderShape shape(codec, tensor);
  if (shape.values() == 0) return;
  LACONIC_ASSERT(input.maps.decoder != nullptr, to_text(codec));
  std::vector<float> z(shape.values());
  get_factors(codec.values, payload.data(), z.size(), z.data());
  kernel::multiply_factors(z.data(), shape.rows, input.maps.decoder, shape.columns, shape.code,
                           out);
}

std::vector<Section> sections(const AutoEncoder& codec, const TensorSpec& tensor, ByteView) {
  const EncoderShape shape(codec, tensor);
  return {{"values", 0, shape.bytes(),
           fmt::format("{} x {} {}, one code per row of the matrix", shape.rows, shape.code,
                       name_of(codec.values))}};
}

}  // namespace laconic::part
