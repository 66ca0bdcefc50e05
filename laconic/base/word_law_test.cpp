// Spec: embrace.md 4.3 and T14, and the definition of the log-uniform sampler.
#include "laconic/base/word_law.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace laconic {
namespace {

// Shares of the words of a batch, from draws that are real.
struct Sparsity {
  double unique = 0;                           // U / T
  std::vector<double> gamma = {}, prior = {};  // by number of workers
};

using Rows = std::vector<std::int64_t>;  // sorted, each once

Rows sorted(Rows rows) {
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::size_t common(const Rows& a, const Rows& b) {
  Rows both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both.size();
}

// What worker w of iteration t reads; averages over the workers of iteration 0 and the batches of
// iteration 1.
Sparsity measure(const std::function<Rows(int iteration, int worker)>& rows_of, double tokens,
                 const std::vector<int>& workers) {
  const int most = workers.back();
  std::vector<Rows> now, next;
  for (int w = 0; w < most; ++w) {
    now.push_back(rows_of(0, w));
    next.push_back(rows_of(1, w));
  }
  double unique = 0;
  for (const Rows& rows : now) unique += static_cast<double>(rows.size()) / most;
  Sparsity found{.unique = unique / tokens};
  for (const int n : workers) {
    double together = 0, shared = 0, own = 0;
    for (int first = 0; first + n <= most; first += n) {  // all groups of n workers there are
      Rows all, coming;
      for (int w = first; w < first + n; ++w) {
        all.insert(all.end(), now[static_cast<std::size_t>(w)].begin(),
                   now[static_cast<std::size_t>(w)].end());
        coming.insert(coming.end(), next[static_cast<std::size_t>(w)].begin(),
                      next[static_cast<std::size_t>(w)].end());
      }
      coming = sorted(coming);
      together += static_cast<double>(sorted(all).size());
      for (int w = first; w < first + n; ++w) {
        shared += static_cast<double>(common(now[static_cast<std::size_t>(w)], coming));
        own += static_cast<double>(now[static_cast<std::size_t>(w)].size());
      }
    }
    found.gamma.push_back(together / (own / n));
    found.prior.push_back(shared / own);
  }
  return found;
}

void expect_within_2_percent(double found, double expected, const char* what) {
  EXPECT_NEAR(found, expected, 0.02 * expected) << what;
}

Rows batch_of(const WordDraws& words, int tokens, int iteration, int worker) {
  const Key key = derive(derive(key_of(7), "batch"), static_cast<std::uint64_t>(iteration),
                         static_cast<std::uint64_t>(worker));
  Rows rows;
  for (int i = 0; i < tokens; ++i) rows.push_back(words.at(key, static_cast<std::uint64_t>(i)));
  return sorted(rows);
}

TEST(WordLaw, Lm1bHasTheSparsityOfThePaper) {
  const WordDraws words(probabilities_of(lm1b_law()));
  struct Row {
    int tokens;
    double unique;
    std::vector<double> gamma, prior;
  };
  for (const Row& row : {Row{128 * 20, 0.46, {1, 2.9, 4.8, 7.7}, {0.26, 0.48, 0.60, 0.69}},
                         {1024 * 20, 0.28, {1, 2.5, 3.7, 5.6}, {0.41, 0.64, 0.73, 0.81}}}) {
    SCOPED_TRACE(row.tokens);
    const Sparsity found = measure(
        [&](int iteration, int worker) { return batch_of(words, row.tokens, iteration, worker); },
        row.tokens, {1, 4, 8, 16});
    expect_within_2_percent(found.unique, row.unique, "U/T");
    for (std::size_t n = 0; n < 4; ++n) {
      expect_within_2_percent(found.gamma[n], row.gamma[n], "gamma");
      expect_within_2_percent(found.prior[n], row.prior[n], "p");
    }
  }
}

// The softmax table: labels, and 8192 negatives of each rank.
TEST(WordLaw, NegativesOfEachRankHaveTheSparsityOfThePaper) {
  const WordDraws words(probabilities_of(lm1b_law()));
  const auto rows_of = [&](bool is_shared) {
    return [&, is_shared](int iteration, int worker) {
      const Key key = is_shared ? negatives_key(3, iteration) : negatives_key(3, iteration, worker);
      Rows rows = draw_negatives(kLm1bVocabulary, 8192, key).ids;
      const Rows labels = batch_of(words, 2560, iteration, worker);
      rows.insert(rows.end(), labels.begin(), labels.end());
      return sorted(rows);
    };
  };
  const Sparsity found = measure(rows_of(false), kLm1bVocabulary, {1, 4, 16});
  expect_within_2_percent(found.unique, 0.0110, "alpha");
  for (const auto& [n, gamma, prior] : {std::tuple{0, 1.0, 0.22}, {1, 3.1, 0.39}, {2, 9.2, 0.57}}) {
    expect_within_2_percent(found.gamma[static_cast<std::size_t>(n)], gamma, "gamma");
    expect_within_2_percent(found.prior[static_cast<std::size_t>(n)], prior, "p");
  }
  // Shared ones differ between ranks by their labels alone.
  EXPECT_LT(measure(rows_of(true), kLm1bVocabulary, {16}).gamma[0], 1.7);
}

TEST(WordLaw, ProbabilitiesAddUpAndPiecesMeet) {
  for (const std::int64_t vocabulary : {1, 54, 56, 5000, 20000}) {
    const std::vector<double> p = probabilities_of(lm1b_law(vocabulary));
    double sum = 0;
    for (std::size_t w = 0; w < p.size(); ++w) {
      sum += p[w];
      if (w > 0) {
        EXPECT_LT(p[w], p[w - 1]);
        EXPECT_GT(p[w], 0.4 * p[w - 1]) << w;
      }
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(WordLaw, DrawsFollowTheirProbabilities) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
  const WordDraws draws(p);
  std::vector<double> counts(p.size());
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i)
    counts[static_cast<std::size_t>(draws.at(key_of(2), static_cast<std::uint64_t>(i)))] += 1;
  for (std::size_t w = 0; w < p.size(); ++w)
    EXPECT_NEAR(counts[w] / kDraws, p[w], 4 * std::sqrt(p[w] * (1 - p[w]) / kDraws));
}

TEST(WordLaw, LogUniformIsADistribution) {
  double sum = 0;
  for (std::int64_t word = 0; word < 1000; ++word) sum += log_uniform(1000, word);
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(WordLaw, NegativesAreDifferentWordsAndKnownAhead) {
  const Negatives a = draw_negatives(100, 50, negatives_key(1, 7));
  EXPECT_EQ(a.ids, draw_negatives(100, 50, negatives_key(1, 7)).ids);
  EXPECT_NE(a.ids, draw_negatives(100, 50, negatives_key(1, 8)).ids);
  EXPECT_NE(a.ids, draw_negatives(100, 50, negatives_key(2, 7)).ids);
  EXPECT_NE(a.ids, draw_negatives(100, 50, negatives_key(1, 7, 0)).ids);
  EXPECT_NE(draw_negatives(100, 50, negatives_key(1, 7, 0)).ids,
            draw_negatives(100, 50, negatives_key(1, 7, 1)).ids);
  EXPECT_EQ(std::set<std::int64_t>(a.ids.begin(), a.ids.end()).size(), 50U);
  EXPECT_GE(a.draws, 50);
  for (const std::int64_t id : a.ids) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 100);
  }
}

// Sums over the vocabulary, estimated by the words that were drawn, each divided by how often it is
// expected, are those of all words in the mean: for frequent words, for rare ones, and for a
// softmax's normaliser. Drawing until there are n different ones adds about 0.6 / n to that, which
// public language models live with, too: 7e-5 with 8192. Beside it bounds are four standard errors.
TEST(WordLaw, SumsOverNegativesAreUnbiased) {
  constexpr std::int64_t kVocabulary = 600, kCount = 60;
  constexpr int kSeeds = 1500;
  const std::vector<std::function<double(std::int64_t)>> weights = {
      [](std::int64_t) { return 1.0; }, [](std::int64_t word) { return word < 3 ? 1.0 : 0.0; },
      [](std::int64_t word) { return word >= 400 ? 1.0 : 0.0; },
      [](std::int64_t word) { return std::exp(std::sin(static_cast<double>(3 * word))); }};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    SCOPED_TRACE(i);
    double whole = 0;
    for (std::int64_t word = 0; word < kVocabulary; ++word) whole += weights[i](word);
    double sum = 0, squares = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const Negatives n = draw_negatives(kVocabulary, kCount, negatives_key(5, seed));
      double estimate = 0;
      for (const std::int64_t id : n.ids) estimate += weights[i](id) / expected_count(n, id);
      sum += estimate;
      squares += estimate * estimate;
    }
    const double mean = sum / kSeeds;
    const double error = std::sqrt((squares / kSeeds - mean * mean) / kSeeds);
    EXPECT_NEAR(mean, whole, 4 * error + 0.6 / kCount * whole) << error;
    EXPECT_LT(error, 0.02 * whole);  // else nothing could be told
  }
}

}  // namespace
}  // namespace laconic
