#include "laconic/data/synthetic.hpp"

#include <gtest/gtest.h>

#include <set>

#include "laconic/base/error.hpp"
#include "laconic/data/indexed.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

std::vector<std::int64_t> first_tokens(const std::string& prefix, std::uint64_t count) {
  std::vector<std::int64_t> tokens(count);
  IndexedDataset(prefix).read(0, tokens);
  return tokens;
}

TEST(Synthetic, IsDrawnByTheLawAndTheSeed) {
  const TemporaryFolder folder;
  SyntheticOptions options{
      .output = folder / "a", .vocabulary = 5000, .tokens = 3000, .validation_share = 0.1};
  const PrepareReport report = prepare_synthetic(options);
  EXPECT_EQ(report.train.tokens, 3000U);
  EXPECT_EQ(report.valid.tokens, 300U);
  verify_dataset(folder / "a");
  verify_dataset(folder / "a-valid");
  EXPECT_EQ(read_sidecar(folder / "a")->vocabulary, 5000);
  const std::vector<std::int64_t> tokens = first_tokens(folder / "a", 3000);
  const WordDraws words(probabilities_of(lm1b_law(5000)));
  const Key key = derive(derive(key_of(1), "synthetic"), "train");
  for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], words.at(key, i)) << i;
  EXPECT_NE(first_tokens(folder / "a-valid", 300),
            std::vector<std::int64_t>(tokens.begin(), tokens.begin() + 300));
  options.output = folder / "b";
  options.seed = 2;
  prepare_synthetic(options);
  EXPECT_NE(first_tokens(folder / "b", 3000), tokens);
}

TEST(Synthetic, WhatCannotBeIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const SyntheticOptions good{.output = folder / "a", .vocabulary = 10, .tokens = 5};
  prepare_synthetic(good);
  EXPECT_EQ(check(good).size(), 1U);  // it exists now
  SyntheticOptions again = good;
  again.overwrite = true;
  EXPECT_TRUE(check(again).empty());
  EXPECT_EQ(
      check({.output = folder / "c", .vocabulary = 0, .tokens = 0, .validation_share = 1}).size(),
      3U);
}

}  // namespace
}  // namespace laconic
