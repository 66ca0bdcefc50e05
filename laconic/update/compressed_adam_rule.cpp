#include <c10/core/GradMode.h>

#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

namespace {

// Clipping needs the norm before the moment can be formed, so after warm-up nothing leaves during
// backward. The norm is then the root mean square of the replicas' own norms: that of the mean
// gradient, which is smaller, nobody knows. For the same reason the parts of a shared gradient
// on several stages count one by one, as if they were orthogonal.
//
// A shared parameter is one sum over all its stages, to which each of the H D holders adds its
// H D-th of the moment. The moments are equal there, and so are the second ones: warm-up made them
// of equal gradients.
class CompressedAdamRule final : public SummedRule {
 public:
  explicit CompressedAdamRule(const RuleRequest& request) : SummedRule(request, true) {}

  void begin(std::int64_t step) override {
    is_warm_ = step >= config_.dp_gradient.warmup;
    SummedRule::begin(step);
  }
  void begin_shadow(std::int64_t) override { LACONIC_ASSERT(false, "nobody sums gradients"); }
  void block_done(std::int64_t block) override {
    if (!is_warm_) SummedRule::block_done(block);
  }
  Measured measure(const StepLoss& loss, int signal) override {
    if (!is_warm_) return SummedRule::measure(loss, signal);
    const int replicas = exchange_.members();
    const PendingSquares squares(weights_.parameters);  // on a GPU before anybody waits
    const double own = loss.value(), norm = replicas * norm_of(squares.values());
    const ReducedStep all =
        reduce_step(world_, {.loss = own, .square = norm * norm, .signal = signal});
    return measured_by_all(all.loss, std::sqrt(all.square / replicas), all.signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    if (!is_warm_) return SummedRule::apply(state, lr, scale);
    const at::NoGradGuard no_grad;
    fill_with_shares(state, scale);
    exchange_.post_all();
    wait_for_sums();
    exchange_.commit();
    apply_moment(optimiser_spec(config_.optimiser), state, weights_.parameters, lr);
  }

 private:
  // This rank's share of the new first moment.
  void fill_with_shares(const OptimiserState& state, double scale) {
    const double beta = config_.optimiser.beta1;
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
      const at::Tensor& part = exchange_.part(p);
      part.copy_(state.moment1[p]).mul_(beta / exchange_.contributors(p));
      const at::Tensor& gradient = weights_.parameters[p].gradient;
      if (gradient.defined()) part.add_(gradient.to(at::kCPU), (1 - beta) * scale);
    }
  }

  bool is_warm_ = false;
};

}  // namespace

std::unique_ptr<UpdateRule> make_compressed_adam_rule(const RuleRequest& request) {
  return std::make_unique<CompressedAdamRule>(request);
}

}  // namespace laconic
