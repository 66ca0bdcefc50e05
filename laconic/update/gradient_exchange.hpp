// update/gradient_exchange.hpp — all sums that a rank's gradients go through, as one.
//
// Every block of the rank over its dp group, by the policy of its stage; and, in a
// pipeline, parameters that several stages share (architecture/model_spec.hpp) over
// all stages that hold them. With a gradient F_d on the first of two stages and L_d
// on the last, of replica d:
//
//   fused    ΣF_d + ΣL_d in one sum over all 2 D holders. The parameters are in no
//            dp buffer; they leave when their local gradients are complete.
//   unfused  with their blocks over the dp group at each stage, then those sums over
//            the holders in each replica.
//
// Either way all stages get the same bits, whatever the codecs. Without a pipeline
// nothing is shared: a parameter goes with its block.
//
// Ranks of a tensor grid may hold copies of small parameters. Their sums are made with
// different neighbours in the buffers, so a codec loses something else of each, and more
// than two ranks may add in another order: the first copy's sum then counts for all.
//
//   begin ─► take, post: each held block ─► wait ─► commit or abandon
//
// Sums that are late (lateness.hpp) are those of what take() has kept of the step before: begin()
// posts it, take() keeps the step's own, post() has nothing to do.
//
// Where updates go block by block, has_arrived() and wait() of one come before those of all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/update/flat_blocks.hpp"
#include "laconic/update/lateness.hpp"
#include "laconic/update/update_rule.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

class GradientExchange {
 public:
  // With `may_be_on_device` the buffers, and so part(), are on the parameters' device if that is a
  // GPU and can sum what the policy wants (sums_on_device); those of blocks and of shared
  // parameters each for itself. `unit` is what its sums are of (residual_state.hpp); empty: as the
  // configuration says. Parameters in `left_out` are not its business. Requires: what the request
  // names outlives it; two exchanges are never under way together, but for those without pipeline
  // and grid that have no parameter in common and begin at different steps.
  GradientExchange(const RuleRequest& request, bool is_fused, bool may_be_on_device = false,
                   std::string_view unit = {}, const ParameterNumbers& left_out = {});

  int members() const { return static_cast<int>(world_.dp_group().size()); }
  // How many ranks add something to what becomes of the parameter at place `p`.
  int contributors(std::size_t p) const;

  void begin(std::int64_t step);
  void begin_shadow(std::int64_t step);  // see GradientSum
  // Copies the gradients of a held block into the buffers.
  void take(std::int64_t block);
  // What the buffers hold of a held block, or of all, may leave.
  void post(std::int64_t block);
  void post_all();
  // The buffers hold the sums.
  void wait();
  void commit();
  void abandon();

  // The same of what one held block completes, after everything of the step was posted. Requires:
  // fused, where anything is shared; no tensor grid.
  bool has_arrived(std::int64_t block) const;
  void wait(std::int64_t block);
  // Places of the parameters that a held block completes.
  const std::vector<std::size_t>& completed_by(std::int64_t block) const;

  // Where the parameter at place `p` lies in the buffers, in its own shape.
  const at::Tensor& part(std::size_t p) const;
  // What the buffers hold becomes the gradients; parameters whose sum is late and not there yet
  // have none, or a gradient of zeros where others of the step have theirs.
  void give_gradients() const;

  // Whether this step has any sums: the first one that is late has none.
  bool has_sums() const;
  // What take() has kept for the next step is not used.
  void drop_kept() { kept_step_ = kNoStep; }

  // Sums gradients of shared parameters over the stages of this replica alone, apart from all else;
  // nothing to do without a pipeline. Requires: not fused; outside of begin ... commit.
  void sum_shared_in_replica(std::int64_t step);

  // The sums of this rank, with what they remember.
  void add_links(LinkRegistry& registry);

 private:
  static constexpr std::int64_t kNoStep = -1;

  // Which gradients a sum adds up in the present step.
  enum class SumTurn : std::uint8_t { own, kept, none };

  // One set of parameters, where this rank is among its holders.
  struct Shared {
    SharedParameters set;
    std::vector<std::size_t> places;  // in Weights::parameters
    Group group;
    std::vector<BlockLayout> layouts;  // all but one are empty
    std::size_t slot = 0;              // that one
    bool is_on_device = false;         // the buffer
    at::Tensor buffer;                 // flat
    std::vector<at::Tensor> parts;     // by parameter of the set: views of the buffer
    std::unique_ptr<GradientSum> sum;
    std::size_t ready = 0;  // parameters that may leave in this step
    SumTurn turn = SumTurn::own;
    // Late: what the next step will sum, as `buffer` and `parts`.
    at::Tensor kept_buffer = {};
    std::vector<at::Tensor> kept_parts = {};
  };

  // Parameters of which a grid has several copies, by the axes along which these lie.
  struct Copies {
    Group group;                      // the first speaks
    std::vector<std::size_t> places;  // in Weights::parameters
  };
  std::vector<Copies> copies_of_grid(const ParameterNumbers& left_out) const;
  std::vector<std::vector<std::size_t>> completed_places() const;
  bool has_part_in(const Shared& shared, std::int64_t block) const;
  void agree_on_copies();

  bool stays_on_device(const GradientPolicy& policy, const Group& group) const;
  void require_shared(const RuleRequest& request) const;
  Shared make_shared(const SharedParameters& set, std::size_t slot) const;
  Ready ready_if(bool is_on_device) const;
  SumTurn turn_of(bool is_late, std::int64_t step) const;
  void begin_blocks(std::int64_t step);
  void begin_shared(Shared& shared, std::int64_t step);
  std::uint64_t number_of(SumTurn turn, std::int64_t step) const;
  // Of a set, or of the blocks.
  std::map<std::string, at::Tensor> kept_parts(const Shared* shared) const;
  RankTensors kept_tensors(const Shared* shared) const;
  std::string restore_kept(const std::vector<RankTensors>& saved, const Shared* shared);
  void post_shared(Shared& shared);
  void wait_for_shared(Shared& shared);
  std::string restore_sum(const std::vector<RankTensors>& saved);
  std::string restore_shared(const Shared& shared, const std::vector<RankTensors>& saved);

  const RunConfig& config_;
  Weights& weights_;
  World& world_;
  const bool is_fused_;
  const std::string unit_;
  const bool is_anything_shared_;  // between any ranks of the pipeline
  const GradientPolicy policy_;
  const bool may_be_on_device_;
  const bool is_on_device_;  // buffers of blocks
  const Lateness lateness_;
  FlatBlocks blocks_;               // but for what is fused
  std::optional<FlatBlocks> kept_;  // late: what the next step will sum
  const std::vector<BlockLayout> layouts_;
  const std::unique_ptr<GradientSum> sum_;
  std::vector<Shared> shared_;
  std::vector<std::vector<std::size_t>> completed_;  // by block: places
  const std::vector<Copies> copies_;
  SumTurn turn_ = SumTurn::own;  // of the blocks
  std::int64_t step_ = kNoStep;
  std::int64_t kept_step_ = kNoStep;  // whose gradients are kept
  std::uint64_t agreements_ = 0;      // shadow steps have some, too, so steps do not count them
};

}  // namespace laconic
