// architecture/llama_spec.hpp — the blocks and parameters of a Llama. Pure.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

ModelSpec llama_spec(const LlamaShape& shape, std::int64_t tokens);

// By how much each pair of a head turns from one position to the next, in radians.
std::vector<double> turns_of(const Rope& rope, std::int64_t head_width);

}  // namespace laconic
