// base/word_law.hpp — laws of how often words come: what synthetic text is drawn by, and what
// negatives of a sampled softmax are. Pure.
//
// Words are numbered by frequency, the most frequent is 0.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"

namespace laconic {

// Zipf's law with Mandelbrot's shift, in pieces: word r (from 1) comes in proportion to
// (r + shift)^-exponent, with another exponent behind each bend; the pieces meet.
struct ZipfLaw {
  struct Piece {
    double exponent = 1;
    double until = 0;  // the last word, counted from 1, of all pieces but the last
  };
  std::int64_t vocabulary = 0;
  double shift = 0;
  std::vector<Piece> pieces = {};
};

inline constexpr std::int64_t kLm1bVocabulary = 793470;
// As words come in the One Billion Word benchmark. Fitted to how many different words batches of
// 2,560 and 20,480 tokens of it have and share, not to counts of words.
ZipfLaw lm1b_law(std::int64_t vocabulary = kLm1bVocabulary);

// Of every word; they add up to 1.
std::vector<double> probabilities_of(const ZipfLaw& law);

// Draws words by their probabilities: draw i is a pure function of key and i.
class WordDraws {
 public:
  explicit WordDraws(const std::vector<double>& probabilities);
  std::int64_t at(Key key, std::uint64_t index) const;

 private:
  std::vector<double> sums_;
};

// The log-uniform law: P(word) = log((word + 2) / (word + 1)) / log(vocabulary + 1).
double log_uniform(std::int64_t vocabulary, std::int64_t word);

// Different words drawn by it, and how many draws that took.
struct Negatives {
  std::int64_t vocabulary = 0;
  std::vector<std::int64_t> ids = {};  // in the order in which they were first drawn
  std::int64_t draws = 0;
};
// Requires: 1 <= count <= most_negatives(vocabulary).
Negatives draw_negatives(std::int64_t vocabulary, std::int64_t count, Key key);
// Rare words would have to be waited for too long.
inline std::int64_t most_negatives(std::int64_t vocabulary) {
  return vocabulary / 2;
}

// How often a word is expected among so many draws, counted once: 1 - (1 - P)^draws.
double expected_count(const Negatives& negatives, std::int64_t word);

// What the negatives of a step are drawn by: the same for all ranks, or (from 0 on) those of a
// member of the data-parallel group. Whoever knows the step knows them, long before it.
Key negatives_key(std::uint64_t seed, std::int64_t step);
Key negatives_key(std::uint64_t seed, std::int64_t step, std::int64_t member);

}  // namespace laconic
