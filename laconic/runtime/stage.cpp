#include "laconic/runtime/stage.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/report/trace.hpp"

namespace laconic {

namespace {

const char* kind_of(const Gpt& gpt, std::int64_t block) {
  if (block == 0) return "embedding";
  return block <= gpt.shape.layers ? "layer" : "head";
}

// Literals for traces: a trace that is off costs nothing.
Trace& or_disabled(Trace* trace) {
  static Trace disabled;
  return trace != nullptr ? *trace : disabled;
}

}  // namespace

Stage::Stage(const Gpt& gpt, BlockRange blocks, const StageOptions& options)
    : gpt_(gpt), blocks_(blocks), options_(options) {
  for (std::int64_t b = blocks.begin; b < blocks.end; ++b)
    LACONIC_ASSERT(gpt.holds(b), fmt::format("block {} is not held", b));
}

at::Tensor Stage::forward_in(Cell& cell, std::size_t b, const char* category) const {
  const std::int64_t block = blocks_.begin + static_cast<std::int64_t>(b);
  const TraceSpan span(or_disabled(options_.trace), kind_of(gpt_, block), category, "compute");
  Microbatch microbatch = cell.microbatch;
  microbatch.deferred = cell.blocks[b].deferred.get();
  return forward_block(gpt_, block, cell.blocks[b].input, microbatch);
}

// With recomputation only the last block of the last stage keeps a graph: what would be recomputed
// at once is not worth forgetting.
at::Tensor Stage::forward(int number, const Microbatch& microbatch, const at::Tensor& input) {
  LACONIC_ASSERT(!cells_.contains(number), fmt::format("microbatch {} is under way", number));
  Cell& cell = cells_[number];
  cell.microbatch = microbatch;
  cell.blocks.resize(static_cast<std::size_t>(blocks_.end - blocks_.begin));
  at::Tensor output = input;
  for (std::size_t b = 0; b < cell.blocks.size(); ++b) {
    Block& block = cell.blocks[b];
    if (options_.is_split) block.deferred = std::make_unique<DeferredWeights>();
    if (output.defined()) block.input = output.detach().requires_grad_(true);
    const bool is_kept = !options_.recompute || (is_last() && b + 1 == cell.blocks.size());
    const at::AutoGradMode keep_graph(is_kept);
    output = forward_in(cell, b, "forward");
    if (is_kept) block.output = output;
  }
  return output.detach();
}

at::Tensor Stage::forward_only(const Microbatch& microbatch, const at::Tensor& input) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = input;
  for (std::int64_t b = blocks_.begin; b < blocks_.end; ++b)
    x = forward_block(gpt_, b, x, microbatch);
  return x;
}

Stage::Cell& Stage::cell_of(int number) {
  const auto found = cells_.find(number);
  LACONIC_ASSERT(found != cells_.end(), fmt::format("microbatch {} has no forward", number));
  return found->second;
}

at::Tensor Stage::backward_through(Cell& cell, at::Tensor gradient, bool with_weights,
                                   const AfterBlock& after_block) const {
  for (std::size_t b = cell.blocks.size(); b-- > 0;) {
    Block& block = cell.blocks[b];
    if (!block.output.defined()) block.output = forward_in(cell, b, "recompute");
    const std::int64_t number = blocks_.begin + static_cast<std::int64_t>(b);
    {
      const TraceSpan span(or_disabled(options_.trace), kind_of(gpt_, number), "backward",
                           "compute");
      block.output.backward(gradient);
      block.output.reset();
      gradient = block.input.defined() ? block.input.grad() : at::Tensor();
      block.input.reset();
      if (with_weights && block.deferred != nullptr) block.deferred->run();
    }
    if (after_block) after_block(number);
  }
  return gradient;
}

at::Tensor Stage::backward(int number, const at::Tensor& gradient, const AfterBlock& after_block) {
  at::Tensor of_input = backward_through(cell_of(number), gradient, true, after_block);
  cells_.erase(number);
  return of_input;
}

at::Tensor Stage::backward_input(int number, const at::Tensor& gradient) {
  LACONIC_ASSERT(options_.is_split, "the stage was not made for halves");
  return backward_through(cell_of(number), gradient, false, {});
}

void Stage::backward_weight(int number, const AfterBlock& after_block) {
  Cell& cell = cell_of(number);
  for (std::size_t b = cell.blocks.size(); b-- > 0;) {
    const std::int64_t block = blocks_.begin + static_cast<std::int64_t>(b);
    {
      const TraceSpan span(or_disabled(options_.trace), kind_of(gpt_, block), "backward_weight",
                           "compute");
      cell.blocks[b].deferred->run();
    }
    if (after_block) after_block(block);
  }
  cells_.erase(number);
}

double forward_backward(const Gpt& gpt, const Microbatch& microbatch, double weight,
                        const StageOptions& options) {
  Stage stage(gpt, {0, block_count(gpt.shape)}, options);
  const at::Tensor loss = stage.forward(0, microbatch, {});
  stage.backward(0, at::scalar_tensor(weight, loss.options()), {});
  fold_tied_gradient(gpt);
  return loss.item<double>();
}

}  // namespace laconic
