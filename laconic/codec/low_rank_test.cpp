#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_matrix.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Coded {
  Bytes payload;
  Matrix out;
};

Coded coded(const LowRank& codec, std::size_t n, std::size_t m, const Matrix& a,
            const CodecInput& input = {}) {
  const TensorSpec spec = matrix_spec(n, m);
  Coded result{Bytes(max_payload_bytes(codec, spec)), Matrix(n * m)};
  EXPECT_EQ(encode(codec, {spec, a.data()}, input, result.payload), result.payload.size());
  decode(codec, result.payload, input, {spec, result.out.data()});
  return result;
}

std::vector<std::vector<std::int64_t>> odd_shapes() {
  std::vector<std::vector<std::int64_t>> shapes = {
      {}, {0}, {1}, {17}, {2, 3, 5}, {0, 4}, {4, 0}, {2, 0, 3}, {2, 3, 4, 5}, {3, 1, 1, 33}};
  for (const std::int64_t n : {1, 2, 3, 15, 16, 17, 33})
    for (const std::int64_t m : {1, 2, 3, 15, 16, 17, 33, 100}) shapes.push_back({n, m});
  return shapes;
}

TEST(LowRank, DecodesLikeTheReferenceOnEveryTarget) {
  for (const Dtype factors : {Dtype::f32, Dtype::f16, Dtype::bf16})
    for (const std::int64_t rank : {1, 2, 16, 40})
      for (const auto& shape : odd_shapes()) {
        const LowRank codec{rank, factors};
        const TensorSpec spec{Dtype::f32, shape};
        SCOPED_TRACE(fmt::format("{} [{}]", to_text(codec), fmt::join(shape, ", ")));
        const Tensor x = tensor_of(Dtype::f32, shape, normal_floats(elements_of(spec), 4));
        const ScopedDenormals flush(true);
        const Bytes payload = encoded(codec, x);
        const Matrix expected = reference::decode(codec, spec, payload, {});
        for_each_target([&] {
          EXPECT_EQ(encoded(codec, x), payload);
          EXPECT_EQ(bits_of(floats_of(decoded(codec, spec, payload))), bits_of(expected));
        });
      }
}

TEST(LowRank, TakesTensorsOfEveryFloat) {
  const Matrix a = matrix_with_spectrum(20, 30, {3.0, 1.0}, 1);
  for (const Dtype dtype : kFloats) {
    const Tensor x = tensor_of(dtype, {4, 5, 30}, a);
    const Tensor back = decoded(LowRank{4}, x.spec, encoded(LowRank{4}, x));
    EXPECT_LE(relative_error(a, floats_of(back)), dtype == Dtype::bf16 ? 1e-2 : 2e-3);
  }
}

TEST(LowRank, TheExampleOfTheWireFormat) {
  const LowRank codec{1};
  const Tensor x = tensor_of(Dtype::f32, {2, 2}, {0, 0, 3, 4});
  const Bytes payload = encoded(codec, x, {.seed = 2});
  EXPECT_EQ(hex_of(payload), "00 00 00 00 00 00 80 3F 00 00 40 40 00 00 80 40");
  EXPECT_EQ(floats_of(decoded(codec, x.spec, payload)), floats_of(x));
}

// --- C1 to C8 of the specification of Optimus-CC

TEST(LowRank, FullRankIsExact) {
  using Size = std::size_t;
  for (const auto& [n, m] :
       {std::pair<Size, Size>{40, 24}, {24, 40}, {32, 32}, {1, 50}, {50, 1}, {30, 600}}) {
    const Matrix a = normal_floats(n * m, 2);
    for (const std::int64_t rank : {static_cast<std::int64_t>(std::min(n, m)), INT64_C(100)}) {
      const Coded result = coded({rank}, n, m, a);
      EXPECT_LE(relative_error(a, result.out), 1e-5) << n << " x " << m << ", rank " << rank;
    }
  }
}

TEST(LowRank, AMatrixOfLowerRankIsExact) {
  for (const std::size_t rank : {1, 2, 5, 8}) {
    const Matrix a = matrix_with_spectrum(64, 48, decaying(rank, 0.7), 3);
    EXPECT_LE(relative_error(a, coded({8}, 64, 48, a).out), 1e-5) << rank;
  }
  const Matrix large = matrix_with_spectrum(700, 900, {5.0, 1.0}, 3);
  EXPECT_LE(relative_error(large, coded({8}, 700, 900, large).out), 1e-5);
}

TEST(LowRank, IsAProjection) {
  constexpr std::size_t kN = 60, kM = 44, kRank = 8;
  const Matrix a = normal_floats(kN * kM, 7);
  const Coded result = coded({kRank}, kN, kM, a);
  Matrix p(kN * kRank), rest(kN * kM);
  std::memcpy(p.data(), result.payload.data(), p.size() * sizeof(float));
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = a[i] - result.out[i];
  for (std::size_t b = 0; b < kRank; ++b) {
    for (std::size_t c = 0; c < kRank; ++c) {
      double dot = 0;
      for (std::size_t i = 0; i < kN; ++i) dot += double{p[i * kRank + b]} * p[i * kRank + c];
      EXPECT_NEAR(dot, b == c ? 1.0 : 0.0, 1e-5);
    }
    for (std::size_t j = 0; j < kM; ++j) {
      double dot = 0;
      for (std::size_t i = 0; i < kN; ++i) dot += double{p[i * kRank + b]} * rest[i * kM + j];
      EXPECT_NEAR(dot, 0.0, 1e-5);
    }
  }
  const double whole = std::pow(norm(a), 2);
  EXPECT_LE(std::abs(whole - std::pow(norm(result.out), 2) - std::pow(norm(rest), 2)) / whole,
            1e-5);
}

TEST(LowRank, RepeatedFindsTheBestSubspaceAtEveryScale) {
  constexpr std::size_t kN = 64, kM = 48, kRank = 8;
  const std::vector<double> spectrum = decaying(40, 0.8);
  const double best = best_error(spectrum, kRank);
  EXPECT_NEAR(best, 0.168, 0.001);
  const Matrix a = matrix_with_spectrum(kN, kM, spectrum, 9);
  for (const float scale : {1.0F, 1e-3F, 1e-4F, 1e-6F, 1e-12F, 1e-30F}) {
    const Matrix small = scaled(a, scale);
    std::vector<float> basis;
    double error = 1;
    for (int i = 0; i < 20; ++i)
      error = relative_error(small, coded({kRank}, kN, kM, small, {.basis = &basis}).out);
    EXPECT_NEAR(error, best, 1e-4 * best) << scale;
  }
}

TEST(LowRank, RecoversFromZerosAndFromNumbersThatAreNotFinite) {
  constexpr std::size_t kN = 32, kM = 24;
  const Matrix a = matrix_with_spectrum(kN, kM, decaying(4, 0.8), 11);
  for (const float bad : {0.0F, kNan, kInfinity, -kInfinity, 3e38F}) {
    SCOPED_TRACE(bad);
    std::vector<float> basis;
    const CodecInput input{.seed = 5, .basis = &basis};
    coded({4}, kN, kM, a, input);
    Matrix broken(kN * kM, bad == 3e38F ? bad : 0.0F);
    broken[100] = bad;
    const Coded result = coded({4}, kN, kM, broken, input);
    const bool is_zero = bad == 0.0F;
    for (const float x : result.out) EXPECT_TRUE(is_zero ? x == 0.0F : std::isnan(x));
    EXPECT_EQ(basis.empty(), !is_zero);
    for (const float x : basis) EXPECT_TRUE(std::isfinite(x));
    EXPECT_LE(relative_error(a, coded({4}, kN, kM, a, input).out), 1e-5);
  }
}

TEST(LowRank, AFactorThatItsTypeCannotHoldMakesAllNan) {
  const Tensor x = tensor_of(Dtype::f32, {2, 2}, {0, 0, 3e5F, 4e5F});
  const Bytes payload = encoded(LowRank{1, Dtype::f16}, x);
  EXPECT_EQ(hex_of(payload), "00 7E 00 7E 00 7E 00 7E");
  for (const float y : floats_of(decoded(LowRank{1, Dtype::f16}, x.spec, payload)))
    EXPECT_TRUE(std::isnan(y));
}

TEST(LowRank, EqualInputsGiveEqualBytesAndNoRandomStateIsTouched) {
  constexpr std::size_t kN = 70, kM = 530;  // longer than one block of a sum
  const Matrix a = normal_floats(kN * kM, 12), b = normal_floats(kN * kM, 13);
  std::srand(7);
  const int expected = std::rand();
  std::srand(7);
  std::vector<Bytes> seen;
  for_each_target([&] {
    std::vector<float> basis;
    const CodecInput input{.seed = 99, .basis = &basis};
    Bytes both = coded({12}, kN, kM, a, input).payload;
    const Bytes second = coded({12}, kN, kM, b, input).payload;
    both.insert(both.end(), second.begin(), second.end());
    seen.push_back(both);
    EXPECT_EQ(seen.back(), seen.front());
  });
  EXPECT_EQ(std::rand(), expected);
  EXPECT_NE(coded({12}, kN, kM, a, {.seed = 1}).payload,
            coded({12}, kN, kM, a, {.seed = 2}).payload);
}

TEST(LowRank, BothEndsDecodeTheSameBitsOnDifferentTargets) {
  constexpr std::size_t kN = 37, kM = 301;
  const TensorSpec spec = matrix_spec(kN, kM);
  const Matrix a = normal_floats(kN * kM, 14), zero(kN * kM);
  for (const Dtype factors : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const LowRank codec{6, factors};
    Bytes payload(max_payload_bytes(codec, spec));
    std::vector<Matrix> lost, received;
    for_each_target([&] {
      Matrix after(kN * kM);
      encode_with_feedback(codec, {spec, a.data()}, zero.data(), after.data(), {}, payload);
      lost.push_back(after);
    });
    for_each_target([&] {
      received.emplace_back(kN * kM);
      decode(codec, payload, {}, {spec, received.back().data()});
    });
    for (const Matrix& after : lost)
      for (const Matrix& out : received) {
        Matrix expected(kN * kM);
        for (std::size_t i = 0; i < out.size(); ++i) expected[i] = a[i] - out[i];
        EXPECT_EQ(bits_of(after), bits_of(expected));
      }
  }
}

TEST(LowRank, SizesFollowTheFormula) {
  for (const auto& [n, m, rank, effective] :
       {std::tuple{64, 48, 8, 8}, {4, 48, 8, 4}, {64, 3, 8, 3}, {1, 1, 8, 1}, {0, 5, 8, 0}}) {
    const TensorSpec spec = matrix_spec(static_cast<std::size_t>(n), static_cast<std::size_t>(m));
    for (const Dtype factors : {Dtype::f32, Dtype::bf16}) {
      const LowRank codec{rank, factors};
      const auto bytes = static_cast<std::uint64_t>((n + m) * effective) * bytes_of(factors);
      EXPECT_EQ(effective_rank(codec, spec), static_cast<std::uint64_t>(effective));
      EXPECT_EQ(max_payload_bytes(codec, spec), bytes);
      const Tensor x = tensor_of(Dtype::f32, spec.shape, normal_floats(elements_of(spec)));
      EXPECT_EQ(encoded(codec, x).size(), bytes);
    }
  }
}

// --- what is on the wire

TEST(LowRank, RefusesWhatNoEncoderWrites) {
  const LowRank codec{1};
  const TensorSpec spec = matrix_spec(1, 2);
  const auto refused = [&](std::string_view hex) {
    return refusal(codec, spec, bytes_of_hex(hex));
  };
  EXPECT_EQ(refused("0000803F 00000000 0000803F"), "accepted");
  EXPECT_EQ(refused("0000C07F 0000C07F 0000C07F"), "accepted");
  EXPECT_EQ(refused("0000803F 00000000"), "payload@0");
  EXPECT_EQ(refused("0000803F 00000000 0000803F 00"), "payload@0");
  EXPECT_EQ(refused("0000803F 0000C07F 0000803F"), "payload.factors@4");
  EXPECT_EQ(refused("0000803F 00000000 0000807F"), "payload.factors@8");
  EXPECT_EQ(refused("0000C07F 0100C07F 0000C07F"), "payload.factors@4");
  expect_no_crash(codec, tensor_of(Dtype::f32, {5, 7}, normal_floats(35)), 300);
}

TEST(LowRank, SectionsCoverThePayload) {
  const TensorSpec spec = matrix_spec(3, 5);
  const LowRank codec{2, Dtype::bf16};
  const Tensor x = tensor_of(Dtype::f32, {3, 5}, normal_floats(15));
  const auto sections = payload_sections(codec, spec, encoded(codec, x));
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].bytes, 12u);
  EXPECT_EQ(sections[1].offset, 12u);
  EXPECT_EQ(sections[1].bytes, 20u);
  EXPECT_EQ(sections[1].meaning, "5 x 2 bf16, one row per column of the matrix");
}

}  // namespace
}  // namespace laconic
