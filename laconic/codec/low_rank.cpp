#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/factor.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic::part {

namespace {

constexpr std::uint64_t kStartStream = 4;

struct FactorShape {
  FactorShape(const LowRank& codec, const TensorSpec& tensor)
      : rows(matrix_shape(tensor).rows),
        columns(matrix_shape(tensor).columns),
        rank(effective_rank(codec, tensor)),
        width(bytes_of(codec.factors)) {}
  std::size_t factors() const { return (rows + columns) * rank; }
  std::size_t bytes() const { return factors() * width; }

  std::size_t rows, columns, rank;
  std::size_t width;  // bytes of a factor
};

// The subspace to begin with: that of the last call, or one drawn from the seed.
std::vector<float> start_of(const FactorShape& shape, const CodecInput& input) {
  const Key key = derive(key_of(input.seed), kStartStream);
  const std::size_t size = shape.columns * shape.rank;
  std::vector<float> start;
  if (input.basis != nullptr && input.basis->size() == size) {
    start = *input.basis;
  } else {
    start.resize(size);
    draw_start(start.data(), shape.columns, shape.rank, key);
  }
  orthonormalise_start(start.data(), shape.columns, shape.rank, key);
  return start;
}

// P (rows * rank) and Q (columns * rank) of one step of subspace iteration. False if a number is
// not finite: an element of x that is not makes its whole row of x Q so, since nothing times an
// infinity or NaN is finite.
bool factorise(const FactorShape& shape, const float* x, std::vector<float>& p,
               std::vector<float>& q) {
  kernel::multiply(x, shape.rows, shape.columns, q.data(), shape.rank, p.data());
  if (!is_finite(p.data(), p.size())) return false;
  orthonormalise(p.data(), shape.rows, shape.rank);
  kernel::multiply_transposed(x, shape.rows, shape.columns, p.data(), shape.rank, q.data());
  return is_finite(q.data(), q.size());
}

bool write_factors(const FactorShape& shape, Dtype dtype, const std::vector<float>& p,
                   const std::vector<float>& q, std::byte* out) {
  put_factors(dtype, p.data(), p.size(), out);
  put_factors(dtype, q.data(), q.size(), out + p.size() * shape.width);
  const FactorCount found = count_factors(dtype, out, shape.factors());
  return found.nan + found.unfit == 0;  // narrowing to f16 may have made infinities
}

}  // namespace

std::size_t encode(const LowRank& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  const FactorShape shape(codec, tensor);
  if (shape.factors() == 0) return 0;
  std::vector<float> q = start_of(shape, input), p(shape.rows * shape.rank);
  const bool finite = factorise(shape, x, p, q);
  if (!finite || !write_factors(shape, codec.factors, p, q, out))
    fill_nan(codec.factors, shape.factors(), out);
  // As computed, not as rounded for the wire: it is only a direction to begin from.
  if (!finite) q.clear();
  if (input.basis != nullptr) *input.basis = std::move(q);
  return shape.bytes();
}

void check_payload(const LowRank& codec, const TensorSpec& tensor, ByteView payload) {
  const FactorShape shape(codec, tensor);
  if (payload.size() != shape.bytes())
    throw WireError(
        0, "payload",
        fmt::format("{} bytes instead of {}: two factors of {} columns for {} x {}", payload.size(),
                    shape.bytes(), shape.rank, shape.rows, shape.columns));
  const FactorCount found = count_factors(codec.factors, payload.data(), shape.factors());
  if (found.unfit > 0)
    throw WireError(found.first_unfit * shape.width, "payload.factors",
                    "an infinity or a NaN that no encoder writes");
  if (found.nan != 0 && found.nan != shape.factors())
    throw WireError(found.first_nan * shape.width, "payload.factors",
                    fmt::format("{} of {} are NaN; all are or none", found.nan, shape.factors()));
}

void decode(const LowRank& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&,
            float* out) {
  const FactorShape shape(codec, tensor);
  std::vector<float> factors(shape.factors());
  get_factors(codec.factors, payload.data(), factors.size(), factors.data());
  kernel::multiply_factors(factors.data(), shape.rows, factors.data() + shape.rows * shape.rank,
                           shape.columns, shape.rank, out);
}

std::vector<Section> sections(const LowRank& codec, const TensorSpec& tensor, ByteView) {
  const FactorShape shape(codec, tensor);
  const std::size_t split = shape.rows * shape.rank * shape.width;
  const auto meaning = [&](std::size_t rows, const char* of) {
    return fmt::format("{} x {} {}, one row per {} of the matrix", rows, shape.rank,
                       name_of(codec.factors), of);
  };
  return {{"P", 0, split, meaning(shape.rows, "row")},
          {"Q", split, shape.bytes() - split, meaning(shape.columns, "column")}};
}

}  // namespace laconic::part
