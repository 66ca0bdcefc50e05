// architecture/bert_spec.hpp — the blocks of BERT; asked for by model_spec() alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

ModelSpec bert_spec(const BertShape& shape, std::int64_t tokens);

}  // namespace laconic
