// train/translate.hpp — what an encoder-decoder makes of texts, greedily or by beam search.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/train/model_ranks.hpp"

namespace laconic {

struct TranslationRule {
  std::int64_t beam = 1;      // hypotheses kept for each text; 1: greedy
  double length_penalty = 1;  // a finished one scores log probability / length^this
  std::int64_t tokens = 0;    // most tokens of a translation; 0: as many as the model can write
  std::int64_t begin = 0;     // the token that a translation begins after
  std::int64_t end = 0;       // the one that ends it
};

struct Translation {
  std::vector<std::int64_t> ids;  // without begin and end
  double log_probability = 0;     // of the ids, and of the end where it was reached
  bool is_ended = false;          // false: there was no room left
};

// One for each source, in order; they are computed together. Equal scores are ordered by
// hypothesis, then by id, so the result does not depend on the machine's sorting. Throws
// ConfigError when the model is no encoder-decoder. Requires: all blocks are held; every source has
// 1 ... context tokens. On a grid all ranks return the same.
std::vector<Translation> translate(const Weights& weights,
                                   const std::vector<std::vector<std::int64_t>>& sources,
                                   const TranslationRule& rule, const ModelRanks& ranks = {});

}  // namespace laconic
