#include "laconic/train/step.hpp"

#include <fmt/format.h>

#include <cmath>

#include "laconic/base/clock.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/runtime/pass.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/learning_rate.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kMostSkipsInARow = 10;

AdamW adamw_of(const OptimiserSection& o) {
  return {.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay};
}

Microbatch microbatch_at(const StepPlan& plan, const Gpt& gpt, const TrainState& state,
                         std::int64_t first, std::int64_t samples) {
  std::vector<std::int64_t> ids;
  for (std::int64_t s = 0; s < samples; ++s)
    ids.push_back(static_cast<std::int64_t>(
        sample_at(plan.order, static_cast<std::uint64_t>(state.position + first + s))));
  Microbatch microbatch = make_microbatch(plan.data, ids, gpt.parameters.front().value.device());
  microbatch.dropout = plan.config.model.dropout;
  if (microbatch.dropout > 0)
    microbatch.sample_keys =
        dropout_keys(static_cast<std::uint64_t>(plan.config.run.seed), state.step, ids);
  return microbatch;
}

// Mean loss of the batch; gradients add up in the parameters.
double accumulate(const StepPlan& plan, const Gpt& gpt, const TrainState& state, Trace& trace) {
  const std::int64_t batch = plan.config.train.batch;
  const std::int64_t micro = plan.config.microbatch_size();
  const double weight = static_cast<double>(micro) / static_cast<double>(batch);
  double loss = 0;
  for (std::int64_t first = 0; first < batch; first += micro) {
    const Microbatch microbatch = [&] {
      const TraceSpan span(trace, "read samples", "data");
      return microbatch_at(plan, gpt, state, first, micro);
    }();
    loss += weight * forward_backward(gpt, microbatch, weight,
                                      {.recompute = plan.config.model.recompute, .trace = &trace});
  }
  return loss;
}

// Throws when a step that is not finite, the `in_a_row`-th such, should end the run.
void refuse_to_go_on(const StepReport& report, const RunConfig& config, std::int64_t in_a_row) {
  if (config.train.non_finite == "stop")
    throw NotFinite(fmt::format(
        "step {}: loss = {}, gradient norm = {}: not finite. Nothing was updated; lower "
        "optimiser.lr "
        "({}), raise optimiser.warmup ({}), or set train.non_finite = \"skip\"",
        report.step, report.loss, report.norm, config.optimiser.lr, config.optimiser.warmup));
  if (in_a_row == kMostSkipsInARow)
    throw NotFinite(
        fmt::format("step {}: the {}th in a row that is not finite: this run does not recover",
                    report.step, in_a_row));
}

}  // namespace

StepReport train_step(const StepPlan& plan, const Gpt& gpt, TrainState& state) {
  const Stopwatch watch;
  Trace disabled;
  Trace& trace = plan.trace != nullptr ? *plan.trace : disabled;
  const TrainSection& train = plan.config.train;

  StepReport report{.step = state.step + 1,
                    .tokens = train.batch * static_cast<std::int64_t>(plan.data.window())};
  report.loss = accumulate(plan, gpt, state, trace);
  {
    const TraceSpan span(trace, "norm", "optimiser", "compute");
    report.norm = global_norm(gpt.parameters);
  }
  report.lr = learning_rate(plan.config.optimiser, train.steps, state.step);
  report.is_skipped = !std::isfinite(report.loss) || !std::isfinite(report.norm);
  if (report.is_skipped) {
    clear_gradients(gpt.parameters);
    refuse_to_go_on(report, plan.config, state.skipped_in_a_row + 1);
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    const TraceSpan span(trace, "update", "optimiser", "compute");
    const double scale = train.clip > 0 && report.norm > train.clip ? train.clip / report.norm : 1;
    apply(adamw_of(plan.config.optimiser), state.optimiser, gpt.parameters, report.lr, scale);
    state.skipped_in_a_row = 0;
  }
  clear_gradients(gpt.parameters);
  ++state.step;
  state.position += train.batch;
  report.seconds = watch.seconds();
  return report;
}

}  // namespace laconic
