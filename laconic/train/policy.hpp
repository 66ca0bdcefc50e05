// train/policy.hpp — what the configuration says about sums, as policies. Pure.
#pragma once

#include <optional>

#include "laconic/base/dtype.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/reduce/gradient_sum.hpp"

namespace laconic {

// Of ranks that encode (dp.gradient).
GradientPolicy policy_of(const RunConfig& config);
// Of the ranks at place `pp` of their pipelines, when the first `encoded` encode: the same, or
// exact sums without any memory.
GradientPolicy policy_of(const RunConfig& config, int pp, int encoded);
// How many encode, by dp.gradient.stages. Requires: `automatic` has a value if that is "auto".
int encoded_ranks(const RunConfig& config, std::optional<int> automatic);

// Of the tied embedding, where first and last stage are different ranks (embedding.tied), with both
// residuals if it loses anything. Exact in the steps of dp.gradient.warmup; plain sums go by
// dp.gradient.algorithm.
GradientPolicy tied_policy_of(const RunConfig& config);

// Everything about sums that is known to be impossible before a model is there. Requires:
// check(config) is empty.
Problems check_parallel(const RunConfig& config);

}  // namespace laconic
