// reduce/shared_low_rank.hpp — the mean of D workers' gradients by low rank: PowerSGD.
//
// A pure state machine without a network, one object per worker. A step is
//
//   begin(gradients)            gives `raw` and `left`      sum each over the workers
//   project(sum of left)        gives `right`               sum it over the workers
//   finish(sums)                gives the outputs
//   commit()  or  abandon()     from any point: as if the step had never begun
//
// What one could get wrong: the caller hands over sums, never means, and every
// worker must be handed the same bits, else their subspaces drift apart and so
// do their models. The residual is the worker's own input minus the shared
// output. After a step whose gradients overflowed call abandon().
//
// A matrix with a number that is not finite, on any worker, comes out all NaN on
// all; if such a step is committed its residual stays and its subspace is drawn
// anew. Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/named_floats.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/link/fidelity.hpp"

namespace laconic {

struct SharedLowRankSpec {
  std::int64_t rank = 16;
  double min_ratio = 1;    // matrices that would shrink by less travel raw
  bool feedback = true;    // what a step lost is added to the next gradient
  std::uint64_t seed = 0;  // of the first subspaces; the same on all workers
  bool operator==(const SharedLowRankSpec&) const = default;
};
Problems check(const SharedLowRankSpec& spec);

// n m / ((n + m) r) with the rows, columns and effective rank of the tensor as a matrix; 0 when it
// has fewer than two dims or no elements, since such a tensor always travels raw.
double low_rank_ratio(std::int64_t rank, const TensorSpec& tensor);

// The rank of the factors that such a tensor travels by; 0: it travels raw.
std::uint64_t factor_rank(const SharedLowRankSpec& spec, const TensorSpec& tensor);
// What the first subspace of a tensor is drawn from.
Key start_key(const SharedLowRankSpec& spec, const std::string& name);

struct NamedTensor {
  std::string name;   // of the parameter; unique
  TensorSpec tensor;  // f32
};

class SharedLowRank {
 public:
  // Requires: check(spec) is empty; workers > 0; all tensors f32, with different names.
  SharedLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors,
                int workers);

  // How many floats the buffers of a step have.
  struct Counts {
    std::size_t raw = 0;    // elements of the tensors that travel raw
    std::size_t left = 0;   // n r, over the others
    std::size_t right = 0;  // m r
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const;
  bool is_encoded(std::size_t tensor) const;  // by its two factors; else it travels raw

  // Pointers in the order of the tensors. The gradients must stay as they are until project() has
  // returned. Sets the size of both buffers.
  void begin(std::span<const float* const> gradients, std::vector<float>& raw,
             std::vector<float>& left);
  void project(std::span<const float> left_sum, std::vector<float>& right);
  // The outputs may be where the gradients were.
  void finish(std::span<const float> raw_sum, std::span<const float> right_sum,
              std::span<float* const> outputs);
  void commit();   // Requires: finish() has been called.
  void abandon();  // nothing happens without a step

  // In steps that begin from here on finish() adds to `into` how much of each matrix gets through;
  // null: measures nothing. The output is a mean over workers, and by how much this worker's own
  // gradient differs from it says more about the data than about the factors. So what counts as
  // decoded is this worker's share in the output, P P^T A_w, with P as all workers have it; what is
  // true is its gradient; and the residual is its own. What a codec of the factors loses is for
  // whoever sends them to see. Requires: no step is under way.
  void measure_fidelity(Fidelity* into);

  // Requires, for these: no step is under way.
  // Null until a step of that tensor with feedback has been committed.
  const float* residual(std::size_t tensor) const;
  // Everything a step depends on. What is loaded was saved by an object with the same tensors and
  // spec; otherwise throws ConfigError with every reason, and nothing has changed.
  NamedFloats save() const;
  void load(const NamedFloats& state);

 private:
  enum class Phase { idle, begun, projected, finished };

  struct Slot {
    std::string name;
    std::size_t rows = 0, columns = 0, rank = 0;  // rank 0: travels raw
    std::size_t elements = 0;
    // Kept from step to step; empty before there is any.
    std::vector<float> basis, residual;
    // The present step's:
    const float* gradient = nullptr;
    std::vector<float> input, left, right;  // A_w (with feedback), P, Q
    bool finite = true;
    Fidelity fidelity;  // when measured
  };

  const float* input_of(const Slot& slot) const;
  std::size_t left_size(std::size_t tensor) const;
  std::size_t right_size(std::size_t tensor) const;
  void begin_matrix(Slot& slot, float* left) const;
  void project_matrix(Slot& slot, std::span<const float> left_sum, float* right) const;
  void measure(Slot& slot, const float* right) const;
  void finish_matrix(Slot& slot, std::span<const float> right_sum, float* output) const;
  void commit_matrix(Slot& slot) const;
  void require(Phase phase) const;

  SharedLowRankSpec spec_;
  float workers_;
  std::vector<Slot> slots_;
  Phase phase_ = Phase::idle;
  Fidelity* fidelity_ = nullptr;  // adds up how much of the matrices gets through
};

}  // namespace laconic
