#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_matrix.hpp"

namespace laconic {
namespace {

using namespace test;

// Maps that own their memory.
struct Maps {
  Matrix encoder, decoder;
  CodecInput input() const { return {.maps = {encoder.data(), decoder.data()}}; }
};

Maps random_maps(std::size_t code, std::size_t columns) {
  return {normal_floats(code * columns, 21), normal_floats(code * columns, 22)};
}

// E orthogonal, D its transpose: nothing is lost.
Maps orthogonal_maps(std::size_t columns) {
  const std::vector<double> q = orthonormal_columns(columns, columns, 23);
  Maps maps{Matrix(q.size()), Matrix(q.size())};
  for (std::size_t c = 0; c < columns; ++c)
    for (std::size_t j = 0; j < columns; ++j)
      maps.encoder[c * columns + j] = maps.decoder[j * columns + c] =
          static_cast<float>(q[c * columns + j]);
  return maps;
}

TEST(AutoEncoder, DecodesLikeTheReferenceOnEveryTarget) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {0}, {5}, {3, 4}, {0, 4}, {4, 0}, {2, 3, 17}, {2, 1, 3, 33}, {17, 300}, {65, 64}};
  for (const Dtype values : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const std::int64_t code : {1, 3, 16, 50})
      for (const auto& shape : shapes) {
        const AutoEncoder codec{code, values};
        const TensorSpec spec{Dtype::f32, shape};
        SCOPED_TRACE(fmt::format("{} [{}]", to_text(codec), fmt::join(shape, ", ")));
        const Maps maps = random_maps(static_cast<std::size_t>(code), matrix_shape(spec).columns);
        const Tensor x = tensor_of(Dtype::f32, shape, normal_floats(elements_of(spec), 4));
        const ScopedDenormals flush(true);
        const Bytes payload = encoded(codec, x, maps.input());
        const Matrix expected = reference::decode(codec, spec, payload, maps.input());
        for_each_target([&] {
          EXPECT_EQ(encoded(codec, x, maps.input()), payload);
          EXPECT_EQ(bits_of(floats_of(decoded(codec, spec, payload, maps.input()))),
                    bits_of(expected));
        });
      }
}

TEST(AutoEncoder, TheExampleOfTheWireFormat) {
  const AutoEncoder codec{1};
  const Maps maps{{1, 1}, {0.5F, 0.25F}};
  const Tensor x = tensor_of(Dtype::f32, {2, 2}, {1, 2, 3, 4});
  const Bytes payload = encoded(codec, x, maps.input());
  EXPECT_EQ(hex_of(payload), "00 00 40 40 00 00 E0 40");
  EXPECT_EQ(floats_of(decoded(codec, x.spec, payload, maps.input())),
            (Matrix{1.5F, 0.75F, 3.5F, 1.75F}));
}

TEST(AutoEncoder, OrthogonalMapsLoseNothing) {
  for (const std::size_t columns : {1, 16, 45}) {
    const AutoEncoder codec{static_cast<std::int64_t>(columns)};
    const Maps maps = orthogonal_maps(columns);
    const Matrix a = normal_floats(30 * columns, 24);
    const Tensor x = tensor_of(Dtype::f32, {30, static_cast<std::int64_t>(columns)}, a);
    const Tensor back = decoded(codec, x.spec, encoded(codec, x, maps.input()), maps.input());
    EXPECT_LE(relative_error(a, floats_of(back)), 1e-6) << columns;
  }
}

// D (E x) in f64.
Matrix dense_product(const Matrix& x, std::size_t rows, std::size_t columns, const Maps& maps) {
  const std::size_t code = maps.encoder.size() / columns;
  Matrix out(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t c = 0; c < code; ++c) {
        double z = 0;
        for (std::size_t k = 0; k < columns; ++k)
          z += double{x[i * columns + k]} * maps.encoder[c * columns + k];
        sum += z * maps.decoder[j * code + c];
      }
      out[i * columns + j] = static_cast<float>(sum);
    }
  return out;
}

TEST(AutoEncoder, TheSumOfCodesDecodesToTheProductOfTheSum) {
  constexpr std::size_t kRows = 9, kColumns = 70, kCode = 20;
  const AutoEncoder codec{kCode};
  ASSERT_TRUE(is_summable(codec));
  ASSERT_FALSE(is_summable(AutoEncoder{kCode, Dtype::bf16}));
  const Maps maps = random_maps(kCode, kColumns);
  Matrix whole(kRows * kColumns);
  Bytes codes(4 * kRows * kCode, std::byte{0});
  for (std::uint64_t worker = 0; worker < 4; ++worker) {
    const Matrix a = normal_floats(kRows * kColumns, 30 + worker);
    const Bytes payload = encoded(codec, tensor_of(Dtype::f32, {kRows, kColumns}, a), maps.input());
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += a[i];
    add_payload(codec, matrix_spec(kRows, kColumns), codes, payload);
  }
  const Tensor back = decoded(codec, matrix_spec(kRows, kColumns), codes, maps.input());
  EXPECT_LE(relative_error(dense_product(whole, kRows, kColumns, maps), floats_of(back)), 1e-6);
}

TEST(AutoEncoder, WhatIsNotFiniteMakesItsRowNan) {
  const Maps maps = random_maps(3, 4);
  const auto expect_second_row_nan = [&](float bad, Dtype values) {
    const Tensor x = tensor_of(Dtype::f32, {2, 4}, {1, 2, 3, 4, bad, bad, -bad, bad});
    const AutoEncoder codec{3, values};
    const Matrix back =
        floats_of(decoded(codec, x.spec, encoded(codec, x, maps.input()), maps.input()));
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(std::isnan(back[i]), i >= 4) << bad << " " << name_of(values) << " " << i;
  };
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    for (const Dtype values : {Dtype::f32, Dtype::f16, Dtype::bf16})
      expect_second_row_nan(bad, values);
  expect_second_row_nan(1e9F, Dtype::f16);  // a code that f16 cannot hold
}

// The code of a row is 4 x 3e38, which f32 cannot hold; that of the other row is.
TEST(AutoEncoder, WhatOverflowsInTheProductIsNan) {
  const Maps maps{Matrix(4, 1.0F), Matrix(4, 0.25F)};
  const Tensor x = tensor_of(Dtype::f32, {2, 4}, {1, 1, 1, 1, 3e38F, 3e38F, 3e38F, 3e38F});
  for (const Dtype values : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const AutoEncoder codec{1, values};
    const Bytes payload = encoded(codec, x, maps.input());
    EXPECT_EQ(refusal(codec, x.spec, payload), "accepted");
    EXPECT_FALSE(is_finite(codec, x.spec, payload));
    const Matrix back = floats_of(decoded(codec, x.spec, payload, maps.input()));
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(back[i]), i >= 4) << i;
  }
}

TEST(AutoEncoder, RefusesWhatNoEncoderWrites) {
  const AutoEncoder codec{2};
  const TensorSpec spec = matrix_spec(1, 9);
  const auto refused = [&](std::string_view hex) {
    return refusal(codec, spec, bytes_of_hex(hex));
  };
  EXPECT_EQ(refused("0000803F 0000C07F"), "accepted");
  EXPECT_EQ(refused("0000803F"), "payload@0");
  EXPECT_EQ(refused("0000803F 000080FF"), "payload.values@4");
  EXPECT_EQ(refused("0000803F 0000C0FF"), "payload.values@4");
  const Maps maps = random_maps(2, 7);
  expect_no_crash(codec, tensor_of(Dtype::f32, {5, 7}, normal_floats(35)), 300, maps.input());
}

TEST(AutoEncoder, SectionsCoverThePayload) {
  const AutoEncoder codec{2, Dtype::f16};
  const Maps maps = random_maps(2, 5);
  const Tensor x = tensor_of(Dtype::f32, {3, 5}, normal_floats(15));
  const auto sections = payload_sections(codec, x.spec, encoded(codec, x, maps.input()));
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_EQ(sections[0].bytes, 12u);
  EXPECT_EQ(sections[0].meaning, "3 x 2 f16, one code per row of the matrix");
}

TEST(AutoEncoder, NeedsItsMaps) {
  const Tensor x = tensor_of(Dtype::f32, {3, 5}, normal_floats(15));
  Bytes payload(24);
  EXPECT_THROW(encode(AutoEncoder{2}, x.view(), {}, payload), std::logic_error);
  EXPECT_THROW(decoded(AutoEncoder{2}, x.spec, Bytes(24, std::byte{0})), std::logic_error);
}

}  // namespace
}  // namespace laconic
