#include "laconic/base/word_law.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "laconic/base/error.hpp"

namespace laconic {

ZipfLaw lm1b_law(std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .shift = 1.94,
          .pieces = {{1.336, 55}, {0.9566, 4600}, {.exponent = 1.6545}}};
}

std::vector<double> probabilities_of(const ZipfLaw& law) {
  std::vector<double> weights(static_cast<std::size_t>(law.vocabulary));
  std::size_t piece = 0;
  double height = 1, from = 1 + law.shift;  // of the piece's first word
  double total = 0;
  for (std::size_t word = 0; word < weights.size(); ++word) {
    const double at = static_cast<double>(word + 1) + law.shift;
    while (piece + 1 < law.pieces.size() &&
           static_cast<double>(word + 1) > law.pieces[piece].until) {
      const double end = law.pieces[piece].until + law.shift;
      height *= std::pow(end / from, -law.pieces[piece].exponent);
      from = end;
      ++piece;
    }
    weights[word] = height * std::pow(at / from, -law.pieces[piece].exponent);
    total += weights[word];
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

WordDraws::WordDraws(const std::vector<double>& probabilities) {
  double sum = 0;
  for (const double p : probabilities) sums_.push_back(sum += p);
}

std::int64_t WordDraws::at(Key key, std::uint64_t index) const {
  const double u = uniform_at(key, index) * sums_.back();
  const auto found = std::ranges::upper_bound(sums_, u) - sums_.begin();
  return std::min<std::int64_t>(found, static_cast<std::int64_t>(sums_.size()) - 1);
}

double log_uniform(std::int64_t vocabulary, std::int64_t word) {
  return std::log1p(1 / static_cast<double>(word + 1)) /
         std::log(static_cast<double>(vocabulary + 1));
}

Negatives draw_negatives(std::int64_t vocabulary, std::int64_t count, Key key) {
  LACONIC_ASSERT(count >= 1 && count <= most_negatives(vocabulary),
                 std::to_string(count) + " negatives of " + std::to_string(vocabulary) + " words");
  Negatives negatives{.vocabulary = vocabulary};
  std::unordered_set<std::int64_t> found;
  const double range = std::log(static_cast<double>(vocabulary + 1));
  while (static_cast<std::int64_t>(negatives.ids.size()) < count) {
    const double u = uniform_at(key, static_cast<std::uint64_t>(negatives.draws++));
    const auto word = std::min(static_cast<std::int64_t>(std::exp(u * range)) - 1, vocabulary - 1);
    if (found.insert(word).second) negatives.ids.push_back(word);
  }
  return negatives;
}

double expected_count(const Negatives& negatives, std::int64_t word) {
  return -std::expm1(static_cast<double>(negatives.draws) *
                     std::log1p(-log_uniform(negatives.vocabulary, word)));
}

Key negatives_key(std::uint64_t seed, std::int64_t step) {
  return derive(derive(key_of(seed), "negatives"), static_cast<std::uint64_t>(step));
}

Key negatives_key(std::uint64_t seed, std::int64_t step, std::int64_t member) {
  return derive(derive(negatives_key(seed, step), "rank"), static_cast<std::uint64_t>(member));
}

}  // namespace laconic
