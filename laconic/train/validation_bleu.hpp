// train/validation_bleu.hpp — BLEU of what an encoder-decoder makes of a dataset.
//
// The references are what the tokeniser makes of the data's tokens, so that a tokeniser that loses
// something of a text does not count against the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/data/dataset.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/metric/bleu.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/train/translate.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

using TokenLists = std::vector<std::vector<std::int64_t>>;

// Translating as the data's special tokens ask.
TranslationRule translation_rule(const Dataset& data, std::int64_t beam);

// The sources of samples [first, end), cut and ended as the task Translate has them.
TokenLists sources_of(const Dataset& data, std::int64_t first, std::int64_t end);

// Compares translations of the first samples with what the data has.
Bleu bleu_of(const Dataset& data, const Tokeniser& tokeniser, const TokenLists& translations);

struct TranslateRequest {
  std::int64_t samples = 0;     // the first so many; the dataset has them
  std::int64_t microbatch = 1;  // a replica never has more texts at once than this, or than 64
  TensorGrid* grid = nullptr;   // of this stage, if the weights are those of one
};

// Translates samples greedily, on all ranks together: replicas take shares. In a pipeline every
// stage remembers its layers' keys and values, and for each token one row a text crosses each edge;
// all ranks then hear of the tokens that the last stage has chosen, on a grid its first rank.
// Replicas of one rank each tell
// each other every few tokens that they are still at it. Returns all translations, in order, on
// every rank. Collective. Throws PeerLost, Timeout. Requires: the weights are an
// encoder-decoder's.
TokenLists translate_samples(const Weights& weights, Pipeline& pipeline, const Dataset& data,
                             const TranslateRequest& request, World& world);

// BLEU of a run's evaluations, where the tokeniser of the validation set is there to compare texts.
class ValidationBleu {
 public:
  // Whether there is one rank 0 decides, which alone needs it. Collective. Throws on every rank
  // what is wrong with a tokeniser that is there.
  ValidationBleu(const std::string& prefix, World& world);

  // Empty when there is BLEU.
  const std::string& why_not() const { return why_not_; }
  // Nothing where there is no BLEU, and on all ranks but 0, which speaks. Collective.
  std::optional<double> measure(const Weights& weights, Pipeline& pipeline, const Dataset& data,
                                const TranslateRequest& request, World& world) const;

 private:
  std::string why_not_;
  std::optional<Tokeniser> tokeniser_;
};

}  // namespace laconic
