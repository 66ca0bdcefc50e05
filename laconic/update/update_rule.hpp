// update/update_rule.hpp — how the gradients of one rank become an update that fits the others'.
//
// train_step() computes; the rule communicates and changes the parameters.
//
//   begin ─► backward: block_done(last) ... block_done(0) ─► measure ─► apply or abandon
//
// or, where the next step begins before anybody knows what this one amounts to: because each block
// is updated by itself (train.update = "block"), or because a GPU is still at work on it:
//
//   begin ─► forward: wait_for(0) ... wait_for(last), backward as above ─► leave ─► begin ...
//
//   alone            one process: nothing to exchange; on a GPU nobody waits between steps
//   summed           gradients are summed over the dp group (dp.gradient.method codec, power_sgd),
//                    shared parameters over their stages, too (gradient_exchange.hpp)
//   by block         the same, where a block waits for its own sums alone (block_rule.cpp)
//   compressed_adam  after warm-up the first moment travels, the second stays as it is
//   diloco           ranks step alone; every so many steps their changes are averaged (DiLoCo),
//                    or those of a fragment of the model, while ranks go on (Streaming DiLoCo)
//   linear           the same with one second moment, so that the mean of ranks goes where ranks
//                    that sum every gradient go
//   sparse_loco      as diloco, with a few large elements of the changes (SparseLoCo)
//   tables           around one of the first two: embedding tables whose rows travel
//                    (embedding.rows) go their own way, all else goes on as before
//
// After apply() all replicas hold the same parameters bit for bit, with local steps
// (local_rule.hpp) at the end of every round, and so do the stages that share one. What a rule and
// its sums remember between steps is part of the checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/weights.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/update/optimiser.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// What a step amounts to before the update.
struct Measured {
  double loss = 0;
  double norm = 0;            // of the gradient, before clipping
  double clip_times = 1;      // the threshold of clipping is so many times train.clip
  bool is_skipped = false;    // they are not finite: no update
  bool is_undone = false;     // so are all that were left since, and are forgotten
  bool is_common = true;      // all ranks have the same values; otherwise they are this rank's
  int signal = 0;             // that some rank was told to stop with
  std::int64_t left_out = 0;  // local: inner steps of this round, of all ranks, without an update
  std::int64_t in_a_row = 0;  // local: the last so many inner steps of every rank, at least
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // A rank's gradient is a sum over its samples divided by this many.
  virtual std::int64_t samples() const = 0;
  // Whether all ranks have the same parameters after this many steps.
  virtual bool agrees_after(std::int64_t) const { return true; }

  // Before begin(): a rule that has tables on several ranks (table_rule.cpp) must know which rows
  // all of them read, in this step and in the next. `read` says which, and is asked for nothing
  // else; of a step behind the last one it knows none.
  using ReadIds = std::function<RowIds(std::int64_t step, const std::string& field, int dp_member)>;
  virtual void foresee(std::int64_t /*step*/, const ReadIds& /*read*/) {}
  // How blocks look up rows of such tables; null: there are none.
  virtual const RowLookup* row_lookup() const { return nullptr; }
  // Rows for an evaluation, until the next call: `read` is asked for step 0; `takes_part` says
  // which members of the dp group have a batch. Collective; between steps, after settle().
  virtual void peek(const ReadIds& /*read*/, const std::vector<bool>& /*takes_part*/) {}
  // Nothing is put off any more, no update and no rows; before anybody reads parameters that are
  // not blocks: evaluation, and, as `is_checkpoint`, files. Between steps.
  virtual void settle(bool /*is_checkpoint*/) {}

  virtual void begin(std::int64_t step) = 0;
  // Begins a step that must be abandoned: after measure() the gradients are what they would be if
  // nothing were lost on the way, nor anything outstanding. Requires: alone or summed.
  virtual void begin_shadow(std::int64_t step) = 0;
  // The gradients of this block, which the rank holds, are complete, and nobody changes them any
  // more. Every held block once a step, in any order.
  virtual void block_done(std::int64_t block) = 0;
  // `loss` is this rank's share, so 0 on all ranks of a pipeline but the last; `signal` what it was
  // told.
  virtual Measured measure(const StepLoss& loss, int signal) = 0;
  virtual void apply(OptimiserState& state, double lr, double gradient_scale) = 0;
  virtual void abandon() = 0;

  // --- instead of measure() and apply()

  // Whether the step is left, as its sums are, and never abandoned.
  virtual bool leaves_steps() const { return false; }
  // All blocks are done. Each is updated when its sums are here and somebody needs it or waits for
  // another one, or when a GPU has judged the step. Requires: `state` outlives the updates.
  virtual void leave(const StepLoss& /*loss*/, int /*signal*/, OptimiserState& /*state*/,
                     double /*lr*/) {}
  // Whether parameters of this block are not yet what the step that was left makes of them.
  virtual bool owes_update(std::int64_t /*block*/) const { return false; }
  // From now on they are. Before anything reads or changes the block's parameters.
  virtual void wait_for(std::int64_t /*block*/) {}
  // What the first step that was left, and of which nobody has heard, amounts to; is_skipped: it
  // should have been, or, where it is_undone, was. Collective. Requires: another step was computed
  // since, or settle() was called.
  virtual Measured hear() { return {}; }

  // The sums of this rank; alone, what a run of more ranks left outstanding.
  virtual void add_links(LinkRegistry& registry) = 0;

  // What the rule itself remembers beside its sums, where ranks differ in it. Requires: between
  // steps. `state` is what is saved besides.
  virtual RankTensors save(const OptimiserState& /*state*/) const { return {}; }
  // From what all ranks saved, perhaps more or fewer than now; empty: begins anew.
  virtual void load(const std::vector<RankTensors>& /*saved*/, OptimiserState& /*state*/) {}
};

// What a rule is made of.
struct RuleRequest {
  const RunConfig& config;
  Weights& weights;  // what the rank holds of the model
  World& world;
  std::vector<SharedParameters> shared;  // over the ranks of a pipeline
  int encoded;                           // so many first ranks of a pipeline encode
  bool leaves_on_host = false;           // for tests: one process leaves steps as it does on a GPU
  bool tables_are_apart = false;         // for tests: rows go to blocks as they do to a GPU
};
// Requires: check_parallel(config) is empty; config, weights and world outlive the rule.
std::unique_ptr<UpdateRule> make_update_rule(const RuleRequest& request);

}  // namespace laconic
