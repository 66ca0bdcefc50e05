// simulate/rank_work.hpp — what a rank does for its sums besides codecs and messages: making
// factors of gradients, and passes over all parameters. Counted here, for simulations and for
// plans.
//
// A copy reads a float and writes one; what reads two and writes one is 1.5 of it.
//
// Pure.
#pragma once

#include "laconic/config/run_config.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/policy/local_round.hpp"
#include "laconic/reduce/shared_low_rank.hpp"

namespace laconic {

// Gradients that travel by low rank, and what is left raw beside them.
struct FactorWork {
  double raw = 0, matrices = 0;  // elements
  double left = 0, right = 0;    // elements of factors
  double products = 0;           // multiply-adds of one product of every matrix with a factor
  // Multiply-adds that make the columns of factors orthonormal: each column meets all before it,
  // twice in a dot product and twice to be taken off.
  double left_columns = 0, right_columns = 0;
};
// Adds `share` of a tensor.
void add_factors(const SharedLowRankSpec& spec, const TensorSpec& tensor, double share,
                 FactorWork& work);

// Before the first sum, between the two, and after them.
struct FactorSeconds {
  double begin = 0, project = 0, finish = 0;
  double total() const { return begin + project + finish; }
};
FactorSeconds factor_seconds(const FactorWork& work, bool has_feedback, const HostDevice& device);

// Copies of every parameter besides those of an update by AdamW.
struct ParameterPasses {
  double together = 0;  // to sum its gradient
  double leaving = 0;   // to send what a round has changed
  double arriving = 0;  // to take it
};
ParameterPasses parameter_passes(const LocalSection& local);
double pass_seconds(double copies, double elements, const HostDevice& device);

}  // namespace laconic
