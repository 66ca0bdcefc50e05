// plan/sum_cost.hpp — what sums of gradients over replicas cost a rank: bytes, codecs, messages.
// Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/reduce/gradient_sum.hpp"

namespace laconic {

// Of one rank, for parameters that are summed together.
struct SumCost {
  double up_bytes = 0, down_bytes = 0;  // of contributions and of sums: all of them, not a chunk's
  double codec_seconds = 0;             // encoding, decoding, factors
  double handled_bytes = 0;             // that it receives
  double messages = 0;                  // that it receives
  double calls = 0;
  SumCost& operator+=(const SumCost& more);
};

struct SummedPart {
  const ParameterSpec* parameter = nullptr;
  double elements = 0;  // of it on this rank
};

SumCost sum_cost(const std::vector<SummedPart>& parts, const GradientPolicy& policy, int members,
                 const HostDevice& device);

// How long the host's processor is busy with it.
double handling_seconds(const SumCost& cost, const HostDevice& device);

}  // namespace laconic
