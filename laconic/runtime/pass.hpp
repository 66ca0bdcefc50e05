// runtime/pass.hpp — one microbatch through all blocks, there and back.
//
// Autograd works inside a block only: a block's input is a detached leaf, and
// its gradient is handed to the block before. The seam between two blocks is
// where gradients leave for other ranks, and where a pipeline would be cut.
#pragma once

#include <cstdint>
#include <functional>

#include "laconic/model/gpt.hpp"

namespace laconic {

class Trace;  // report/trace.hpp

struct PassOptions {
  bool recompute = false;  // keep only block inputs, and run forward again in backward
  Trace* trace = nullptr;
  // Called in backward after each block: its gradients, and those it shares with later blocks, are
  // complete for this microbatch. What is done there delays the blocks before it.
  std::function<void(std::int64_t block)> after_block;
};

// Returns the mean loss of the microbatch and adds `weight` times its gradient to the parameters'
// grad().
double forward_backward(const Gpt& gpt, const Microbatch& microbatch, double weight,
                        const PassOptions& options = {});

}  // namespace laconic
