// architecture/gpt_spec.hpp — the blocks of GPT-2; asked for by model_spec() alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

ModelSpec gpt_spec(const GptShape& shape, std::int64_t tokens);

}  // namespace laconic
