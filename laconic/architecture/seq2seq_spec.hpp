// architecture/seq2seq_spec.hpp — the blocks of an encoder-decoder; asked for by model_spec()
// alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

// Lengths are as with model_spec().
ModelSpec seq2seq_spec(const Seq2SeqShape& shape, std::int64_t tokens, std::int64_t target_tokens);

}  // namespace laconic
