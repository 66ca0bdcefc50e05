// train/generate.hpp — text from a model, token by token.
//
// Sampling is by number: token i of a run with seed s uses draw i of the key
// made from s, so the same command gives the same text on any machine that
// computes the same logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/train/model_ranks.hpp"

namespace laconic {

struct SamplingRule {
  double temperature = 1.0;  // 0: greedy
  std::int64_t top_k = 0;    // only the k most likely tokens; 0: all
  double top_p = 1.0;        // only the fewest tokens whose probabilities reach p
};

// The token that the rule picks from these logits for a uniform draw in (0, 1). Pure. Equal
// logits are ordered by id.
std::int64_t pick_token(std::span<const double> logits, const SamplingRule& rule, double draw);

struct GenerateRequest {
  std::vector<std::int64_t> prompt;  // at least one id
  std::int64_t tokens = 100;         // to make
  SamplingRule rule;
  std::uint64_t seed = 1;
  std::int64_t stop = -1;  // ends when this id is made (and leaves it out); -1: never
};

// Ids after the prompt. Each is also given to `each` as soon as it is known, which says whether to
// go on. When the context is full, the last half of the text is read anew, so length is not
// limited. On a grid all ranks get all tokens, and `each` must say the same on all of them.
std::vector<std::int64_t> generate(const Weights& weights, const GenerateRequest& request,
                                   const std::function<bool(std::int64_t)>& each,
                                   const ModelRanks& ranks = {});

}  // namespace laconic
