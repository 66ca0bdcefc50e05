// update/cuda_update.hpp — norms and updates of all parameters by few kernels, on a GPU.
//
// In a program that was built without CUDA nothing is taken, and nothing else may be called.
#pragma once

#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/update/kernel/update.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic::cuda {

// Whether all are float on a GPU, but for those that have no gradient: tables in host memory.
bool updates(const std::vector<Parameter>& parameters);

// Squares of the norms of gradients, still in the device's memory: a double for each parameter,
// 0 where there is no gradient.
at::Tensor squared_norms(const std::vector<Parameter>& parameters);

// A Judgement, in the device's memory.
struct JudgeTask {
  at::Tensor squares;
  at::Tensor parts;   // of the loss; may be undefined
  bool is_finite;     // what is known of the loss
  double clip;        // 0: nothing is clipped
  at::Tensor before;  // may be undefined
};
at::Tensor judge(const JudgeTask& task);

struct UpdateTask {
  const OptimiserSpec& spec;
  double lr;
  double gradient_scale;
  kernel::AdamWRule adam;   // of adamw and adam, without the decay
  at::Tensor verdict = {};  // if defined, it has the scale, and says whether anything changes
};
// Changes values, moments and compute copies.
void update(const UpdateTask& task, OptimiserState& state,
            const std::vector<Parameter>& parameters);

}  // namespace laconic::cuda
