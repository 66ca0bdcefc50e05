// train/validation_bleu.hpp — BLEU of what an encoder-decoder makes of a dataset.
//
// The references are what the tokeniser makes of the data's tokens, so that a tokeniser that loses
// something of a text does not count against the model.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/data/dataset.hpp"
#include "laconic/data/tokeniser.hpp"
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

// Translates the first `samples` samples greedily, on all ranks together: replicas take shares. In
// a pipeline every stage remembers its layers' keys and values, and for each token one row a text
// crosses each edge; all ranks then hear of the tokens that the last stage has chosen. Returns all
// translations, in order, on every rank. Collective. Throws PeerLost, Timeout. Requires: the
// weights are an encoder-decoder's; samples that the dataset has.
TokenLists translate_samples(const Weights& weights, Pipeline& pipeline, const Dataset& data,
                             std::int64_t samples, World& world);

}  // namespace laconic
