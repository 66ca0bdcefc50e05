#include <cmath>
#include <string_view>

#include "laconic/update/rule.hpp"

namespace laconic {

Measured measured_by_all(double loss, double norm, int signal) {
  return {.loss = loss,
          .norm = norm,
          .is_skipped = !std::isfinite(loss) || !std::isfinite(norm),
          .signal = signal};
}

SummedRule::SummedRule(const RuleRequest& request, bool is_fused, bool may_be_on_device)
    : config_(request.config),
      weights_(request.weights),
      world_(request.world),
      exchange_(request, is_fused, may_be_on_device) {}

void SummedRule::block_done(std::int64_t block) {
  exchange_.take(block);
  if (config_.dp_gradient.overlap) exchange_.post(block);
}

// Without a pipeline or a grid every rank has the whole gradient in the end, so that the reduction
// of losses can hide behind the sums. With one nobody has, and the squares, which are known only
// after the sums, travel with the losses: one exchange either way.
Measured SummedRule::measure(const StepLoss& loss, int signal) {
  if (!config_.dp_gradient.overlap) exchange_.post_all();
  if (world_.replica().size() == 1) {
    const ReducedStep all = reduce_step(world_, {.loss = loss.value(), .signal = signal});
    wait_for_sums();
    return measured(all.loss, global_norm(weights_.parameters), all.signal);
  }
  wait_for_sums();
  const bool speaks = world_.dp_member() == 0;  // for all replicas: they have the same sums
  const std::vector<NumberedSquare> squares =
      speaks ? squares_of(weights_) : std::vector<NumberedSquare>();
  const ReducedStep all = reduce_step(world_, {.loss = loss.value(), .signal = signal}, squares);
  return measured(all.loss, all.norm, all.signal);
}

// A step whose loss is not finite leaves nothing for the next one.
Measured SummedRule::measured(double loss, double norm, int signal) {
  if (!std::isfinite(loss)) exchange_.drop_kept();
  return measured_by_all(loss, norm, signal);
}

void SummedRule::wait_for_sums() {
  exchange_.wait();
  exchange_.give_gradients();
}

void SummedRule::apply(OptimiserState& state, double lr, double scale) {
  exchange_.commit();
  if (!exchange_.has_sums()) return;
  laconic::apply(optimiser_spec(config_.optimiser), state, weights_.parameters, lr, scale);
}

std::unique_ptr<UpdateRule> make_summed_rule(const RuleRequest& request) {
  return std::make_unique<SummedRule>(request, request.config.embedding_tied.fused,
                                      /*may_be_on_device=*/true);
}

}  // namespace laconic
