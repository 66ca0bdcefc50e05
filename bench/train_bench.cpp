// Speed of one training step in this process, in parts: forward and backward, norm, AdamW.
//
//   train_bench LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS
//
// Prints one JSON line: medians over the steps, in milliseconds, and the peak memory. The peer with
// the same arguments and output is bench/peers/torch_gpt.py; bench/run puts them side by side.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/train/loop.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> pass, norm, update, total;
};

void step(Weights& weights, OptimiserState& state, const Batch& batch, const Pass& pass,
          Times& times) {
  const Stopwatch watch;
  forward_backward(weights, batch, pass, 1);
  const double after_pass = watch.seconds();
  const double norm = global_norm(weights.parameters);
  const double after_norm = watch.seconds();
  apply({}, state, weights.parameters, 1e-4, norm > 1 ? 1 / norm : 1);
  const double after_update = watch.seconds();
  clear_gradients(weights);
  times.pass.push_back(1e3 * after_pass);
  times.norm.push_back(1e3 * (after_norm - after_pass));
  times.update.push_back(1e3 * (after_update - after_norm));
  times.total.push_back(1e3 * watch.seconds());
}

int bench(char** argv) {
  const GptShape shape{.layers = std::atoll(argv[1]),
                       .width = std::atoll(argv[2]),
                       .heads = std::atoll(argv[3]),
                       .context = std::atoll(argv[4]),
                       .vocabulary = std::atoll(argv[5])};
  const std::int64_t batch = std::atoll(argv[6]);
  const double dropout = std::atof(argv[7]);
  const int steps = std::atoi(argv[8]);
  Weights weights = make_weights(shape, 1, at::TensorOptions().dtype(at::kFloat));
  OptimiserState state = make_optimiser_state(weights.parameters);
  std::vector<std::int64_t> names;
  for (std::int64_t s = 0; s < batch; ++s) names.push_back(s);
  Times times;
  for (int i = 0; i < steps + 2; ++i) {
    if (i == 2) times = {};  // the first two warm up
    const at::Tensor ids = at::randint(shape.vocabulary, {batch, shape.context + 1}, at::kLong);
    step(weights, state,
         {{"ids", ids.narrow(1, 0, shape.context).contiguous()},
          {"targets", ids.narrow(1, 1, shape.context).contiguous()}},
         {.dropout = dropout, .sample_keys = dropout_keys(1, i, names)}, times);
  }
  fmt::print(
      "{{\"threads\": {}, \"pass_ms\": {:.2f}, \"norm_ms\": {:.2f}, \"adamw_ms\": {:.2f}, "
      "\"step_ms\": {:.2f}, "
      "\"step_ms_least\": {:.2f}, \"step_ms_most\": {:.2f}, \"tokens_per_second\": {:.1f}, "
      "\"peak_mb\": {:.1f}}}\n",
      at::get_num_threads(), median(times.pass), median(times.norm), median(times.update),
      median(times.total), *std::min_element(times.total.begin(), times.total.end()),
      *std::max_element(times.total.begin(), times.total.end()),
      1e3 * static_cast<double>(batch * shape.context) / median(times.total),
      static_cast<double>(peak_memory_bytes()) / 1e6);
  return 0;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  if (argc != 9) {
    fmt::print(stderr,
               "usage: train_bench LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS\n");
    return 2;
  }
  laconic::flush_denormals();
  return laconic::bench(argv);
}
