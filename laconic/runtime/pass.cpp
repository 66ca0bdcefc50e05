#include "laconic/runtime/pass.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include "laconic/report/trace.hpp"

namespace laconic {

namespace {

const char* kind_of(const Gpt& gpt, std::int64_t block) {
  if (block == 0) return "embedding";
  return block <= gpt.shape.layers ? "layer" : "head";
}

at::Tensor traced_forward(const Gpt& gpt, std::int64_t block, const at::Tensor& input,
                          const Microbatch& microbatch, Trace& trace, const char* category) {
  const TraceSpan span(trace, kind_of(gpt, block), category, "compute");
  return forward_block(gpt, block, input, microbatch);
}

}  // namespace

double forward_backward(const Gpt& gpt, const Microbatch& microbatch, double weight,
                        const PassOptions& options) {
  Trace disabled;
  Trace& trace = options.trace != nullptr ? *options.trace : disabled;
  const std::int64_t last = block_count(gpt.shape) - 1;
  std::vector<at::Tensor> inputs(static_cast<std::size_t>(last) + 1);
  at::Tensor output;
  // With recomputation only the last block has a graph when this loop ends: what would be
  // recomputed at once is not worth forgetting.
  std::vector<at::Tensor> outputs(inputs.size());
  for (std::int64_t b = 0; b <= last; ++b) {
    const auto i = static_cast<std::size_t>(b);
    if (b > 0) inputs[i] = output.detach().requires_grad_(true);
    const at::AutoGradMode keep_graph(!options.recompute || b == last);
    output = traced_forward(gpt, b, inputs[i], microbatch, trace, "forward");
    if (!options.recompute || b == last) outputs[i] = output;
  }
  const double loss = output.item<double>();
  at::Tensor gradient = at::scalar_tensor(weight, output.options());
  output.reset();
  for (std::int64_t b = last; b >= 0; --b) {
    const auto i = static_cast<std::size_t>(b);
    if (!outputs[i].defined())
      outputs[i] = traced_forward(gpt, b, inputs[i], microbatch, trace, "recompute");
    {
      const TraceSpan span(trace, kind_of(gpt, b), "backward", "compute");
      outputs[i].backward(gradient);
      outputs[i].reset();
      if (b > 0) gradient = inputs[i].grad();
      inputs[i].reset();
    }
    if (b == 0) fold_tied_gradient(gpt);
    if (options.after_block) options.after_block(b);
  }
  return loss;
}

}  // namespace laconic
