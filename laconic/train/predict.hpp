// train/predict.hpp — what a model answers to single texts, as numbers.
//
// Texts come as token ids, several at a time; answers do not depend on those beside
// them, but for rounding.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/train/translate.hpp"

namespace laconic {

struct PredictInput {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> types = {};  // of each token, for a BERT; empty: all 0
};

// What may stand where a token was hidden.
struct Guess {
  std::size_t position = 0;
  std::vector<std::pair<std::int64_t, double>> best;  // ids and log probabilities, likeliest first
};

// Which of these are filled follows from the model.
struct ModelAnswer {
  std::vector<double> logits;             // classes; or one number
  std::vector<Guess> guesses;             // hidden tokens
  std::vector<double> log_probabilities;  // causal: of each token after those before; not the first
  std::int64_t begin = -1;                // span: first and last token
  std::int64_t end = -1;
  std::vector<std::int64_t> ids;  // translation
  double log_probability = 0;     // of the span, the translation, or the whole text
};

struct PredictRule {
  std::int64_t mask = -1;  // the token that stands for a hidden one
  std::int64_t best = 5;   // guesses for each
  TranslationRule translation = {};
};

// Everything that keeps an input from being answered: too long, ids or types that the model does
// not know.
Problems check(const Weights& weights, const PredictInput& input);

// One for each input, in order; on a grid rank 0 has them, and others get nothing. Requires:
// check() of each is empty; all blocks are held.
std::vector<ModelAnswer> predict(const Weights& weights, const std::vector<PredictInput>& inputs,
                                 const PredictRule& rule, const ModelRanks& ranks = {});

}  // namespace laconic
