// simulate/held_model.hpp — what one rank of a run has of the model, and what it sums with whom.
//
// The same as update/gradient_exchange.hpp finds out with tensors at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/simulate/run_simulation.hpp"
#include "laconic/simulate/sum_program.hpp"

namespace laconic {

class HeldModel {
 public:
  // `is_fused`: parameters that stages share are summed once, over all of their replicas.
  HeldModel(const SimulationRequest& request, Rank rank, bool is_fused);

  const std::vector<std::size_t>& blocks() const { return blocks_; }  // ascending
  bool holds(std::size_t block) const { return is_held_[block]; }
  // The first block here that uses a parameter: with it the gradient is complete.
  std::size_t completing_block(std::size_t parameter) const;
  // Parameters whose gradients a block completes, frozen ones being without, and all blocks here
  // that use them.
  std::vector<std::size_t> completed_by(std::size_t block) const;
  std::vector<std::size_t> users_here(std::size_t parameter) const;

  // Of all parameters here that are trained, but for tables whose rows travel.
  double elements() const;
  double elements_completed_by(std::size_t block) const;
  // Of a round's changes as SparseLoCo sends them.
  double sparse_change_bytes() const;
  // Parameters whose norms this rank tells all others.
  std::int64_t spoken_for() const;

  // Sums over replicas, and over the stages that share a set of parameters.
  SumSetting replica_sums() const;
  struct SharedSum {
    SumSetting setting;
    std::vector<std::size_t> parameters;
    std::size_t slot = 0;  // its place in the setting's blocks
  };
  const std::vector<SharedSum>& shared_sums() const { return shared_; }
  bool is_fused() const { return is_fused_; }

 private:
  TensorSpec tensor_of(std::size_t parameter) const;
  void add_shared();
  bool is_left_out(std::size_t parameter) const;

  const SimulationRequest& request_;
  const Mesh mesh_;
  const Rank rank_;
  const Coord coord_;
  const std::vector<int> holders_;  // by block: place in the pipeline
  bool is_fused_ = false;
  std::vector<bool> is_held_;
  std::vector<std::size_t> blocks_, parameters_;
  std::vector<std::size_t> tables_;  // parameters whose rows travel
  std::vector<SharedParameters> sets_;
  std::vector<SharedSum> shared_;
};

}  // namespace laconic
