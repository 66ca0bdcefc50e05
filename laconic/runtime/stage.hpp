// runtime/stage.hpp — a range of blocks of the model, and what is alive between its forward and
// backward.
//
// Autograd works inside a block only: a block's input is a detached leaf, and
// its gradient is handed to the block before. The seam between two blocks is
// where gradients leave for other ranks, and where a pipeline is cut: a stage is
// the blocks between two cuts.
//
// Microbatches are known by their number within the step. forward() keeps what
// backward() of the same number needs, and backward() lets it go; with the
// backward in halves, backward_weight() does. Gradients of parameters add up in
// the leaves of the weights (model/weights.hpp), and are complete when all blocks that
// use a parameter have been gone through for the last time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "laconic/model/deferred.hpp"
#include "laconic/model/model.hpp"
#include "laconic/schedule/partition.hpp"

namespace laconic {

class Trace;  // report/trace.hpp

struct StageOptions {
  bool recompute = false;  // keep only block inputs, and run forward again in backward
  bool is_split = false;   // backward comes in halves
  Trace* trace = nullptr;
};

class Stage {
 public:
  // Called in backward after each block, last to first: this microbatch has added all it adds to
  // the gradients of the block's parameters. What is done there delays the blocks before it.
  using AfterBlock = std::function<void(std::int64_t block)>;
  // Called in forward before each block, first to last: its parameters are about to be read.
  using BeforeBlock = std::function<void(std::int64_t block)>;

  // Requires: the weights hold the blocks and outlive the stage.
  Stage(Weights& weights, BlockRange blocks, const StageOptions& options);

  bool is_first() const { return blocks_.begin == 0; }
  bool is_last() const { return blocks_.end == block_count(weights_.spec); }
  const BlockRange& blocks() const { return blocks_; }

  // `input` is what the stage before has put out; empty for the first stage. Returns the output,
  // without a graph; at the last stage that is the mean loss.
  Seam forward(int number, const Batch& batch, const Pass& pass, const Seam& input,
               const BeforeBlock& before_block = {});

  // `gradient` is that of the output. Returns that of the input, empty at the first stage.
  Seam backward(int number, const Seam& gradient, const AfterBlock& after_block);
  // The halves. Requires: is_split.
  Seam backward_input(int number, const Seam& gradient);
  void backward_weight(int number, const AfterBlock& after_block);

  std::size_t live() const { return cells_.size(); }  // microbatches that something is kept of
  void clear() { cells_.clear(); }                    // after a failure

 private:
  struct Block {
    Seam input, output;
    std::unique_ptr<DeferredWeights> deferred;
  };
  struct Cell {
    Batch batch;
    Pass pass;
    std::vector<Block> blocks;
  };

  std::string_view kind_of(std::int64_t block) const;
  Seam forward_in(Cell& cell, std::size_t b, const char* category) const;
  Cell& cell_of(int number);
  void lend_on_device(std::int64_t block);
  Seam backward_through(Cell& cell, Seam gradient, bool with_weights,
                        const AfterBlock& after_block);

  Weights& weights_;
  BlockRange blocks_;
  StageOptions options_;
  std::map<int, Cell> cells_;
};

// Takes one microbatch through all blocks, there and back: returns its mean loss, and adds `weight`
// times its gradient to the parameters' gradients. For tests and benches; a pipeline does the same
// with one stage and one microbatch.
double forward_backward(Weights& weights, const Batch& batch, const Pass& pass, double weight,
                        const StageOptions& options = {});

}  // namespace laconic
