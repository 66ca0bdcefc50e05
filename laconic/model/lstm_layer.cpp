#include "laconic/model/lstm_layer.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/kernel/lstm.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/own_backward.hpp"

namespace laconic {

namespace {

using at::Tensor;

// The place of a sequence of steps in the tokens of a sample.
std::int64_t token_of(std::int64_t step, std::int64_t tokens, bool is_reversed) {
  return is_reversed ? tokens - 1 - step : step;
}

void check_lstm(const Tensor& x, const LstmWeights& w, const LstmRun& run) {
  const std::int64_t state = w.projection.defined() ? w.projection.size(0) : w.cells();
  LACONIC_ASSERT(
      x.size(0) % run.samples == 0 && x.size(1) == w.input.size(1) && w.state.size(1) == state,
      fmt::format("[{}, {}] of {} samples, {} inputs, a state of {} of {}", x.size(0), x.size(1),
                  run.samples, w.input.size(1), w.state.size(1), state));
  LACONIC_ASSERT(!run.lengths.defined() || run.lengths.numel() == run.samples,
                 fmt::format("{} lengths of {} samples", run.lengths.numel(), run.samples));
}

}  // namespace

Tensor lstm(const Tensor& x, const LstmWeights& weights, const LstmRun& run) {
  check_lstm(x, weights, run);
  const bool can_fuse =
      x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
  return can_fuse ? fused::lstm(x, weights, run) : composed::lstm(x, weights, run);
}

namespace composed {

namespace {

struct Cells {
  Tensor h, cell;
};

// `sums` of one token; cells are float32 at least.
Cells next_cells(const Tensor& sums, const Tensor& before, const LstmWeights& w,
                 DeferredWeights* deferred) {
  const std::vector<Tensor> gates = full_length(sums).chunk(4, 1);
  Tensor cell = gates[0].sigmoid().mul(gates[2].tanh());
  if (before.defined()) cell = cell.add(gates[1].sigmoid().mul(before));
  Tensor h = gates[3].sigmoid().mul(cell.tanh()).to(sums.scalar_type());
  if (w.projection.defined()) h = transposed_linear(h, w.projection, {}, deferred);
  return {h, cell};
}

}  // namespace

Tensor lstm(const Tensor& x, const LstmWeights& w, const LstmRun& run) {
  const std::int64_t tokens = x.size(0) / run.samples;
  const Tensor sums = transposed_linear(x, w.input, w.input_bias, run.deferred)
                          .view({run.samples, tokens, 4 * w.cells()});
  std::vector<Tensor> out(static_cast<std::size_t>(tokens));
  Cells state{x.new_zeros({run.samples, w.state.size(1)}), {}};
  for (std::int64_t step = 0; step < tokens; ++step) {
    const std::int64_t t = token_of(step, tokens, run.is_reversed);
    state = next_cells(
        sums.select(1, t).add(transposed_linear(state.h, w.state, w.state_bias, run.deferred)),
        state.cell, w, run.deferred);
    if (run.lengths.defined()) {
      const Tensor is_padding = run.lengths.le(t).unsqueeze(1);
      state = {state.h.masked_fill(is_padding, 0), state.cell.masked_fill(is_padding, 0)};
    }
    out[static_cast<std::size_t>(t)] = state.h;
  }
  return at::stack(out, 1).view({run.samples * tokens, w.state.size(1)});
}

}  // namespace composed

namespace fused {

namespace {

// Everything by step and then by sample, so that a step's rows are one matrix. States and cells
// have one step more, the zeros that a sample begins with.
struct LstmTape {
  LstmWeights weights;
  std::int64_t samples = 0, tokens = 0;
  bool is_reversed = false;
  std::vector<std::int64_t> lengths;  // empty: no padding
  Tensor x;                           // [tokens, samples, inputs]
  Tensor gates;                       // [tokens, samples, 4 cells]
  Tensor cells;                       // [tokens + 1, samples, cells]
  Tensor projected;                   // [tokens, samples, cells]: what the projection takes
  Tensor out;                         // [tokens + 1, samples, state]
  bool is_padding(std::int64_t step, std::int64_t sample) const {
    return !lengths.empty() &&
           token_of(step, tokens, is_reversed) >= lengths[static_cast<std::size_t>(sample)];
  }
};

// With one sample or one token both orders are one, and nothing would be copied.
Tensor copied(const Tensor& x, const Tensor& from) {
  return x.is_alias_of(from) ? x.clone() : x;
}

// [samples * tokens, ...] in the order of steps, and back: copies.
Tensor by_step(const Tensor& x, const LstmTape& tape) {
  Tensor steps = x.view({tape.samples, tape.tokens, x.size(1)}).transpose(0, 1);
  if (tape.is_reversed) steps = steps.flip(0);
  return copied(steps.contiguous(), x);
}
Tensor by_sample(const Tensor& steps, const LstmTape& tape) {
  const Tensor tokens = tape.is_reversed ? steps.flip(0) : steps;
  return copied(tokens.transpose(0, 1).reshape({tape.samples * tape.tokens, steps.size(2)}), steps);
}

Tensor as_matrix(const Tensor& steps) {
  return steps.view({-1, steps.size(2)});
}

// So few samples that starting a task is nothing beside one.
std::int64_t grain_of(std::int64_t cells) {
  return 1 + (1 << 12) / cells;
}

// One pass over the gates of a step. `to` is where h goes.
void run_cells(const LstmTape& tape, std::int64_t step, const Tensor& to) {
  const std::int64_t cells = tape.weights.cells();
  AT_DISPATCH_FLOATING_TYPES(tape.gates.scalar_type(), "lstm", [&] {
    auto* gates = tape.gates.data_ptr<scalar_t>() + step * tape.samples * 4 * cells;
    auto* before = tape.cells.data_ptr<scalar_t>() + step * tape.samples * cells;
    auto* cell = before + tape.samples * cells;
    auto* out = to.data_ptr<scalar_t>();
    at::parallel_for(0, tape.samples, grain_of(cells), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) {
        scalar_t *own = gates + s * 4 * cells, *c = cell + s * cells, *h = out + s * cells;
        if (!tape.is_padding(step, s)) {
          kernel::lstm_cell<scalar_t>().forward(own, before + s * cells, c, h, cells);
          continue;
        }
        // Gates that are zero have no gradient, and hand none on.
        std::fill(own, own + 4 * cells, scalar_t(0));
        std::fill(c, c + cells, scalar_t(0));
        std::fill(h, h + cells, scalar_t(0));
      }
    });
  });
}

// Gates become their sums' gradients. d_cell: [samples, cells], of this step, then of the one
// before.
void run_cells_backward(const LstmTape& tape, std::int64_t step, const Tensor& d_out,
                        const Tensor& d_cell) {
  const std::int64_t cells = tape.weights.cells();
  AT_DISPATCH_FLOATING_TYPES(tape.gates.scalar_type(), "lstm_backward", [&] {
    auto* gates = tape.gates.data_ptr<scalar_t>() + step * tape.samples * 4 * cells;
    const auto* before = tape.cells.data_ptr<scalar_t>() + step * tape.samples * cells;
    const auto* cell = before + tape.samples * cells;
    const auto* above = d_out.data_ptr<scalar_t>();
    auto* dc = d_cell.data_ptr<scalar_t>();
    at::parallel_for(0, tape.samples, grain_of(cells), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s)
        kernel::lstm_cell<scalar_t>().backward(gates + s * 4 * cells, before + s * cells,
                                               cell + s * cells, above + s * cells, dc + s * cells,
                                               cells);
    });
  });
}

LstmTape run_forward(const Tensor& x, const LstmWeights& w, const LstmRun& run) {
  LstmTape tape{.weights = w,
                .samples = run.samples,
                .tokens = x.size(0) / run.samples,
                .is_reversed = run.is_reversed};
  if (run.lengths.defined()) {
    const Tensor lengths = run.lengths.contiguous();
    const auto* data = lengths.data_ptr<std::int64_t>();
    tape.lengths.assign(data, data + lengths.numel());
  }
  const std::int64_t cells = w.cells(), tokens = tape.tokens, samples = run.samples;
  tape.x = by_step(x, tape);
  tape.gates = at::addmm(w.input_bias.add(w.state_bias), as_matrix(tape.x), w.input.t())
                   .view({tokens, samples, 4 * cells});
  tape.cells = x.new_empty({tokens + 1, samples, cells});
  tape.out = x.new_empty({tokens + 1, samples, w.state.size(1)});
  tape.cells[0].zero_();
  tape.out[0].zero_();
  if (w.projection.defined()) tape.projected = x.new_empty({tokens, samples, cells});
  const Tensor by_state = w.state.t();
  for (std::int64_t step = 0; step < tokens; ++step) {
    if (step > 0) tape.gates[step].addmm_(tape.out[step], by_state);
    Tensor out = tape.out[step + 1];
    run_cells(tape, step, tape.projected.defined() ? tape.projected[step] : out);
    if (tape.projected.defined()) at::mm_out(out, tape.projected[step], w.projection.t());
  }
  return tape;
}

// weight.grad() += d^T inputs, bias.grad() += the sum of d: now, or later.
void note(const Tensor& weight, const Tensor& bias, const Tensor& d, const Tensor& inputs,
          const std::weak_ptr<DeferredWeights>& handle, bool is_deferred) {
  if (!weight.requires_grad()) return;
  DeferredWeights::Product product{
      .weight = weight, .bias = bias, .left = d, .right = inputs, .sums_left = true};
  if (!is_deferred) return add_to_gradients(std::move(product));
  const auto deferred = handle.lock();
  LACONIC_ASSERT(deferred, "backward of an LSTM layer whose DeferredWeights has gone");
  deferred->add(std::move(product));
}

// The gradients of all sums, in the place of the gates; d_out, by step, becomes that of all
// outputs with what the steps behind add.
void run_backward(const LstmTape& tape, const Tensor& d_out) {
  const LstmWeights& w = tape.weights;
  const Tensor d_cell = d_out.new_zeros({tape.samples, w.cells()});
  for (std::int64_t step = tape.tokens - 1; step >= 0; --step) {
    Tensor d = d_out[step];
    if (step + 1 < tape.tokens) d.addmm_(tape.gates[step + 1], w.state);
    run_cells_backward(tape, step, w.projection.defined() ? d.mm(w.projection) : d, d_cell);
  }
}

}  // namespace

Tensor lstm(const Tensor& x, const LstmWeights& weights, const LstmRun& run) {
  auto tape = std::make_shared<LstmTape>();
  Tensor y;
  {
    const at::NoGradGuard no_grad;
    *tape = run_forward(x.contiguous(), weights, run);
    y = by_sample(tape->out.narrow(0, 1, tape->tokens), *tape);
  }
  const bool is_deferred = run.deferred != nullptr;
  std::weak_ptr<DeferredWeights> handle;
  if (is_deferred) handle = run.deferred->handle();
  const bool needs_x = x.requires_grad();
  return with_backward(
      {y}, {x},
      [tape, handle, is_deferred, needs_x](const Tensors& gradients) -> Tensors {
        if (!gradients[0].defined()) return {Tensor()};
        const LstmWeights& w = tape->weights;
        const Tensor d_out = by_step(gradients[0].contiguous(), *tape);
        run_backward(*tape, d_out);
        const Tensor d = as_matrix(tape->gates);
        const Tensor states = as_matrix(tape->out.narrow(0, 0, tape->tokens));
        note(w.input, w.input_bias, d, as_matrix(tape->x), handle, is_deferred);
        note(w.state, w.state_bias, d, states, handle, is_deferred);
        if (w.projection.defined())
          note(w.projection, {}, as_matrix(d_out), as_matrix(tape->projected), handle, is_deferred);
        if (!needs_x) return {Tensor()};
        return {by_sample(d.mm(w.input).view(tape->x.sizes()), *tape)};
      },
      weights.input.requires_grad())[0];
}

}  // namespace fused

Tensor lstm_step(const Tensor& x, const LstmWeights& w, LstmState& state) {
  const at::NoGradGuard no_grad;
  Tensor sums = transposed_linear(x, w.input, w.input_bias);
  const Tensor before = state.h.defined() ? state.h : x.new_zeros({x.size(0), w.state.size(1)});
  sums = sums.add(transposed_linear(before, w.state, w.state_bias));
  const composed::Cells next = composed::next_cells(sums, state.cell, w, nullptr);
  state = {next.h, next.cell};
  return next.h;
}

}  // namespace laconic
