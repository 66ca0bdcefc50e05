#include "laconic/tensor/learned_map.hpp"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

using Numbers = std::vector<double>;

at::Tensor matrix(const Numbers& numbers, std::int64_t rows, std::int64_t columns,
                  const at::TensorOptions& options) {
  return at::tensor(numbers, at::kDouble)
      .view({rows, columns})
      .to(options.dtype())
      .to(options.device());
}

Numbers uniform(std::int64_t count, double bound, Key key) {
  Numbers numbers(static_cast<std::size_t>(count));
  fill_uniform(key, 0, numbers);
  for (double& number : numbers) number = bound * (2 * number - 1);
  return numbers;
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

// Gram-Schmidt by rows, twice over, in plain loops: a library's QR gives other last bits on another
// processor, and then two ranks would start from different maps.
Numbers orthonormal_rows(std::int64_t rows, std::int64_t columns, Key key) {
  Numbers numbers(static_cast<std::size_t>(rows * columns));
  fill_normal(key, 0, 0.0, 1.0, std::span<double>(numbers));
  for (std::int64_t i = 0; i < rows; ++i) {
    double* row = numbers.data() + i * columns;
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t j = 0; j < i; ++j) {
        const double* earlier = numbers.data() + j * columns;
        const double overlap = dot(row, earlier, columns);
        for (std::int64_t c = 0; c < columns; ++c) row[c] -= overlap * earlier[c];
      }
    const double norm = std::sqrt(dot(row, row, columns));
    for (std::int64_t c = 0; c < columns; ++c) row[c] /= norm;
  }
  return numbers;
}

LearnedMap make_learned_map(std::int64_t width, std::int64_t code, MapStart start, Key key,
                            const at::TensorOptions& options) {
  LACONIC_ASSERT(code >= 1 && (start == MapStart::xavier || code <= width),
                 fmt::format("code = {}, width = {}", code, width));
  if (start == MapStart::orthogonal) {
    const at::Tensor encoder =
        matrix(orthonormal_rows(code, width, derive(key, "encoder")), code, width, options);
    return {encoder, encoder.t().contiguous()};
  }
  const double bound = std::sqrt(6.0 / static_cast<double>(width + code));
  return {matrix(uniform(width * code, bound, derive(key, "encoder")), code, width, options),
          matrix(uniform(width * code, bound, derive(key, "decoder")), width, code, options)};
}

at::Tensor map_down(const at::Tensor& x, const at::Tensor& encoder) {
  return x.matmul(encoder.t());
}

at::Tensor map_up(const at::Tensor& code, const at::Tensor& decoder) {
  return code.matmul(decoder.t());
}

LinearMaps host_maps(const LearnedMap& map) {
  for (const at::Tensor& side : {map.encoder, map.decoder})
    LACONIC_ASSERT(!side.defined() ||
                       (side.scalar_type() == at::kFloat && side.is_cpu() && side.is_contiguous()),
                   "maps of a host codec are f32, contiguous, on the CPU");
  return {map.encoder.defined() ? map.encoder.data_ptr<float>() : nullptr,
          map.decoder.defined() ? map.decoder.data_ptr<float>() : nullptr};
}

}  // namespace laconic
