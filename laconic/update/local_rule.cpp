#include "laconic/update/local_rule.hpp"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

namespace {

constexpr char kOwn[] = "own.";  // a rank's own parameters, where they are not the model's
constexpr char kUpdates[] = "updates";

// Throws ConfigError where a model that was read from a folder has too many fragments.
FragmentSpec fragments_for(const RuleRequest& request) {
  const std::int64_t blocks = block_count(request.weights.spec);
  refuse(check_fragments(request.config.local, blocks));
  return fragments_of(request.config.local, blocks);
}

std::vector<std::unique_ptr<GradientExchange>> exchanges_of(const RuleRequest& request,
                                                            const FragmentSpec& fragments) {
  std::vector<std::unique_ptr<GradientExchange>> exchanges;
  for (std::int64_t f = 0; f < fragment_count(fragments); ++f) {
    ParameterNumbers elsewhere;
    for (const Parameter& p : request.weights.parameters)
      if (fragment_of(fragments, completing_block(request.weights, p)) != f)
        elsewhere.insert(p.number);
    exchanges.push_back(std::make_unique<GradientExchange>(
        request, /*is_fused=*/false, /*may_be_on_device=*/false, std::string_view(), elsewhere));
  }
  return exchanges;
}

}  // namespace

LocalRule::LocalRule(const RuleRequest& request)
    : config_(request.config),
      weights_(request.weights),
      world_(request.world),
      fragments_(fragments_for(request)),
      exchanges_(exchanges_of(request, fragments_)),
      exchange_(*exchanges_.front()),
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

void LocalRule::show_outer() {
  if (!own_ || is_shown_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    at::Tensor value = weights_.parameters[p].value.detach();
    own_->part(p).copy_(value);
    value.copy_(start_.part(p));
  }
  refresh_copies(weights_.parameters);
  is_shown_ = true;
}

void LocalRule::take_back_own() {
  if (!is_shown_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
    weights_.parameters[p].value.detach().copy_(own_->part(p));
  refresh_copies(weights_.parameters);
  is_shown_ = false;
}

void LocalRule::save_own(RankTensors& tensors) const {
  if (!is_shown_) return;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
    tensors[kOwn + weights_.parameters[p].name] = own_->part(p);
}

void LocalRule::load_own(const std::vector<RankTensors>& replicas) {
  if (!own_) return;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    at::Tensor own = own_->part(p).copy_(start_.part(p));
    load_moment(replicas, kOwn + weights_.parameters[p].name, own);
  }
  is_shown_ = true;
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

void LocalRule::save_updates(const OptimiserState& state, RankTensors& tensors) {
  tensors[kUpdates] = at::tensor({state.updates});
}

void LocalRule::load_updates(const std::vector<RankTensors>& replicas,
                             OptimiserState& state) const {
  if (static_cast<int>(replicas.size()) != exchange_.members()) return;  // the model's: the first's
  const RankTensors& mine = replicas[static_cast<std::size_t>(world_.dp_member())];
  if (const auto found = mine.find(kUpdates); found != mine.end())
    state.updates = found->second.item<std::int64_t>();
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

}  // namespace laconic
