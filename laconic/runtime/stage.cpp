#include "laconic/runtime/stage.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/report/trace.hpp"

namespace laconic {

namespace {

Trace& or_disabled(Trace* trace) {
  static Trace disabled;
  return trace != nullptr ? *trace : disabled;
}

Seam detached(const Seam& seam) {
  Seam result;
  for (const at::Tensor& tensor : seam) result.push_back(tensor.detach());
  return result;
}

Seam leaves_of(const Seam& seam) {
  Seam leaves = detached(seam);
  for (at::Tensor& leaf : leaves) leaf.requires_grad_(true);
  return leaves;
}

// An input that nothing depended on has a gradient all the same: the other end waits for one.
Seam gradients_of(const Seam& leaves) {
  Seam gradients;
  for (const at::Tensor& leaf : leaves)
    gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  return gradients;
}

// Gradients of weights that are on their way are part of the block's.
void settle(TensorGrid* grid) {
  if (grid != nullptr) grid->overlap().settle();
}

}  // namespace

Stage::Stage(Weights& weights, BlockRange blocks, const StageOptions& options)
    : weights_(weights), blocks_(blocks), options_(options) {
  for (std::int64_t b = blocks.begin; b < blocks.end; ++b)
    LACONIC_ASSERT(weights.holds(b), fmt::format("block {} is not held", b));
}

std::string_view Stage::kind_of(std::int64_t block) const {
  return weights_.spec.blocks[static_cast<std::size_t>(block)].kind;
}

Seam Stage::forward_in(Cell& cell, std::size_t b, const char* category) const {
  const std::int64_t block = blocks_.begin + static_cast<std::int64_t>(b);
  const TraceSpan span(or_disabled(options_.trace), kind_of(block), category, "compute");
  Pass pass = cell.pass;
  pass.deferred = cell.blocks[b].deferred.get();
  return forward_block(weights_, block, cell.blocks[b].input, cell.batch, pass);
}

// With recomputation only the last block of the last stage keeps a graph: what would be recomputed
// at once is not worth forgetting.
Seam Stage::forward(int number, const Batch& batch, const Pass& pass, const Seam& input,
                    const BeforeBlock& before_block) {
  LACONIC_ASSERT(!cells_.contains(number), fmt::format("microbatch {} is under way", number));
  Cell& cell = cells_[number];
  cell.batch = batch;
  cell.pass = pass;
  cell.blocks.resize(static_cast<std::size_t>(blocks_.end - blocks_.begin));
  Seam output = input;
  GridPass on_grid(pass.grid, {PassKind::forward, blocks_.begin});
  for (std::size_t b = 0; b < cell.blocks.size(); ++b) {
    Block& block = cell.blocks[b];
    if (before_block) before_block(blocks_.begin + static_cast<std::int64_t>(b));
    if (options_.is_split) block.deferred = std::make_unique<DeferredWeights>();
    block.input = leaves_of(output);
    const bool is_kept = !options_.recompute || (is_last() && b + 1 == cell.blocks.size());
    const at::AutoGradMode keep_graph(is_kept);
    output = forward_in(cell, b, "forward");
    if (is_kept) block.output = output;
  }
  on_grid.end();
  return detached(output);
}

Stage::Cell& Stage::cell_of(int number) {
  const auto found = cells_.find(number);
  LACONIC_ASSERT(found != cells_.end(), fmt::format("microbatch {} has no forward", number));
  return found->second;
}

// Not on the CPU: a product that adds to a matrix there rounds otherwise than one that is added to
// it afterwards, as autograd does it.
void Stage::lend_on_device(std::int64_t block) {
  if (!weights_.device().is_cpu()) lend_sums(weights_, block);
}

Seam Stage::backward_through(Cell& cell, Seam gradient, bool with_weights,
                             const AfterBlock& after_block) {
  GridPass on_grid(cell.pass.grid, {PassKind::backward, blocks_.begin});
  for (std::size_t b = cell.blocks.size(); b-- > 0;) {
    Block& block = cell.blocks[b];
    if (block.output.empty()) block.output = forward_in(cell, b, "recompute");
    const std::int64_t number = blocks_.begin + static_cast<std::int64_t>(b);
    {
      const TraceSpan span(or_disabled(options_.trace), kind_of(number), "backward", "compute");
      lend_on_device(number);
      laconic::backward(block.output, gradient);
      block.output.clear();
      gradient = gradients_of(block.input);
      block.input.clear();
      if (with_weights && block.deferred != nullptr) block.deferred->run();
      settle(cell.pass.grid);
      collect_gradients(weights_, number);
    }
    if (after_block) after_block(number);
  }
  on_grid.end();
  return gradient;
}

Seam Stage::backward(int number, const Seam& gradient, const AfterBlock& after_block) {
  Seam of_input = backward_through(cell_of(number), gradient, true, after_block);
  cells_.erase(number);
  return of_input;
}

Seam Stage::backward_input(int number, const Seam& gradient) {
  LACONIC_ASSERT(options_.is_split, "the stage was not made for halves");
  return backward_through(cell_of(number), gradient, false, {});
}

void Stage::backward_weight(int number, const AfterBlock& after_block) {
  Cell& cell = cell_of(number);
  GridPass on_grid(cell.pass.grid, {PassKind::backward_weight, blocks_.begin});
  for (std::size_t b = cell.blocks.size(); b-- > 0;) {
    const std::int64_t block = blocks_.begin + static_cast<std::int64_t>(b);
    {
      const TraceSpan span(or_disabled(options_.trace), kind_of(block), "backward_weight",
                           "compute");
      lend_on_device(block);
      cell.blocks[b].deferred->run();
      settle(cell.pass.grid);
      collect_gradients(weights_, block);
    }
    if (after_block) after_block(block);
  }
  on_grid.end();
  cells_.erase(number);
}

double forward_backward(Weights& weights, const Batch& batch, const Pass& pass, double weight,
                        const StageOptions& options) {
  Stage stage(weights, {0, block_count(weights.spec)}, options);
  const at::Tensor loss = stage.forward(0, batch, pass, {})[0];
  stage.backward(0, {at::scalar_tensor(weight, loss.options())}, {});
  for (std::size_t place = 0; place < weights.parameters.size(); ++place)
    complete_gradient(weights, place);
  return loss.item<double>();
}

}  // namespace laconic
