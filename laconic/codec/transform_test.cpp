#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/codec/transform_basis.hpp"

namespace laconic {
namespace {

constexpr std::size_t kRows = 1024, kColumns = 64;

// Rows whose coordinates in a drawn basis have these energies.
std::vector<float> rows_with(const std::vector<double>& energies, std::uint64_t seed) {
  const std::size_t columns = energies.size();
  std::vector<float> basis(columns * columns), coordinates(kRows * columns), rows(kRows * columns);
  draw_start(basis.data(), columns, columns, key_of(99));
  orthonormalise(basis.data(), columns, columns);
  fill_normal(key_of(seed), 0, 0, 1, std::span(coordinates));
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t c = 0; c < columns; ++c)
        rows[r * columns + j] += basis[j * columns + c] * coordinates[r * columns + c] *
                                 static_cast<float>(std::sqrt(energies[c]));
  return rows;
}

double error_of(const CodecSpec& codec, const std::vector<float>& rows, std::size_t columns,
                const CodecInput& input, std::size_t* bytes = nullptr) {
  const auto count = static_cast<std::int64_t>(rows.size() / columns);
  const TensorSpec spec{Dtype::f32, {count, static_cast<std::int64_t>(columns)}};
  Bytes payload(max_payload_bytes(codec, spec));
  payload.resize(encode(codec, {spec, rows.data()}, input, payload));
  if (bytes != nullptr) *bytes = payload.size();
  std::vector<float> decoded(rows.size());
  decode(codec, payload, input, {spec, decoded.data()});
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double difference = static_cast<double>(rows[i]) - static_cast<double>(decoded[i]);
    sum += difference * difference;
  }
  return sum / static_cast<double>(rows.size());
}

// Of the same number of bits everywhere, with a scale for as many rows as a transform's.
double plain_error(int bits, const std::vector<float>& rows) {
  constexpr std::size_t kSpan = 128;
  const Quantise codec{.bits = bits, .group = ScaleGroup::channel, .block = 0};
  double sum = 0;
  for (std::size_t r = 0; r < kRows; r += kSpan) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(r * kColumns);
    const std::vector<float> span(begin, begin + static_cast<std::ptrdiff_t>(kSpan * kColumns));
    sum += error_of(codec, span, kColumns, {}) * kSpan / kRows;
  }
  return sum;
}

// P8. Energies that are powers of four of the mean ask for whole bits, so the formula holds
// exactly: the error is that of the same number of bits everywhere, and the bits are those it says.
TEST(Transform, HasTheErrorOfItsBitsInFewerOfThem) {
  struct Case {
    std::vector<double> energies;
    int bits;
    double formula;  // mean bits
  };
  std::vector<double> quarter(kColumns, 1), flat(kColumns, 1), steep(kColumns, 0);
  // 16 of energy 64 and 48 of 1: the mean is 16.75, nearly 16.
  for (std::size_t i = 0; i < 16; ++i) quarter[i] = 64;
  for (std::size_t i = 0; i < 4; ++i) steep[i] = 1;  // 16 times the mean
  for (const Case& c : {Case{flat, 5, 5}, Case{quarter, 5, (16 * 6 + 48 * 3) / 64.0},
                        Case{steep, 4, 4 * 6 / 64.0}}) {
    SCOPED_TRACE(c.formula);
    const std::vector<float> learnt = rows_with(c.energies, 1), rows = rows_with(c.energies, 2);
    const auto basis = make_basis(learnt.data(), kRows, kColumns, c.bits, 7);
    ASSERT_TRUE(basis);
    double bits = 0;
    for (const int b : basis->bits) bits += b;
    EXPECT_NEAR(bits / kColumns, c.formula, 0.02 * c.formula);
    const CodecSpec codec = Transform{.bits = c.bits, .scale = ScaleType::f16};
    std::size_t bytes = 0;
    const double error = error_of(codec, rows, kColumns, {.transform = &*basis}, &bytes);
    // The same quantiser over the same rows, where all directions have the mean's energy.
    double mean = 0;
    for (const double e : c.energies) mean += e / kColumns;
    std::vector<float> even = rows_with(std::vector<double>(kColumns, mean), 3);
    // Energies are rounded to powers of four of the mean; those of 0 have no error either.
    double share = 0;
    for (const double e : c.energies)
      if (e > 0) share += e / mean / std::pow(4.0, std::floor(0.5 * std::log2(e / mean) + 0.5));
    EXPECT_NEAR(error / (plain_error(c.bits, even) * share / kColumns), 1, 0.05);
    EXPECT_NEAR(static_cast<double>(bytes) * 8, bits * kRows + 16 * 8 * basis->bits.size(),
                0.03 * static_cast<double>(bytes) * 8 + 21 * 8);
  }
}

TEST(Transform, BitsFollowTheFormulaRounded) {
  for (const int bits : {1, 4, 6})
    for (const double ratio : {1e-6, 0.01, 0.2, 0.26, 1.0, 1.9, 2.1, 7.9, 8.1, 100.0, 1e9}) {
      const double exact = bits + 0.5 * std::log2(ratio);
      const int expected = static_cast<int>(std::clamp(std::floor(exact + 0.5), 0.0, 8.0));
      EXPECT_EQ(bits_of_direction(bits, 3 * ratio, 3), expected) << bits << " " << ratio;
    }
}

TEST(Transform, WithoutABasisItIsEightBitsInBlocks) {
  const std::vector<float> rows = rows_with(std::vector<double>(kColumns, 1), 1);
  const TransformBasis other{.columns = 3, .bits = {4}, .directions = {1, 0, 0}};
  const Quantise plain{.bits = 8, .block = 64};
  for (const TransformBasis* basis : {static_cast<const TransformBasis*>(nullptr), &other}) {
    std::size_t bytes = 0, plain_bytes = 0;
    EXPECT_EQ(error_of(Transform{}, rows, kColumns, {.transform = basis}, &bytes),
              error_of(plain, rows, kColumns, {}, &plain_bytes));
    EXPECT_EQ(bytes, plain_bytes + 1);
  }
}

// Rows that fill no span, a direction of one bit, and all other counts of bits.
TEST(Transform, EveryPieceComesBackWhereItBelongs) {
  constexpr std::int64_t rows = 203;
  TransformBasis basis{.columns = 9, .directions = std::vector<float>(9 * 8)};
  for (std::size_t k = 0; k < 8; ++k) {
    basis.bits.push_back(static_cast<std::uint8_t>(8 - k));
    basis.directions[k * 8 + k] = 1;
  }
  basis.hash = hash_of(basis);
  const TensorSpec spec{Dtype::f32, {rows, 9}};
  std::vector<float> x(rows * 9);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(1 + i / 9);
  const CodecSpec codec = Transform{.span = 16};
  Bytes payload(max_payload_bytes(codec, spec));
  payload.resize(encode(codec, {spec, x.data()}, {.transform = &basis}, payload));
  ASSERT_EQ(payload[0], std::byte{1});
  std::vector<float> decoded(x.size());
  decode(codec, payload, {.transform = &basis}, {spec, decoded.data()});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t column = i % 9;
    const double bits = column < 8 ? static_cast<double>(8 - column) : 0;
    if (column == 8)
      EXPECT_EQ(decoded[i], 0);
    else
      EXPECT_NEAR(decoded[i], x[i], bits == 1 ? 9 : 203 * std::exp2(1 - bits)) << i;
  }
  EXPECT_EQ(payload_sections(codec, spec, payload).size(), 3u + 2 * 8);
  EXPECT_TRUE(is_finite(codec, spec, payload));
  // Another basis at the other end is noticed, and nothing is written.
  TransformBasis turned = basis;
  turned.directions[0] = -1;
  turned.hash = hash_of(turned);
  std::vector<float> untouched(x.size(), 5);
  for (const TransformBasis* wrong :
       {static_cast<const TransformBasis*>(nullptr), &std::as_const(turned)})
    EXPECT_THROW(decode(codec, payload, {.transform = wrong}, {spec, untouched.data()}), WireError);
  EXPECT_EQ(untouched, std::vector<float>(x.size(), 5));
  x[20] = NAN;
  payload.resize(max_payload_bytes(codec, spec));
  payload.resize(encode(codec, {spec, x.data()}, {.transform = &basis}, payload));
  EXPECT_FALSE(is_finite(codec, spec, payload));
  decode(codec, payload, {.transform = &basis}, {spec, decoded.data()});
  EXPECT_TRUE(std::isnan(decoded[20]));
  EXPECT_FALSE(std::isnan(decoded[9 * 16 + 0])) << "another span";
}

TEST(Transform, DamagedPayloadsAreRefused) {
  const std::vector<float> rows = rows_with(std::vector<double>(kColumns, 1), 1);
  const auto basis = make_basis(rows.data(), kRows, kColumns, 4, 7);
  const TensorSpec spec{Dtype::f32, {kRows, kColumns}};
  const CodecSpec codec = Transform{.bits = 4};
  Bytes payload(max_payload_bytes(codec, spec));
  payload.resize(encode(codec, {spec, rows.data()}, {.transform = &*basis}, payload));
  ASSERT_EQ(payload[0], std::byte{1});
  const auto refused = [&](std::size_t at, int value, std::size_t bytes) {
    Bytes damaged(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(bytes));
    damaged[at] = static_cast<std::byte>(value);
    try {
      check_payload(codec, spec, damaged);
      return std::string("none");
    } catch (const WireError& error) {
      return error.field();
    }
  };
  EXPECT_EQ(refused(0, 2, payload.size()), "payload.form");
  EXPECT_EQ(refused(0, 1, payload.size() - 1), "payload");
  EXPECT_EQ(refused(0, 1, 20), "payload");
  EXPECT_EQ(refused(5, 200, payload.size()), "payload.counts");
  EXPECT_EQ(refused(0, 1, payload.size()), "none");
}

TEST(Transform, ABasisOfTheSameRowsIsTheSameAndGoesOnFromTheLast) {
  std::vector<double> energies(kColumns, 0.01);
  for (std::size_t i = 0; i < 6; ++i) energies[i] = 10;
  const std::vector<float> rows = rows_with(energies, 1);
  const auto once = make_basis(rows.data(), kRows, kColumns, 5, 7);
  EXPECT_EQ(once, make_basis(rows.data(), kRows, kColumns, 5, 7));
  const auto again = make_basis(rows.data(), kRows, kColumns, 5, 7, &*once);
  ASSERT_TRUE(again);
  EXPECT_EQ(std::vector(again->bits.begin(), again->bits.begin() + 6),
            std::vector<std::uint8_t>(6, 7));
  EXPECT_NEAR(error_of(Transform{.bits = 5}, rows, kColumns, {.transform = &*again}),
              error_of(Transform{.bits = 5}, rows, kColumns, {.transform = &*once}), 1e-4);
  std::vector<float> bad = rows;
  bad[5] = INFINITY;
  EXPECT_FALSE(make_basis(bad.data(), kRows, kColumns, 5, 7));
  EXPECT_FALSE(make_basis(std::vector<float>(kRows * kColumns).data(), kRows, kColumns, 5, 7));
}

}  // namespace
}  // namespace laconic
