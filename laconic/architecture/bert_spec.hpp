// architecture/bert_spec.hpp — the blocks of BERT; asked for by model_spec() alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

// Share of the tokens that is hidden, for costs: only these rows reach the vocabulary.
inline constexpr double kHiddenShare = 0.15;

ModelSpec bert_spec(const BertShape& shape, std::int64_t tokens);

}  // namespace laconic
