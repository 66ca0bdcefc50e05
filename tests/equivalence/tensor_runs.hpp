// tests/equivalence/tensor_runs.hpp — small runs over tensor grids, their ranks as threads.
#pragma once

#include "laconic/config/grid_choice.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {

class TensorRun : public PipelineParallel {
 protected:
  RunConfig grid_config(const std::string& name, const std::vector<std::string>& sets) {
    RunConfig c = config(name, 1);
    c.model.layers = 3;
    c.model.heads = 4;
    c.train.microbatch = 8;
    c.train.steps = 4;
    c.train.clip = 0.05;  // every step: the norm must be that of the whole model
    set(c, sets);
    return c;
  }
  std::string checkpoint_of(const std::string& name, int step) const {
    return fmt::format("{}/checkpoints/step-{:08}", folder_ / name, step);
  }
};

inline const std::vector<std::string> kShortMessages = {
    "tp.activation.codec=quantise:bits=8",
    "tp.gradient.codec=quantise:bits=8,rounding=stochastic,grid=ends",
    "tp.weight.codec=quantise:bits=8", "tp.weight.gradient=quantise:bits=4",
    "tp.activation.layers=last half"};

inline const CodecOverrides kAllBypassed = {{Traffic::tp_activation, {.is_bypassed = true}},
                                            {Traffic::tp_gradient, {.is_bypassed = true}},
                                            {Traffic::tp_weight, {.is_bypassed = true}}};

}  // namespace laconic
