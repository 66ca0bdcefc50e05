// train/step.hpp — one training step, top to bottom.
//
// Read this file first, then follow the calls in order:
//
//   train_step            train/step.cpp
//     sample_at           data/sampler.hpp        position -> sample id
//     make_batch          train/batch.hpp         samples -> tensors
//     Pipeline::run       runtime/pipeline.hpp    walks this rank's part of the schedule
//       forward_block     model/model.hpp         tensors in, tensors out
//       EdgeSender::send  runtime/edge.hpp        activations and gradients leave for neighbours
//       block_done        update/update_rule.hpp  the gradient of a block leaves for other ranks
//     measure             update/update_rule.hpp  sums arrive; loss and norm, the same on all ranks
//     learning_rate       update/learning_rate.hpp
//     apply               update/update_rule.hpp  parameters change here, only here
//     commit              runtime/pipeline.hpp    what links have remembered stays
//
// With train.update = "block" leave() stands for measure() and apply(): the step ends while its
// sums are under way, wait_for() in forward of the next one updates block by block, and
// complete_step() says later what the step amounted to.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "laconic/checkpoint/checkpoint.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/data/dataset.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/data/task.hpp"
#include "laconic/model/model.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/steer/shadow.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {

class SampleFlops;
class Trace;

struct StepReport {
  std::int64_t step = 0;  // counted from 1: "step 1" is the first one done
  double loss = 0;
  double norm = 0;  // of the gradient, before clipping
  double lr = 0;
  bool is_open = false;     // loss, norm and signal are not known yet: see complete_step()
  bool is_skipped = false;  // loss or norm was not finite, and the update left out
  bool is_common = true;    // loss and norm are those of all ranks, not of this one
  int signal = 0;           // that a rank was told to stop with
  std::int64_t tokens = 0;  // of all ranks, as they are computed: see padded_tokens()
  double flops = 0;         // of the model, all ranks; 0: nobody counted them
  double seconds = 0;
};

// What a step reads and never changes.
struct StepPlan {
  const RunConfig& config;
  const Dataset& data;
  SampleOrder order;
  Task task;
  Trace* trace = nullptr;
  SampleFlops* flops = nullptr;    // null: nobody asks
  int member = 0;                  // in the dp group: which share of each batch is ours
  int (*stop_signal)() = nullptr;  // not 0: a signal
  // The gradients are those of all ranks, finite, and not used yet; may be empty. Its time is not
  // the step's.
  std::function<void(const Measured&)> before_update;
  std::function<bool(std::int64_t step)> is_spoiled = {};  // for tests: the loss is NaN there
};

// Loss or gradient norm is not finite, and the configuration or ten such steps in a row say to
// stop. The state is as it was before the step, unless it is lost: updated by what is not finite.
class NotFinite : public std::runtime_error {
 public:
  explicit NotFinite(const std::string& what, bool is_state_lost = false)
      : std::runtime_error(what), is_state_lost_(is_state_lost) {}
  bool is_state_lost() const { return is_state_lost_; }

 private:
  bool is_state_lost_;
};

// Computes what the coming step would compute if nothing were lost between ranks, and leaves
// everything as it was: the step then does what it would have done anyway, bit for bit. Collective.
// Requires: neither local steps nor compressed_adam. Throws PeerLost, Timeout; WireError when a
// message is damaged, since whole ones are not kept for repair.
ShadowStep shadow_step(const StepPlan& plan, Weights& weights, Pipeline& pipeline, UpdateRule& rule,
                       const TrainState& state);

// The first samples of the coming step, at most so many, in batches of a microbatch at most: the
// same on all ranks, and on every mesh.
std::vector<Batch> first_batches(const StepPlan& plan, const Weights& weights,
                                 const TrainState& state, std::int64_t most);

// Collective: every rank calls it at the same step. Throws NotFinite, PeerLost, Timeout, WireError.
StepReport train_step(const StepPlan& plan, Weights& weights, Pipeline& pipeline, UpdateRule& rule,
                      TrainState& state);

// Of an open report: loss, norm and signal. Collective; steps in their order. Requires: the step
// after it was taken, or the rule is settled. Returns whether it was an update. If not, neither it
// nor what came after it has changed anything: the state is what it was `before` the step, but that
// the step was left out, and what came after it comes again. Throws NotFinite; what was saved
// before the step is good, and so is the state, unless it says otherwise.
bool complete_step(const StepPlan& plan, UpdateRule& rule, const TrainState& before,
                   StepReport& report, TrainState& state);

}  // namespace laconic
