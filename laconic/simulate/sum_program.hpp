// simulate/sum_program.hpp — sums of gradients under a policy, as strands
// (reduce/gradient_sum.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/simulate/collective_program.hpp"

namespace laconic {

// One operation that some blocks are posted to; it begins with the last of them.
struct SumOperation {
  std::vector<std::size_t> blocks;
  ExchangeStrands strands;
};

struct SumSetting {
  Group group;
  GradientPolicy policy;
  Traffic traffic = Traffic::dp_gradient;
  std::vector<BlockLayout> blocks;
  Dtype dtype = Dtype::f32;
};

// The operations of a step. Requires: not by the transport's own sum.
std::vector<SumOperation> add_sums(ProgramBuilder& builder, const SumSetting& setting,
                                   std::uint64_t step);

}  // namespace laconic
