// Low rank with what it lost sent later: L1, L2, L3 and L5 of the specification of Optimus-CC.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/codec/test_matrix.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr std::size_t kN = 40, kM = 48;
constexpr std::size_t kSize = kN * kM;

// One sender's memory and its steps.
struct Sender {
  LowRank codec{4};
  Matrix residual = Matrix(kSize);
  std::vector<float> basis;

  // What the receiver gets for gradient g; the residual moves when `feedback`.
  Matrix send(const Matrix& g, bool feedback = true) {
    const TensorSpec spec = matrix_spec(kN, kM);
    const CodecInput input{.seed = 3, .basis = &basis};
    Bytes payload(max_payload_bytes(codec, spec));
    if (feedback)
      encode_with_feedback(codec, {spec, g.data()}, residual.data(), residual.data(), input,
                           payload);
    else
      encode(codec, {spec, g.data()}, input, payload);
    Matrix out(kSize);
    decode(codec, payload, input, {spec, out.data()});
    return out;
  }
};

Matrix gradient(std::uint64_t number) {
  return normal_floats(kSize, 100 + number);
}

using Wide = std::vector<double>;

void add_to(Wide& sum, const Matrix& x, double factor = 1) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * x[i];
}

double norm_of(const Wide& x) {
  double square = 0;
  for (const double v : x) square += v * v;
  return std::sqrt(square);
}

TEST(LowRankFeedback, WhatIsSentPlusWhatIsLeftIsWhatWasGiven) {
  for (const Dtype factors : {Dtype::f32, Dtype::bf16})
    for (const unsigned encoded_of_four : {0b1111u, 0b0001u, 0b1010u}) {
      Sender sender{.codec = {4, factors}};
      Wide difference(kSize), given(kSize);
      for (std::uint64_t i = 0; i < 40; ++i) {
        const Matrix g = gradient(i);
        const bool is_encoded = (encoded_of_four >> i % 4 & 1) != 0;
        add_to(difference, is_encoded ? sender.send(g) : g);
        add_to(difference, g, -1);
        add_to(given, g);
      }
      add_to(difference, sender.residual);
      EXPECT_LE(norm_of(difference) / norm_of(given), 1e-5) << encoded_of_four;
    }
}

// sum += factor * x^T y for x [kN, inputs], y [kN, kM].
void add_product(Wide& sum, const Matrix& x, const Matrix& y, double factor) {
  const std::size_t inputs = x.size() / kN;
  for (std::size_t k = 0; k < kN; ++k)
    for (std::size_t i = 0; i < inputs; ++i)
      for (std::size_t j = 0; j < kM; ++j)
        sum[i * kM + j] += factor * x[k * inputs + i] * y[k * kM + j];
}

// sum X_i^T out_i = sum X_i^T g_i - sum_{i<N} (X_i - X_{i+1})^T e_i - X_N^T e_N
void expect_weight_identity(const std::vector<Matrix>& x) {
  constexpr std::size_t kInputs = 10;
  Sender sender;
  Wide difference(kInputs * kM), exact(kInputs * kM);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Matrix g = gradient(i);
    add_product(difference, x[i], sender.send(g), 1);
    add_product(difference, x[i], g, -1);
    add_product(exact, x[i], g, 1);
    Matrix change = x[i];
    if (i + 1 < x.size())
      for (std::size_t k = 0; k < change.size(); ++k) change[k] -= x[i + 1][k];
    add_product(difference, change, sender.residual, 1);
  }
  EXPECT_LE(norm_of(difference) / norm_of(exact), 1e-5);
}

TEST(LowRankFeedback, WeightGradientsErrByTheChangeOfActivations) {
  std::vector<Matrix> different, equal;
  for (std::uint64_t i = 0; i < 8; ++i) {
    different.push_back(normal_floats(kN * 10, 200 + i));
    equal.push_back(normal_floats(kN * 10, 200));
  }
  expect_weight_identity(different);
  expect_weight_identity(equal);  // only the last residual counts
}

// |mean sent - mean given| / |mean given| after so many steps.
double error_of_mean(int steps, bool feedback) {
  Sender sender;
  const Matrix constant = gradient(0);
  Wide sent(kSize), given(kSize);
  for (int i = 0; i < steps; ++i) {
    Matrix g = normal_floats(kSize, 300 + static_cast<std::uint64_t>(i));
    for (std::size_t k = 0; k < kSize; ++k) g[k] = constant[k] + 0.3F * g[k];
    add_to(sent, sender.send(g, feedback));
    add_to(given, g);
  }
  for (std::size_t k = 0; k < kSize; ++k) sent[k] -= given[k];
  return norm_of(sent) / norm_of(given);
}

TEST(LowRankFeedback, TheErrorOfTheMeanFallsOnlyWithFeedback) {
  const double with_few = error_of_mean(40, true), with_many = error_of_mean(320, true);
  EXPECT_LE(with_many, with_few / 5);  // 1 / N would be 8
  EXPECT_GE(error_of_mean(320, false), 0.5);
  EXPECT_LE(with_many, 0.1);
}

TEST(LowRankFeedback, FollowsAChangeOfTheLossScale) {
  Sender plain, rescaled;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const float scale = i < 5 ? 1.0F : 1024.0F;
    if (i == 5) rescaled.residual = scaled(rescaled.residual, 1024.0F);
    const Matrix expected = scaled(plain.send(gradient(i)), scale);
    EXPECT_EQ(bits_of(rescaled.send(scaled(gradient(i), scale))), bits_of(expected)) << i;
  }
}

TEST(LowRankFeedback, ASkippedStepOrARestartLeavesNoTrace) {
  Sender plain, skipping;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Sender before = skipping;  // what a checkpoint holds
    Matrix overflowed = gradient(50 + i);
    overflowed[3] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(skipping.send(overflowed)[0]));
    skipping = before;
    EXPECT_EQ(bits_of(skipping.send(gradient(i))), bits_of(plain.send(gradient(i)))) << i;
    EXPECT_EQ(bits_of(skipping.residual), bits_of(plain.residual));
  }
}

}  // namespace
}  // namespace laconic
