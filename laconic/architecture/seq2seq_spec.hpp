// architecture/seq2seq_spec.hpp — the blocks of an encoder-decoder; asked for by model_spec()
// alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

// `tokens` is the length of sources; targets are as long as the family's target_context, or as
// `tokens` where that is less than the family's context.
ModelSpec seq2seq_spec(const Seq2SeqShape& shape, std::int64_t tokens);

}  // namespace laconic
