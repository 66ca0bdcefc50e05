#include "laconic/reduce/shared_low_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "laconic/base/error.hpp"
#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_matrix.hpp"

namespace laconic {
namespace {

using namespace test;

using Tensors = std::vector<Matrix>;

const std::vector<NamedTensor> kTensors = {
    {"attention", {Dtype::f32, {60, 40}}},     {"bias", {Dtype::f32, {40}}},
    {"convolution", {Dtype::f32, {5, 6, 44}}}, {"small", {Dtype::f32, {4, 4}}},
    {"nothing", {Dtype::f32, {0, 7}}},         {"scalar", {Dtype::f32, {}}}};

// D workers in one place; buffers are summed in the order of the workers.
struct Group {
  Group(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors, std::size_t count)
      : workers(count, SharedLowRank(spec, tensors, static_cast<int>(count))) {}

  // The outputs of every worker, before commit() or abandon().
  std::vector<Tensors> exchange(const std::vector<Tensors>& gradients) {
    const std::size_t count = workers.size();
    Tensors raw(count), left(count), right(count);
    std::vector<Tensors> outputs = gradients;  // where the gradients were
    std::vector<std::vector<float*>> places(count);
    for (std::size_t w = 0; w < count; ++w) {
      for (Matrix& x : outputs[w]) places[w].push_back(x.data());
      const std::vector<const float*> inputs(places[w].begin(), places[w].end());
      workers[w].begin(inputs, raw[w], left[w]);
    }
    const Matrix left_sum = sum(left), raw_sum = sum(raw);
    for (std::size_t w = 0; w < count; ++w) workers[w].project(left_sum, right[w]);
    const Matrix right_sum = sum(right);
    for (std::size_t w = 0; w < count; ++w) workers[w].finish(raw_sum, right_sum, places[w]);
    floats_sent = {raw[0].size(), left[0].size(), right[0].size()};
    return outputs;
  }

  Tensors step(const std::vector<Tensors>& gradients) {
    const std::vector<Tensors> outputs = exchange(gradients);
    for (SharedLowRank& worker : workers) worker.commit();
    for (const Tensors& other : outputs)
      for (std::size_t t = 0; t < other.size(); ++t)
        EXPECT_EQ(bits_of(other[t]), bits_of(outputs[0][t]));
    return outputs[0];
  }

  static Matrix sum(const Tensors& parts) {
    Matrix total = parts[0];
    for (std::size_t w = 1; w < parts.size(); ++w)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += parts[w][i];
    return total;
  }

  std::vector<SharedLowRank> workers;
  SharedLowRank::Counts floats_sent;
};

std::vector<Tensors> gradients_of(const std::vector<NamedTensor>& tensors, std::size_t workers,
                                  std::uint64_t step) {
  std::vector<Tensors> gradients(workers);
  for (std::size_t w = 0; w < workers; ++w)
    for (std::size_t t = 0; t < tensors.size(); ++t)
      gradients[w].push_back(
          normal_floats(elements_of(tensors[t].tensor), 1000 * step + 10 * w + t));
  return gradients;
}

Matrix plain_mean(const std::vector<Tensors>& gradients, std::size_t tensor) {
  Tensors parts;
  for (const Tensors& worker : gradients) parts.push_back(worker[tensor]);
  Matrix mean = Group::sum(parts);
  for (float& x : mean) x /= static_cast<float>(gradients.size());
  return mean;
}

std::vector<NamedTensor> tensor_of_matrix(std::int64_t rows, std::int64_t columns) {
  return {{"matrix", {Dtype::f32, {rows, columns}}}};
}

// --- P1 to P6 of the specification of Optimus-CC

TEST(SharedLowRank, WhatIsSentPlusTheMeanResidualIsTheMeanGradient) {
  for (const std::size_t count : {1, 2, 3, 4, 8}) {
    Group group({.rank = 4, .min_ratio = 1.5}, kTensors, count);
    std::vector<std::vector<double>> difference, given;
    for (const NamedTensor& t : kTensors) {
      difference.emplace_back(elements_of(t.tensor));
      given.emplace_back(elements_of(t.tensor));
    }
    for (std::uint64_t step = 0; step < 25; ++step) {
      const auto gradients = gradients_of(kTensors, count, step);
      const Tensors out = group.step(gradients);
      for (std::size_t t = 0; t < out.size(); ++t)
        for (std::size_t i = 0; i < out[t].size(); ++i) {
          double mean = 0;
          for (const Tensors& g : gradients) mean += g[t][i] / static_cast<double>(count);
          difference[t][i] += out[t][i] - mean;
          given[t][i] += mean;
        }
    }
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      double error = 0, whole = 1e-30;
      for (std::size_t i = 0; i < given[t].size(); ++i) {
        double left = 0;
        for (const SharedLowRank& worker : group.workers)
          if (worker.residual(t) != nullptr)
            left += worker.residual(t)[i] / static_cast<double>(count);
        error += std::pow(difference[t][i] + left, 2);
        whole += std::pow(given[t][i], 2);
      }
      EXPECT_LE(std::sqrt(error / whole), 1e-5) << kTensors[t].name << ", " << count << " workers";
    }
  }
}

TEST(SharedLowRank, OneWorkerIsThePlainCodec) {
  const auto sent = [](std::int64_t rank, const Matrix& a, int steps, bool feedback = false) {
    Group group({.rank = rank, .min_ratio = 0, .feedback = feedback}, tensor_of_matrix(64, 48), 1);
    Matrix out;
    for (int i = 0; i < steps; ++i) out = group.step({{a}})[0];
    return relative_error(a, out);
  };
  EXPECT_LE(sent(48, normal_floats(64 * 48, 1), 1, true), 1e-5);
  EXPECT_LE(sent(8, matrix_with_spectrum(64, 48, {2.0, 1.0}, 1), 1), 1e-5);
  const std::vector<double> spectrum = decaying(40, 0.8);
  const double best = best_error(spectrum, 8);
  EXPECT_NEAR(sent(8, matrix_with_spectrum(64, 48, spectrum, 1), 20), best, 1e-4 * best);
}

TEST(SharedLowRank, WhatDoesNotShrinkTravelsWholeWithoutResidual) {
  Group group({.rank = 4, .min_ratio = 1.5}, kTensors, 3);
  const auto gradients = gradients_of(kTensors, 3, 1);
  const Tensors out = group.step(gradients);
  for (const std::size_t t : {1, 3, 4, 5}) {
    EXPECT_FALSE(group.workers[0].is_encoded(t)) << kTensors[t].name;
    EXPECT_EQ(bits_of(out[t]), bits_of(plain_mean(gradients, t)));
    EXPECT_EQ(group.workers[0].residual(t), nullptr);
  }
  EXPECT_NE(bits_of(out[0]), bits_of(plain_mean(gradients, 0)));
}

TEST(SharedLowRank, SizesFollowTheFormulas) {
  Group group({.rank = 4, .min_ratio = 1.5}, kTensors, 2);
  group.step(gradients_of(kTensors, 2, 1));
  EXPECT_EQ(group.floats_sent, (SharedLowRank::Counts{40 + 16 + 1, (60 + 30) * 4, (40 + 44) * 4}));
  EXPECT_EQ(group.workers[0].counts(), group.floats_sent);
}

TEST(SharedLowRank, TheGuardKnowsTheRatio) {
  const TensorSpec projection{Dtype::f32, {1024, 128}};
  EXPECT_NEAR(low_rank_ratio(128, projection), 0.89, 0.005);
  EXPECT_NEAR(low_rank_ratio(128, {Dtype::f32, {384, 1024}}), 2.18, 0.01);
  for (const auto& [ratio, encoded] : {std::pair{1.0, false}, {0.88, true}, {0.0, true}})
    EXPECT_EQ(SharedLowRank({.rank = 128, .min_ratio = ratio}, {{"projection", projection}}, 2)
                  .is_encoded(0),
              encoded);
}

TEST(SharedLowRank, AtFullRankItIsTheMeanInWhateverOrder) {
  for (const std::size_t count : {2, 3, 4, 8}) {
    const auto tensors = tensor_of_matrix(20, 30);
    auto gradients = gradients_of(tensors, count, 5);
    const Matrix mean = plain_mean(gradients, 0);
    const SharedLowRankSpec spec{.rank = 20, .min_ratio = 0};
    EXPECT_LE(relative_error(mean, Group(spec, tensors, count).step(gradients)[0]), 1e-5);
    std::reverse(gradients.begin(), gradients.end());
    EXPECT_LE(relative_error(mean, Group(spec, tensors, count).step(gradients)[0]), 1e-5);
  }
}

TEST(SharedLowRank, SmallGradientsErrNoMoreThanLargeOnes) {
  const std::vector<double> spectrum = decaying(40, 0.8);
  const Matrix a = matrix_with_spectrum(64, 48, spectrum, 2);
  const double best = best_error(spectrum, 8);
  for (const float scale : {1.0F, 1e-4F, 1e-6F, 1e-12F}) {
    Group group({.rank = 8, .min_ratio = 0, .feedback = false}, tensor_of_matrix(64, 48), 2);
    const Matrix small = scaled(a, scale);
    Matrix out;
    for (int i = 0; i < 20; ++i) out = group.step({{small}, {small}})[0];
    EXPECT_NEAR(relative_error(small, out), best, 1e-4 * best) << scale;
  }
}

// --- memory

TEST(SharedLowRank, WithoutFeedbackNothingIsRemembered) {
  Group group({.rank = 4, .feedback = false}, kTensors, 2);
  group.step(gradients_of(kTensors, 2, 1));
  EXPECT_EQ(group.workers[0].residual(0), nullptr);
  EXPECT_FALSE(group.workers[0].save().contains("attention.residual"));
}

TEST(SharedLowRank, AnAbandonedStepLeavesNoTrace) {
  const SharedLowRankSpec spec{.rank = 4};
  Group plain(spec, kTensors, 2), skipping(spec, kTensors, 2);
  for (std::uint64_t step = 0; step < 6; ++step) {
    auto overflowed = gradients_of(kTensors, 2, 50 + step);
    overflowed[1][0][7] = std::numeric_limits<float>::infinity();
    const auto outputs = skipping.exchange(overflowed);
    for (const Tensors& out : outputs) EXPECT_FALSE(std::isfinite(out[0][0]));
    for (SharedLowRank& worker : skipping.workers) worker.abandon();
    const auto gradients = gradients_of(kTensors, 2, step);
    EXPECT_EQ(skipping.step(gradients), plain.step(gradients));
    for (std::size_t w = 0; w < 2; ++w)
      EXPECT_EQ(skipping.workers[w].save(), plain.workers[w].save());
  }
}

TEST(SharedLowRank, ACommittedStepThatIsNotFiniteIsForgotten) {
  Group group({.rank = 4, .min_ratio = 0}, tensor_of_matrix(30, 20), 2);
  const Matrix a = matrix_with_spectrum(30, 20, {2.0, 1.0}, 3);
  EXPECT_LE(relative_error(a, group.step({{a}, {a}})[0]), 1e-5);
  Matrix bad = a;
  bad[5] = std::numeric_limits<float>::quiet_NaN();
  const Tensors broken = group.step({{a}, {bad}});
  for (const float x : broken[0]) EXPECT_TRUE(std::isnan(x));
  EXPECT_FALSE(group.workers[0].save().contains("matrix.basis"));  // drawn anew
  EXPECT_LE(relative_error(a, group.step({{a}, {a}})[0]), 1e-5);
  const Matrix zero(30 * 20);
  EXPECT_LE(norm(group.step({{zero}, {zero}})[0]), 1e-5);
  EXPECT_LE(relative_error(a, group.step({{a}, {a}})[0]), 1e-5);
}

// A gradient of lower rank leaves columns of the subspace empty; without a residual nothing but a
// draw brings them back.
TEST(SharedLowRank, DirectionsThatWereLostComeBack) {
  Group group({.rank = 4, .min_ratio = 0, .feedback = false}, tensor_of_matrix(30, 20), 2);
  const Matrix full = matrix_with_spectrum(30, 20, {2.0, 1.0, 1.0, 0.5}, 3);
  for (const Matrix& poor : {Matrix(30 * 20), matrix_with_spectrum(30, 20, {1.0}, 5)}) {
    EXPECT_LE(relative_error(full, group.step({{full}, {full}})[0]), 1e-5);
    group.step({{poor}, {poor}});
    EXPECT_LE(relative_error(full, group.step({{full}, {full}})[0]), 1e-5);
  }
}

TEST(SharedLowRank, ARestartContinuesBitForBit) {
  const SharedLowRankSpec spec{.rank = 4};
  Group plain(spec, kTensors, 3), restarted(spec, kTensors, 3);
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto gradients = gradients_of(kTensors, 3, step);
    EXPECT_EQ(restarted.step(gradients), plain.step(gradients));
    Group next(spec, kTensors, 3);
    for (std::size_t w = 0; w < 3; ++w) next.workers[w].load(restarted.workers[w].save());
    restarted = next;
  }
}

TEST(SharedLowRank, RefusesTheStateOfAnother) {
  Group group({.rank = 4}, kTensors, 1);
  group.step(gradients_of(kTensors, 1, 1));
  const NamedFloats good = group.workers[0].save();
  NamedFloats bad = good;
  bad["attention.basis"].pop_back();
  bad["bias.residual"] = {1};
  try {
    group.workers[0].load(bad);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "attention.basis: 159 numbers instead of 160\n"
                 "bias.residual: belongs to no matrix that travels by low rank");
  }
  EXPECT_EQ(group.workers[0].save(), good);
}

TEST(SharedLowRank, IsTheSameOnEveryTarget) {
  Tensors expected;
  for_each_target([&] {
    Group group({.rank = 6}, kTensors, 2);
    Tensors out;
    for (std::uint64_t step = 0; step < 3; ++step)
      out = group.step(gradients_of(kTensors, 2, step));
    if (expected.empty()) expected = out;
    EXPECT_EQ(out, expected);
  });
}

// The share of a single worker in the output is the output.
TEST(SharedLowRank, AWatchedWorkerSeesItsShareInTheOutputAndItsResidual) {
  for (const bool feedback : {false, true})
    for (const std::size_t count : {1U, 3U}) {
      Group group({.rank = 6, .feedback = feedback}, kTensors, count);
      group.step(gradients_of(kTensors, count, 0));
      std::vector<Fidelity> seen(count);
      for (std::size_t w = 0; w < count; ++w) group.workers[w].measure_fidelity(&seen[w]);
      const std::vector<Tensors> gradients = gradients_of(kTensors, count, 1);
      const Tensors output = group.step(gradients);
      for (std::size_t w = 0; w < count; ++w) {
        Fidelity expected;
        for (std::size_t t = 0; t < kTensors.size(); ++t) {
          if (!group.workers[w].is_encoded(t)) continue;
          Fidelity one = compare(gradients[w][t], output[t]);
          const float* residual = group.workers[w].residual(t);
          if (residual != nullptr) one.residual = square_of({residual, gradients[w][t].size()});
          expected += one;
        }
        EXPECT_EQ(seen[w].messages, 2U);
        EXPECT_EQ(seen[w].truth, expected.truth);
        EXPECT_EQ(seen[w].residual, expected.residual);
        EXPECT_EQ(seen[w].residual > 0, feedback);
        if (count == 1)
          EXPECT_EQ(seen[w], expected);
        else  // of the others' there is nothing in it
          EXPECT_GT(seen[w].cosine(), expected.cosine());
        group.workers[w].measure_fidelity(nullptr);
      }
      const std::vector<Fidelity> before = seen;
      group.step(gradients);
      EXPECT_EQ(seen, before);
    }
}

TEST(SharedLowRank, PhasesComeInOrder) {
  SharedLowRank worker({.rank = 2}, tensor_of_matrix(8, 8), 1);
  std::vector<float> right;
  EXPECT_THROW(worker.project({}, right), std::logic_error);
  EXPECT_THROW(worker.commit(), std::logic_error);
  worker.abandon();
  EXPECT_EQ(check(SharedLowRankSpec{.rank = 0, .min_ratio = -1}).size(), 2u);
}

}  // namespace
}  // namespace laconic
