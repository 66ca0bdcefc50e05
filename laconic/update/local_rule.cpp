#include "laconic/update/local_rule.hpp"

#include <c10/core/GradMode.h>

#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

LocalRule::LocalRule(const RuleRequest& request)
    : config_(request.config),
      weights_(request.weights),
      world_(request.world),
      exchange_(request, false),
      start_(request.weights) {
  remember_start();
}

void LocalRule::begin_shadow(std::int64_t) {
  LACONIC_ASSERT(false, "nobody sums gradients");
}

Measured LocalRule::measure(const StepLoss& loss, int signal) {
  exchange_.sum_shared_in_replica(step_);
  const double own = loss.value();
  const ReducedStep replica = reduce_in_replica(world_, {.loss = own}, squares_of(weights_));
  Measured here = measured_by_all(replica.loss, replica.norm, 0);
  here.is_common = false;
  left_out_ += here.is_skipped ? 1 : 0;
  in_a_row_ = here.is_skipped ? in_a_row_ + 1 : 0;
  if (agrees_after(step_ + 1)) reduce_round(own, signal, here);
  return here;
}

void LocalRule::reduce_round(double loss, int signal, Measured& here) {
  const std::int64_t left_out = std::exchange(left_out_, 0);
  const ReducedStep all =
      reduce_step(world_, {.loss = loss,
                           .skipped = world_.is_first_of_replica() ? left_out : 0,
                           .in_a_row = in_a_row_,
                           .signal = signal});
  here.loss = all.loss / exchange_.members();
  here.signal = all.signal;
  here.left_out = all.skipped;
  here.in_a_row = all.in_a_row;
}

void LocalRule::remember_start() {
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
    start_.part(p).copy_(weights_.parameters[p].value);
}

std::vector<RankTensors> LocalRule::replicas_of(const std::vector<RankTensors>& saved) const {
  const Mesh before = mesh_of(saved);
  if (before.tp != world_.mesh().tp)
    throw ConfigError(
        {{"mesh.tp", fmt::format("[{}], and the checkpoint's local updates are those of "
                                 "[{}]: go on with that",
                                 fmt::join(world_.mesh().tp, ", "), fmt::join(before.tp, ", "))}});
  return by_replica(saved, before, world_.coord());
}

void LocalRule::load_moment(const std::vector<RankTensors>& replicas, const std::string& name,
                            at::Tensor& moment) const {
  if (static_cast<int>(replicas.size()) == exchange_.members()) {
    const RankTensors& mine = replicas[static_cast<std::size_t>(world_.dp_member())];
    if (const auto found = mine.find(name); found != mine.end()) moment.copy_(found->second);
    return;
  }
  if (!replicas.front().contains(name)) return;  // of a run without local steps: all ranks' already
  at::Tensor mean = moment.zero_();
  for (const RankTensors& tensors : replicas)
    if (const auto found = tensors.find(name); found != tensors.end())
      mean.add_(found->second.to(mean.device()), 1.0 / static_cast<double>(replicas.size()));
}

namespace {

// DiLoCo. The outer step treats the mean change of a round as a gradient and goes along it with
// Nesterov momentum; it is what all ranks begin the next round with.
class DilocoRule final : public LocalRule {
 public:
  explicit DilocoRule(const RuleRequest& request)
      : LocalRule(request), momentum_(request.weights) {}

  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(optimiser_spec(config_.optimiser), state, weights_.parameters, lr, scale);
    finish_step();
  }
  void abandon() override { finish_step(); }  // this replica's inner step alone is left out

  RankTensors save(const OptimiserState& state) const override;
  void load(const std::vector<RankTensors>& saved, OptimiserState& state) override;

 private:
  void finish_step() {
    if (agrees_after(step_ + 1)) outer_step();
  }

  // The mean of all replicas' changes is in the buffers afterwards.
  void sum_changes() {
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
      exchange_.part(p)
          .copy_(start_.part(p))
          .sub_(weights_.parameters[p].value.to(at::kCPU))
          .div_(exchange_.contributors(p));
    exchange_.begin(step_);
    exchange_.post_all();
    exchange_.wait();
    exchange_.commit();
  }

  void outer_step() {
    const at::NoGradGuard no_grad;
    sum_changes();
    const auto [lr, momentum] = laconic::outer_step(config_.local);
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
      const at::Tensor& change = exchange_.part(p);
      momentum_.part(p).mul_(momentum).add_(change);
      change.add_(momentum_.part(p), momentum);
      start_.part(p).sub_(change, lr);
      weights_.parameters[p].value.detach().copy_(start_.part(p));
    }
    refresh_copies(weights_.parameters);
  }

  FlatBlocks momentum_;  // of the outer step
};

RankTensors DilocoRule::save(const OptimiserState& state) const {
  RankTensors tensors;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    tensors["moment1." + name] = on_host(state.moment1[p]);
    if (state.moment2[p].defined()) tensors["moment2." + name] = on_host(state.moment2[p]);
    if (world_.dp_member() == 0) tensors["outer." + name] = momentum_.part(p);
  }
  return tensors;
}

void DilocoRule::load(const std::vector<RankTensors>& saved, OptimiserState& state) {
  remember_start();
  if (saved.empty()) return;
  const std::vector<RankTensors> replicas = replicas_of(saved);
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    load_moment(replicas, "moment1." + name, state.moment1[p]);
    if (state.moment2[p].defined()) load_moment(replicas, "moment2." + name, state.moment2[p]);
    const RankTensors& first = replicas.front();
    if (const auto found = first.find("outer." + name); found != first.end())
      momentum_.part(p).copy_(found->second);
  }
}

}  // namespace

std::unique_ptr<UpdateRule> make_diloco_rule(const RuleRequest& request) {
  return std::make_unique<DilocoRule>(request);
}

}  // namespace laconic
