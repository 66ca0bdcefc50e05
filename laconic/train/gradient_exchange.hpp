// train/gradient_exchange.hpp — all sums that a rank's gradients go through, as one.
//
// Every block of the rank over its dp group, by the policy of its stage; and, in a
// pipeline, the tied embedding over the first and the last stage, whose gradients
// (F on the first, L on the last, of replica d) must come together:
//
//   fused    ΣF_d + ΣL_d in one sum over all 2 D holders. The parameter is in no
//            dp buffer; it leaves when its local gradient is complete.
//   unfused  with its block over the dp group at both ends, then the two sums over
//            the pair of each replica.
//
// Either way both ends get the same bits, whatever the codecs. Without a pipeline
// there is nothing to fuse: the parameter goes with its block.
//
//   begin ─► take, post: each held block ─► wait ─► commit or abandon
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/train/flat_blocks.hpp"
#include "laconic/train/update_rule.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

class GradientExchange {
 public:
  // The first `encoded` ranks of a pipeline go by dp.gradient, the others exactly. Requires: gpt,
  // config and world outlive it.
  GradientExchange(const RunConfig& config, const Gpt& gpt, World& world, int encoded,
                   bool is_fused);

  int members() const { return static_cast<int>(world_.dp_group().size()); }
  // How many ranks add something to what becomes of parameter `p`.
  int contributors(std::size_t p) const {
    return is_tied_over_stages(p) ? 2 * members() : members();
  }

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

  // Whether to look at what is sent from here on, and what was seen: see GradientSum.
  void measure_fidelity(bool looks);
  std::map<Traffic, Fidelity> fidelity() const;

  // Where parameter `p` lies in the buffers, in its own shape.
  const at::Tensor& part(std::size_t p) const;
  // What the buffers hold becomes the gradients.
  void give_gradients() const;

  // Sums the tied gradient over the stages of this replica alone, apart from all else; nothing to
  // do without a pipeline. Requires: not fused; outside of begin ... commit.
  void sum_tied_in_replica(std::int64_t step);

  // See UpdateRule. Requires: outside of begin ... commit.
  void treat(Traffic traffic, const CodecOverride& treatment);

  RankTensors save() const;
  // From what all ranks saved; with another number of stages residuals are dropped. Returns a note.
  std::string load(const std::vector<RankTensors>& saved);

 private:
  bool is_tied_over_stages(std::size_t p) const { return tied_place_ == p; }
  void take_tied() const;
  void give_tied() const;
  void post_tied();

  const RunConfig& config_;
  const Gpt& gpt_;
  World& world_;
  const bool is_fused_;
  const std::optional<std::size_t> tied_place_;  // of a parameter that another stage holds, too
  const FlatBlocks blocks_;                      // but for what is fused
  const std::vector<BlockLayout> layouts_;
  const GradientPolicy policy_;
  const std::unique_ptr<GradientSum> sum_;
  // Of the tied embedding, where another stage holds it, too.
  at::Tensor tied_;  // fused: a buffer of its own; otherwise the part of a block's
  std::vector<BlockLayout> tied_layouts_;
  Group tied_group_;
  std::unique_ptr<GradientSum> tied_sum_;
};

}  // namespace laconic
