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

Microbatch microbatch_at(const StepPlan& plan, const Gpt& gpt, const TrainState& state,
                         std::int64_t first, std::int64_t samples) {
  std::vector<std::int64_t> ids;
  const std::int64_t begin = state.position + plan.member * plan.config.local_batch() + first;
  for (std::int64_t s = 0; s < samples; ++s)
    ids.push_back(
        static_cast<std::int64_t>(sample_at(plan.order, static_cast<std::uint64_t>(begin + s))));
  Microbatch microbatch = make_microbatch(plan.data, ids, gpt.parameters.front().value.device());
  microbatch.dropout = plan.config.model.dropout;
  if (microbatch.dropout > 0) microbatch.sample_keys = dropout_keys(plan.config, state.step, ids);
  return microbatch;
}

// This rank's share of the mean loss; gradients add up in the parameters, and leave block by block
// during the last microbatch.
double accumulate(const StepPlan& plan, const Gpt& gpt, UpdateRule& rule, const TrainState& state,
                  Trace& trace) {
  const std::int64_t local = plan.config.local_batch();
  const std::int64_t micro = plan.config.microbatch_size();
  const double weight = static_cast<double>(micro) / static_cast<double>(rule.samples());
  double loss = 0;
  for (std::int64_t first = 0; first < local; first += micro) {
    const Microbatch microbatch = [&] {
      const TraceSpan span(trace, "read samples", "data");
      return microbatch_at(plan, gpt, state, first, micro);
    }();
    PassOptions pass{.recompute = plan.config.model.recompute, .trace = &trace};
    if (first + micro == local) pass.after_block = [&](std::int64_t b) { rule.block_done(b); };
    loss += weight * forward_backward(gpt, microbatch, weight, pass);
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

StepReport train_step(const StepPlan& plan, const Gpt& gpt, UpdateRule& rule, TrainState& state) {
  const Stopwatch watch;
  Trace disabled;
  Trace& trace = plan.trace != nullptr ? *plan.trace : disabled;
  const TrainSection& train = plan.config.train;

  StepReport report{.step = state.step + 1,
                    .tokens = train.batch * static_cast<std::int64_t>(plan.data.window())};
  rule.begin(state.step);
  const double loss = accumulate(plan, gpt, rule, state, trace);
  const Measured measured = [&] {
    const TraceSpan span(trace, "agree", "optimiser", "compute");
    return rule.measure(loss, plan.stop_signal != nullptr ? plan.stop_signal() : 0);
  }();
  report.loss = measured.loss;
  report.norm = measured.norm;
  report.is_common = measured.is_common;
  report.signal = measured.signal;
  report.lr = learning_rate(plan.config.optimiser, train.steps, state.step);
  report.is_skipped = measured.is_skipped;
  if (report.is_skipped) {
    rule.abandon();
    clear_gradients(gpt.parameters);
    if (measured.is_common) refuse_to_go_on(report, plan.config, state.skipped_in_a_row + 1);
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    const TraceSpan span(trace, "update", "optimiser", "compute");
    const double scale = train.clip > 0 && report.norm > train.clip ? train.clip / report.norm : 1;
    rule.apply(state.optimiser, report.lr, scale);
    state.skipped_in_a_row = 0;
  }
  clear_gradients(gpt.parameters);
  ++state.step;
  state.position += train.batch;
  report.seconds = watch.seconds();
  if (measured.left_out > 0 && train.non_finite == "stop")
    throw NotFinite(fmt::format(
        "step {}: in this round {} inner steps of some rank were not finite and were left out",
        report.step, measured.left_out));
  if (measured.in_a_row >= kMostSkipsInARow)
    throw NotFinite(fmt::format(
        "step {}: the last {} inner steps of every rank were not finite: this run does not recover",
        report.step, measured.in_a_row));
  return report;
}

}  // namespace laconic
