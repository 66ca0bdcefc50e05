#include "laconic/train/step.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "laconic/base/clock.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/row_reader.hpp"
#include "laconic/train/run_estimate.hpp"
#include "laconic/update/learning_rate.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kMostSkipsInARow = 10;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SampleAt sample_of(const StepPlan& plan, std::int64_t position) {
  const auto p = static_cast<std::uint64_t>(position);
  return {sample_at(plan.order, p), epoch_of(plan.order, p)};
}

// The samples of microbatch `number` of a member, in the step that begins at `position`.
std::vector<SampleAt> samples_of(const StepPlan& plan, std::int64_t position, std::int64_t member,
                                 std::int64_t number) {
  const std::int64_t micro = plan.config.microbatch_size();
  const std::int64_t begin = position + member * plan.config.local_batch() + number * micro;
  std::vector<SampleAt> samples;
  for (std::int64_t s = begin; s < begin + micro; ++s) samples.push_back(sample_of(plan, s));
  return samples;
}

std::vector<std::uint64_t> ids_of(const std::vector<SampleAt>& samples) {
  std::vector<std::uint64_t> ids;
  for (const SampleAt& at : samples) ids.push_back(at.sample);
  return ids;
}

// Elements of a sample that the loss is a mean over.
std::int64_t rows_of(const StepPlan& plan) {
  return rows_per_sample(plan.task, tokens_per_sample(plan.task, plan.data));
}

// As with the count of a step, reading what all ranks look up costs less than an exchange.
UpdateRule::ReadIds reader_of(const StepPlan& plan, const TrainState& state) {
  return [&plan, step = state.step, position = state.position](
             std::int64_t s, const std::string& field, int member) -> RowIds {
    if (s >= plan.config.train.steps) return {};
    return RowReader{plan.config, plan.data, plan.order, plan.task}.rows(
        position + (s - step) * plan.config.train.batch, member, field);
  };
}

PipelineInput input_of(const StepPlan& plan, const Weights& weights, const TrainState& state,
                       std::int64_t number) {
  const std::vector<SampleAt> samples = samples_of(plan, state.position, plan.member, number);
  const std::vector<std::uint64_t> ids = ids_of(samples);
  PipelineInput input{
      .batch = make_batch(plan.task, plan.data, samples, weights.device()),
      .pass = {.dropout = plan.config.model.dropout,
               .label_smoothing = plan.config.task.label_smoothing,
               .negatives = negatives_key_of(plan.config, state.step, plan.member),
               .dropout_tokens =
                   pads_to_longest(plan.task) ? tokens_per_sample(plan.task, plan.data) : 0},
      .samples = ids};
  if (input.pass.dropout > 0)
    input.pass.sample_keys = dropout_keys(plan.config, state.step, {ids.begin(), ids.end()});
  if (input.pass.dropout > 0 && weights.device().is_cuda())
    input.pass.device_keys = keys_on(weights.device(), input.pass.sample_keys);
  const double rows = static_cast<double>(input.batch[predicted_field(plan.task)].numel());
  input.weight = rows / static_cast<double>(plan.config.microbatch_size() * rows_of(plan));
  return input;
}

// What is known of a step before it computes.
struct StepCount {
  // What the mean loss of a microbatch counts in the step's, which is a mean over samples: of all
  // ranks, or of this one. Where some rows have no target it is over those that have one, so that
  // every target of the step counts the same, whichever microbatch or rank it is in; without any it
  // is 0. What padding to the longest has cut off is the microbatch's own business (input_of).
  double weight = 0;
  std::int64_t tokens = 0;  // that all ranks compute
  double flops = 0;
};

// Reads no sample of which nothing but its number matters, and the others once: those that the
// weight is a mean over, for their targets, and all of the batch for their lengths where padding is
// cut off. So every rank reads the whole batch: 4 us a masked sample of 128 tokens, 2 us a
// translation (2026-11-16, one core). Ranks could count their own and add up, but backward begins
// with the weight, and an exchange before the first microbatch costs more than that.
StepCount count_step(const StepPlan& plan, std::int64_t position, std::int64_t samples,
                     bool counts_work) {
  const RunConfig& config = plan.config;
  const std::int64_t micro = config.microbatch_size();
  StepCount count{.weight = static_cast<double>(micro) / static_cast<double>(samples)};
  const auto add_work = [&](const PaddedTokens& tokens, std::int64_t computed) {
    count.tokens += computed * tokens.target;
    if (plan.flops != nullptr)
      count.flops += static_cast<double>(computed) * plan.flops->of(tokens.source, tokens.target);
  };
  const bool has_targets = !std::holds_alternative<Causal>(plan.task);
  const bool has_lengths = counts_work && pads_to_longest(plan.task);
  if (counts_work && !has_lengths)
    add_work(padded_tokens(plan.task, plan.data, {}), config.train.batch);
  if (!has_targets && !has_lengths) return count;
  const bool is_of_all = samples == config.train.batch;
  std::int64_t targets = 0;
  for (std::int64_t member = 0; member < config.mesh.dp; ++member) {
    const bool is_weighed = has_targets && (is_of_all || member == plan.member);
    for (std::int64_t m = 0; (is_weighed || has_lengths) && m < config.microbatches(); ++m) {
      std::vector<SampleCount> lengths;
      for (const SampleAt at : samples_of(plan, position, member, m)) {
        if (has_lengths) lengths.push_back(count_sample(plan.task, plan.data, at));
        if (is_weighed)
          targets += has_lengths ? lengths.back().targets
                                 : count_targets(plan.task, plan.data, at, rows_of(plan));
      }
      if (has_lengths) add_work(padded_tokens(plan.task, plan.data, lengths), micro);
    }
  }
  // Without a target the rows add nothing; whether sentences follow each other still does.
  if (targets > 0)
    count.weight = static_cast<double>(micro) * static_cast<double>(rows_of(plan)) /
                   static_cast<double>(targets);
  return count;
}

// Forward waits, block by block, for what the step before has left.
std::function<void(std::int64_t)> waiter_of(UpdateRule& rule, Trace& trace) {
  if (!rule.leaves_steps()) return {};
  return [&](std::int64_t block) {
    if (!rule.owes_update(block)) return;
    const TraceSpan span(trace, "update", "optimiser", "compute");
    rule.wait_for(block);
  };
}

// This rank's share of the mean loss; gradients add up in the parameters, and leave block by block
// when the last microbatch has added to them.
StepLoss accumulate(const StepPlan& plan, Weights& weights, Pipeline& pipeline, UpdateRule& rule,
                    const TrainState& state, double weight, Trace& trace, bool is_shadow = false) {
  std::vector<PipelineInput> inputs;
  std::vector<std::vector<std::uint64_t>> next;
  {
    const TraceSpan span(trace, "read samples", "data");
    for (std::int64_t m = 0; m < plan.config.microbatches(); ++m) {
      inputs.push_back(input_of(plan, weights, state, m));
      inputs.back().pass.rows = rule.row_lookup();
      if (is_shadow) continue;  // the real step tells what comes next
      next.push_back(
          ids_of(samples_of(plan, state.position + plan.config.train.batch, plan.member, m)));
    }
  }
  // Whether a sentence follows is a mean over samples, not over rows with a target.
  const double share =
      static_cast<double>(plan.config.microbatch_size()) / static_cast<double>(rule.samples());
  for (PipelineInput& input : inputs)
    if (weight > 0) input.pass.second_term = share / (weight * input.weight);
  return pipeline.run({.step = static_cast<std::uint64_t>(state.step),
                       .inputs = inputs,
                       .weight = weight,
                       .next_samples = next,
                       .is_shadow = is_shadow,
                       .before_block = waiter_of(rule, trace),
                       .block_done = [&](std::int64_t b) { rule.block_done(b); }});
}

void tell(const Measured& measured, StepReport& report) {
  report.loss = measured.loss;
  report.norm = measured.norm;
  report.is_common = measured.is_common;
  report.signal = measured.signal;
  report.is_skipped = measured.is_skipped;
}

std::string what_is_not_finite(const StepReport& report) {
  return fmt::format("step {}: loss = {}, gradient norm = {}: not finite", report.step, report.loss,
                     report.norm);
}

std::string what_would_help(const RunConfig& config) {
  return fmt::format("lower optimiser.lr ({}), raise optimiser.warmup ({})", config.optimiser.lr,
                     warmup_steps(config.optimiser, config.train.steps));
}

// Counts a step as taken.
void pass(const StepPlan& plan, const StepReport& report, TrainState& state) {
  ++state.step;
  if (pads_to_longest(plan.task) || state.tokens > 0) {
    if (state.tokens == 0)  // before, there was padding to the context
      state.tokens = state.position * tokens_per_sample(plan.task, plan.data);
    state.tokens += report.tokens;
  }
  state.position += plan.config.train.batch;
}

// Throws when a step that is not finite, the `in_a_row`-th such, should end the run.
void refuse_to_go_on(const StepReport& report, const RunConfig& config, std::int64_t in_a_row) {
  if (config.train.non_finite == NonFinite::stop)
    throw NotFinite(fmt::format("{}. Nothing was updated; {}, or set train.non_finite = \"skip\"",
                                what_is_not_finite(report), what_would_help(config)));
  if (in_a_row == kMostSkipsInARow)
    throw NotFinite(
        fmt::format("step {}: the {}th in a row that is not finite: this run does not recover",
                    report.step, in_a_row));
}

}  // namespace

ShadowStep shadow_step(const StepPlan& plan, Weights& weights, Pipeline& pipeline, UpdateRule& rule,
                       const TrainState& state) {
  Trace disabled;
  Trace& trace = plan.trace != nullptr ? *plan.trace : disabled;
  const TraceSpan span(trace, "shadow", "optimiser", "compute");
  ShadowStep shadow{.step = state.step + 1, .measured = {}, .gradients = {}};
  rule.begin_shadow(state.step);
  const double weight =
      count_step(plan, state.position, rule.samples(), /*counts_work=*/false).weight;
  const StepLoss loss =
      accumulate(plan, weights, pipeline, rule, state, weight, trace, /*is_shadow=*/true);
  shadow.measured = rule.measure(loss, 0);
  for (const Parameter& p : weights.parameters)
    shadow.gradients.push_back(p.gradient.defined() ? p.gradient.clone() : at::Tensor());
  rule.abandon();
  pipeline.abandon();
  clear_gradients(weights);
  return shadow;
}

std::vector<Batch> first_batches(const StepPlan& plan, const Weights& weights,
                                 const TrainState& state, std::int64_t most) {
  const std::int64_t end = state.position + std::min(most, plan.config.train.batch);
  std::vector<Batch> batches;
  for (std::int64_t at = state.position; at < end; at += plan.config.microbatch_size()) {
    std::vector<SampleAt> samples;
    for (std::int64_t s = at; s < std::min(end, at + plan.config.microbatch_size()); ++s)
      samples.push_back(sample_of(plan, s));
    batches.push_back(make_batch(plan.task, plan.data, samples, weights.device()));
  }
  return batches;
}

StepReport train_step(const StepPlan& plan, Weights& weights, Pipeline& pipeline, UpdateRule& rule,
                      TrainState& state) {
  const Stopwatch watch;
  Trace disabled;
  Trace& trace = plan.trace != nullptr ? *plan.trace : disabled;
  const TrainSection& train = plan.config.train;

  StepReport report{.step = state.step + 1};
  const StepCount count = [&] {
    const TraceSpan span(trace, "count samples", "data");
    return count_step(plan, state.position, rule.samples(), /*counts_work=*/true);
  }();
  report.tokens = count.tokens;
  report.flops = count.flops;
  {
    const TraceSpan span(trace, "foresee rows", "data");
    rule.foresee(state.step, reader_of(plan, state));
  }
  rule.begin(state.step);
  StepLoss loss = accumulate(plan, weights, pipeline, rule, state, count.weight, trace);
  if (plan.is_spoiled && plan.is_spoiled(state.step)) loss = kNan;
  const int signal = plan.stop_signal != nullptr ? plan.stop_signal() : 0;
  report.lr = learning_rate(plan.config.optimiser, train.steps, state.step);
  report.is_open = rule.leaves_steps();
  Measured measured;
  if (!report.is_open) {
    const TraceSpan span(trace, "reduce", "optimiser", "compute");
    measured = rule.measure(loss, signal);
    tell(measured, report);
  }
  double beside = 0;  // seconds that are no part of the step
  if (report.is_open) {
    rule.leave(loss, signal, state.optimiser, report.lr);
    pipeline.commit();
    state.skipped_in_a_row = 0;
  } else if (report.is_skipped) {
    rule.abandon();
    pipeline.abandon();
    clear_gradients(weights);
    if (measured.is_common) refuse_to_go_on(report, plan.config, state.skipped_in_a_row + 1);
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    const TraceSpan span(trace, "update", "optimiser", "compute");
    const double clip = train.clip * measured.clip_times;
    const double scale = clip > 0 && report.norm > clip ? clip / report.norm : 1;
    if (plan.before_update) {
      const Stopwatch hook;
      plan.before_update(measured);
      beside = hook.seconds();
    }
    rule.apply(state.optimiser, report.lr, scale);
    pipeline.commit();
    state.skipped_in_a_row = 0;
  }
  clear_gradients(weights);
  pass(plan, report, state);
  report.seconds = watch.seconds() - beside;
  if (measured.left_out > 0 && train.non_finite == NonFinite::stop)
    throw NotFinite(fmt::format(
        "step {}: in this round {} inner steps of some rank were not finite and were left out",
        report.step, measured.left_out));
  if (measured.in_a_row >= kMostSkipsInARow)
    throw NotFinite(fmt::format(
        "step {}: the last {} inner steps of every rank were not finite: this run does not recover",
        report.step, measured.in_a_row));
  return report;
}

bool complete_step(const StepPlan& plan, UpdateRule& rule, const TrainState& before,
                   StepReport& report, TrainState& state) {
  const Measured measured = rule.hear();
  tell(measured, report);
  report.is_open = false;
  if (!report.is_skipped) return true;
  if (measured.is_undone) {
    state = before;
    refuse_to_go_on(report, plan.config, state.skipped_in_a_row + 1);
    ++state.skipped;
    ++state.skipped_in_a_row;
    pass(plan, report, state);
    return false;
  }
  throw NotFinite(
      fmt::format("{}. With train.update = \"block\" this is known when parameters have been "
                  "changed by it; {}, or set update = \"step\"",
                  what_is_not_finite(report), what_would_help(plan.config)),
      /*is_state_lost=*/true);
}

}  // namespace laconic
