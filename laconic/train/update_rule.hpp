// train/update_rule.hpp — how the gradients of one rank become an update that fits the others'.
//
// train_step() computes; the rule communicates and changes the parameters.
//
//   begin ─► backward: block_done(last) ... block_done(0) ─► measure ─► apply or abandon
//
//   alone            one process: nothing to agree on
//   summed           gradients are summed over the dp group (dp.gradient.method codec, power_sgd),
//                    the tied embedding over both ends of the pipeline (gradient_exchange.hpp)
//   compressed_adam  after warm-up the first moment travels, the second stays as it is
//   local            ranks step alone; every so many steps their changes are averaged (DiLoCo)
//
// After apply() all replicas hold the same parameters bit for bit, with `local` at
// the end of every round, and both ends of a pipeline the same tied embedding. What a rule
// remembers between steps is part of the checkpoint: save() and load().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/link/fidelity.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/train/checkpoint.hpp"
#include "laconic/train/optimiser.hpp"
#include "laconic/train/policy.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

// What a step amounts to before the update.
struct Measured {
  double loss = 0;
  double norm = 0;            // of the gradient, before clipping
  bool is_skipped = false;    // they are not finite: no update
  bool is_common = true;      // all ranks have the same values; otherwise they are this rank's
  int signal = 0;             // that some rank was told to stop with
  std::int64_t left_out = 0;  // local: inner steps of this round, of all ranks, without an update
  std::int64_t in_a_row = 0;  // local: the last so many inner steps of every rank, at least
};

// What one rank alone remembers, by name, on the CPU.
using RankTensors = std::map<std::string, at::Tensor>;

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // A rank's gradient is a sum over its samples divided by this many.
  virtual std::int64_t samples() const = 0;
  // Whether all ranks have the same parameters after this many steps.
  virtual bool agrees_after(std::int64_t) const { return true; }

  virtual void begin(std::int64_t step) = 0;
  // Begins a step that must be abandoned: after measure() the gradients are what they would be if
  // nothing were lost on the way, nor anything outstanding. Requires: alone or summed.
  virtual void begin_shadow(std::int64_t step) = 0;
  // The gradients of this block, which the rank holds, are complete, and nobody changes them any
  // more. Every held block once a step, in any order.
  virtual void block_done(std::int64_t block) = 0;
  // `loss` is this rank's share, so 0 on all ranks of a pipeline but the last; `signal` what it was
  // told.
  virtual Measured measure(double loss, int signal) = 0;
  virtual void apply(OptimiserState& state, double lr, double gradient_scale) = 0;
  virtual void abandon() = 0;

  // Whether to look at what is sent in steps that begin from here on, and what was seen of this
  // rank's messages; true also forgets what was seen before. Requires: between steps.
  virtual void measure_fidelity(bool /*looks*/) {}
  virtual std::map<Traffic, Fidelity> fidelity() const { return {}; }

  // From the next step on sums of dp.gradient or embedding.tied are treated so, instead of how they
  // were (reduce/gradient_sum.hpp); other classes are none of a rule's. The same on all ranks.
  // Throws ConfigError. Requires: between steps.
  virtual void treat(Traffic traffic, const CodecOverride& treatment) = 0;

  // Requires: between steps. `state` is what is saved besides: where ranks differ in it, their own
  // is here too.
  virtual RankTensors save(const OptimiserState& state) const = 0;
  // From what all ranks saved, perhaps more or fewer than now; empty: begins anew. Returns a note
  // for people, the same on all ranks, when something could not be used. Collective.
  virtual std::string load(const std::vector<RankTensors>& saved, OptimiserState& state) = 0;
};

AdamW adamw_of(const OptimiserSection& optimiser);

// `automatic`: how many pipeline ranks encode when dp.gradient.stages is "auto", and only then of
// any use. Requires: check_parallel(config) is empty; gpt, config and world outlive the rule; gpt
// holds what the rank has of the model, the first rank of a pipeline block 0 and the last the head.
std::unique_ptr<UpdateRule> make_update_rule(const RunConfig& config, const Gpt& gpt, World& world,
                                             std::optional<int> automatic = std::nullopt);

}  // namespace laconic
