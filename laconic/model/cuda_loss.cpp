// The loss of model/ops.hpp on an NVIDIA GPU: logits are there once, and become their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "laconic/model/cuda_support.hpp"
#include "laconic/model/deferred.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/weights.hpp"

namespace laconic::cuda {

namespace {

using at::Tensor;
using torch::autograd::variable_list;

// The weight with the rows of zeros behind it: products are several times slower where a vocabulary
// is no multiple of 8.
Tensor with_room(const Tensor& weight, std::int64_t room) {
  const std::int64_t rows = weight.size(0) + room, width = weight.size(1);
  return weight.detach().as_strided({rows, width}, {width, 1});
}

// [rows, as many as `padded` has], with rows that begin at multiples of 16 bytes.
Tensor aligned_logits(const Tensor& x, const Tensor& padded, const Tensor& bias,
                      std::int64_t vocabulary) {
  const std::int64_t columns = padded.size(0);
  const std::int64_t stride = (columns + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const auto options = x.options().requires_grad(false);
  Tensor logits = at::empty({x.size(0), stride}, options).narrow(1, 0, columns);
  at::mm_out(logits, x, padded.t());
  if (bias.defined()) logits.narrow(1, 0, vocabulary).add_(bias);
  return logits;
}

struct LossKept {
  kernel::CrossEntropy task;
  Tensor x, weight, bias, targets, log_sums;
  Tensor logits, padded;  // with zeros behind the vocabulary, where there is room
  std::weak_ptr<DeferredWeights> deferred;
  bool is_deferred;
};

variable_list loss_backward(const LossKept& kept, const Tensor& of_loss) {
  if (!of_loss.defined()) return {Tensor()};
  const Tensor scale = of_loss.to(at::kFloat);
  kernel::cross_entropy_backward(kept.task, kept.logits.data_ptr(), kept.log_sums.data_ptr<float>(),
                                 scale.data_ptr<float>(), stream_of(kept.logits));
  check_launch();
  const Tensor dx = kept.logits.mm(kept.padded);
  if (kept.weight.requires_grad()) {
    DeferredWeights::Product product{.weight = kept.weight,
                                     .bias = kept.bias,
                                     .left = kept.logits.narrow(1, 0, kept.task.vocabulary),
                                     .right = kept.x,
                                     .sums_left = true};
    if (!kept.is_deferred) {
      add_to_gradients(std::move(product));
    } else {
      const auto deferred = kept.deferred.lock();
      LACONIC_ASSERT(deferred, "backward of a loss whose DeferredWeights has gone");
      deferred->add(std::move(product));
    }
  }
  return {dx};
}

}  // namespace

Tensor cross_entropy(const Tensor& any_x, const Tensor& weight, const Tensor& bias,
                     const Tensor& any_targets, DeferredWeights* deferred, double smoothing,
                     std::int64_t room) {
  const Tensor x = any_x.detach().contiguous(), targets = any_targets.contiguous();
  const Tensor padded = room > 0 ? with_room(weight, room) : weight.detach();
  const Tensor logits = [&] {
    const at::NoGradGuard no_grad;
    return aligned_logits(x, padded, bias, weight.size(0));
  }();
  const kernel::CrossEntropy task{
      real_of(x), x.size(0), weight.size(0), logits.stride(0), targets.data_ptr<std::int64_t>(),
      smoothing};
  const Tensor log_sums = floats({task.rows}, x), losses = floats({task.rows}, x);
  const Tensor loss = floats({}, x);
  kernel::cross_entropy_forward(task, logits.data_ptr(), log_sums.data_ptr<float>(),
                                losses.data_ptr<float>(), loss.data_ptr<float>(), stream_of(x));
  check_launch();
  if (is_recorded({any_x, weight})) {
    const LossKept kept{
        .task = task,
        .x = x,
        .weight = weight,
        .bias = bias,
        .targets = targets,
        .log_sums = log_sums,
        .logits = logits,
        .padded = padded,
        .deferred = deferred != nullptr ? deferred->handle() : std::weak_ptr<DeferredWeights>(),
        .is_deferred = deferred != nullptr};
    record({any_x}, {loss}, [kept](const variable_list& g) { return loss_backward(kept, g[0]); });
  }
  return loss;
}

}  // namespace laconic::cuda
