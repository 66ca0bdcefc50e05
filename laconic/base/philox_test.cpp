#include "laconic/base/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "laconic/base/test_target.hpp"

namespace laconic {
namespace {

// The known-answer vectors that come with Random123 (philox 4x32, 10 rounds).
TEST(Philox, EqualsThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

double normal_at(Key key, std::uint64_t index) {
  return inverse_normal(uniform_at(key, index));
}

TEST(Philox, VectorFillsEqualSingleDrawsBitForBitOnEveryTarget) {
  const Key key = derive(key_of(7), "wte.weight");
  // Starts around block borders and the carry out of the 32-bit block counter.
  for_each_target([&] {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5},
                                      (std::uint64_t{1} << 34) - 7, (std::uint64_t{1} << 33) - 5}) {
      for (const std::size_t size : {0, 1, 2, 3, 4, 63, 64, 65, 200}) {
        std::vector<std::uint32_t> words(size);
        std::vector<double> uniforms(size), normals(size);
        std::vector<float> floats(size);
        fill_words(key, first, words);
        fill_uniform(key, first, uniforms);
        fill_normal(key, first, 0, 1, normals);
        fill_normal(key, first, 0, 0.02, floats);
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_EQ(words[i], word_at(key, first + i)) << first << " + " << i;
          ASSERT_EQ(uniforms[i], uniform_at(key, first + i)) << first << " + " << i;
          ASSERT_EQ(normals[i], normal_at(key, first + i)) << first << " + " << i;
          ASSERT_EQ(floats[i], static_cast<float>(0.02 * normal_at(key, first + i)));
        }
      }
    }
  });
}

TEST(Philox, QuantileInvertsTheErrorFunction) {
  for (double p = 1e-15; p < 0.5; p *= 1.1) {
    const double x = inverse_normal(p);
    const double back = 0.5 * std::erfc(-x / std::sqrt(2.0));
    EXPECT_NEAR(back / p, 1.0, 3e-13) << p;
    EXPECT_NEAR(inverse_normal(1 - p), -inverse_normal(1 - (1 - p)), 1e-12) << p;
  }
  EXPECT_EQ(inverse_normal(0.5), 0.0);
  EXPECT_NEAR(inverse_normal(0.975), 1.959963984540054, 1e-15);
}

TEST(Philox, NormalsHaveTheMomentsOfANormal) {
  std::vector<double> x(1 << 20);
  fill_normal(key_of(1), 0, 0, 1, x);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const double v : x) m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(m1 / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(m2 / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(m3 / n, 0, 4 * std::sqrt(15 / n));
  EXPECT_NEAR(m4 / n, 3, 4 * std::sqrt(96 / n));
}

TEST(Philox, KeysOfDifferentNamesAndNumbersDiffer) {
  const Key root = key_of(1);
  EXPECT_NE(derive(root, "a"), derive(root, "b"));
  EXPECT_NE(derive(root, 1, 2), derive(root, 2, 1));
  EXPECT_NE(derive(derive(root, 1), 2), derive(derive(root, 2), 1));
  EXPECT_EQ(derive(root, "h.0.attn"), derive(root, "h.0.attn"));
}

TEST(Philox, PermutationVisitsEveryIndexOnce) {
  for (std::uint64_t size = 1; size < 300; ++size) {
    std::vector<int> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) ++seen.at(permuted(key_of(size), i, size));
    for (const int count : seen) ASSERT_EQ(count, 1) << size;
  }
}

TEST(Philox, PermutationsOfDifferentKeysDiffer) {
  int fixed_points = 0;
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    fixed_points += permuted(key_of(1), i, 1000) == i;
    equal += permuted(key_of(1), i, 1000) == permuted(key_of(2), i, 1000);
  }
  EXPECT_LT(fixed_points, 10);
  EXPECT_LT(equal, 10);
}

}  // namespace
}  // namespace laconic
