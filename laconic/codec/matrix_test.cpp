#include "laconic/codec/kernel/matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/codec/test_matrix.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 65, 300, 600};
constexpr std::size_t kRanks[] = {0, 1, 3, 4, 5, 8, 9, 16, 17, 33};

// sum of term(0) ... term(count - 1) as the header says it.
template <class Term>
float blocked_sum(std::size_t count, const Term& term) {
  float total = 0;
  for (std::size_t begin = 0; begin < count; begin += kernel::kSumBlock) {
    float block = 0;
    for (std::size_t k = begin; k < std::min(begin + kernel::kSumBlock, count); ++k)
      block += term(k);
    total += block;
  }
  return total;
}

template <class Body>
void for_each_shape(const Body& body) {
  for (const std::size_t n : kSizes)
    for (const std::size_t m : kSizes)
      for (const std::size_t r : kRanks) {
        if (n * m * r > 400'000) continue;
        SCOPED_TRACE(fmt::format("n = {}, m = {}, r = {}", n, m, r));
        body(n, m, r);
      }
}

TEST(MatrixKernel, ProductsAreTheSameChainOfOperationsOnEveryTarget) {
  for_each_shape([](std::size_t n, std::size_t m, std::size_t r) {
    const Matrix a = normal_floats(n * m, 1), q = normal_floats(m * r, 2);
    const Matrix p = normal_floats(n * r, 3);
    Matrix y(n * r), z(m * r), out(n * m);
    for (std::size_t c = 0; c < r; ++c) {
      for (std::size_t i = 0; i < n; ++i)
        y[i * r + c] = blocked_sum(m, [&](std::size_t j) { return a[i * m + j] * q[j * r + c]; });
      for (std::size_t j = 0; j < m; ++j)
        z[j * r + c] = blocked_sum(n, [&](std::size_t i) { return a[i * m + j] * p[i * r + c]; });
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < m; ++j) {
          const float product = p[i * r + c] * q[j * r + c];
          out[i * m + j] = c == 0 ? product : out[i * m + j] + product;
        }
    }
    for_each_target([&] {
      Matrix y2(n * r, -1.0F), z2(m * r, -1.0F), out2(n * m, -1.0F);
      kernel::multiply(a.data(), n, m, q.data(), r, y2.data());
      kernel::multiply_transposed(a.data(), n, m, p.data(), r, z2.data());
      kernel::multiply_factors(p.data(), n, q.data(), m, r, out2.data());
      ASSERT_EQ(bits_of(y2), bits_of(y));
      ASSERT_EQ(bits_of(z2), bits_of(z));
      ASSERT_EQ(bits_of(out2), bits_of(out));
    });
  });
}

// max |x^T x - I| over the columns that are not zero; `zero` counts the others.
double worst_angle(const Matrix& x, std::size_t rows, std::size_t r, std::size_t& zero) {
  double worst = 0;
  zero = 0;
  for (std::size_t a = 0; a < r; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < rows; ++i)
        dot += static_cast<double>(x[i * r + a]) * static_cast<double>(x[i * r + b]);
      if (a == b && dot == 0)
        ++zero;
      else
        worst = std::max(worst, std::abs(dot - (a == b ? 1.0 : 0.0)));
    }
  return worst;
}

TEST(Subspace, ColumnsBecomeOrthonormalWhateverTheScale) {
  for (const float scale : {1.0F, 1e-6F, 1e-12F, 1e-30F, 1e30F})
    for (const std::size_t rows : {1, 7, 8, 9, 33, 500}) {
      const std::size_t r = std::min<std::size_t>(rows, 12);
      Matrix x = scaled(normal_floats(rows * r, 5), scale);
      orthonormalise(x.data(), rows, r);
      std::size_t zero = 0;
      EXPECT_LE(worst_angle(x, rows, r, zero), 1e-6) << rows << " rows, scale " << scale;
      EXPECT_EQ(zero, 0u);
    }
}

TEST(Subspace, DependentColumnsBecomeZeroAndNearlyDependentOnesStayOrthogonal) {
  constexpr std::size_t kRows = 100, kCount = 5;
  Matrix x = normal_floats(kRows * kCount, 6);
  for (std::size_t i = 0; i < kRows; ++i) {
    float* row = x.data() + i * kCount;
    row[1] = -3.0F * row[0];                    // a multiple
    row[3] = row[0] + row[2] + 1e-4F * row[3];  // almost a sum
    row[4] = 0;
  }
  orthonormalise(x.data(), kRows, kCount);
  std::size_t zero = 0;
  EXPECT_LE(worst_angle(x, kRows, kCount, zero), 1e-6);
  EXPECT_EQ(zero, 2u);
  EXPECT_EQ(x[1], 0.0F);
  EXPECT_EQ(x[4], 0.0F);
}

// Each column is nearly in the span of those before it, by whole numbers that f32 adds without
// rounding. What rounding leaves of one projection is then thousands of times larger in the next
// column: only a second projection ends that.
TEST(Subspace, AChainOfNearlyDependentColumnsStaysOrthogonal) {
  constexpr std::size_t kRows = 64, kCount = 6;
  Matrix directions = normal_floats(kRows * kCount, 16);
  for (float& x : directions) x = std::round(4 * x);
  Matrix x(kRows * kCount);
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t c = 0; c < kCount; ++c) {
      const float* row = directions.data() + i * kCount;
      float sum = (c == 0 ? 1.0F : 0x1p-12F) * row[c];
      for (std::size_t k = 0; k < c; ++k) sum += row[k];
      x[i * kCount + c] = sum;
    }
  orthonormalise(x.data(), kRows, kCount);
  std::size_t zero = 0;
  EXPECT_LE(worst_angle(x, kRows, kCount, zero), 1e-6);
  EXPECT_EQ(zero, 0U);
}

TEST(Subspace, AStartLosesNoDirection) {
  constexpr std::size_t kRows = 9, kCount = 4;
  const Key key = key_of(3);
  Matrix drawn(kRows * kCount);
  draw_start(drawn.data(), kRows, kCount, key);
  Matrix broken = drawn;
  broken[7] = std::numeric_limits<float>::quiet_NaN();
  Matrix equal(kRows * kCount, 1.0F);
  // The last one is dependent, and so is what is drawn for its column first.
  Matrix trap = drawn;
  for (std::size_t i = 0; i < kRows; ++i) trap[i * kCount] = drawn[i * kCount + 3];
  for (std::size_t i = 0; i < kRows; ++i) trap[i * kCount + 3] = 0;
  for (Matrix x : {Matrix(kRows * kCount), broken, equal, trap, drawn}) {
    orthonormalise_start(x.data(), kRows, kCount, key);
    std::size_t zero = 0;
    EXPECT_LE(worst_angle(x, kRows, kCount, zero), 1e-6);
    EXPECT_EQ(zero, 0u);
  }
}

TEST(Subspace, IsTheSameOnEveryTarget) {
  const Matrix x = normal_floats(123 * 17, 8);
  Matrix expected;
  for_each_target([&] {
    Matrix y = x;
    orthonormalise(y.data(), 123, 17);
    if (expected.empty()) expected = y;
    EXPECT_EQ(bits_of(y), bits_of(expected));
  });
}

}  // namespace
}  // namespace laconic
