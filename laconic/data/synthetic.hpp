// data/synthetic.hpp — tokens that nobody wrote, drawn by a law of words: for measuring models
// whose data is not at hand. `laconic prepare --synthetic`.
#pragma once

#include <cstdint>
#include <string>

#include "laconic/base/problem.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/data/prepare.hpp"

namespace laconic {

// Token i is draw i of the law for LM1B's words (base/word_law.hpp), whatever came before it: there
// is nothing in it that a model could learn beyond how often words come.
struct SyntheticOptions {
  std::string output;  // PREFIX
  std::int64_t vocabulary = kLm1bVocabulary;
  std::int64_t tokens = 0;
  double validation_share = 0;  // so many tokens more, drawn apart, go to PREFIX-valid
  std::uint64_t seed = 1;
  bool overwrite = false;
};

Problems check(const SyntheticOptions& options);

// Writes PREFIX.bin, .idx and .json; there is no tokeniser. Throws ConfigError with all problems,
// SystemError.
PrepareReport prepare_synthetic(const SyntheticOptions& options);

}  // namespace laconic
