// Linear local updates (0/1 Adam's core): all replicas divide by one second moment, which is held
// while they step alone. An update is then linear in the gradients, and with every replica's own
// first moment kept, the mean of the replicas goes where replicas that sum every gradient go, up to
// gradients that are taken at slightly different parameters.
//
// What travels at the end of a round is u, the sum of lr m over its steps, decay included. Nobody
// adds it up: a replica that began at `start` and is at `value` has made it (start - value) *
// denominator. All replicas take start - mean(u) / denominator. While u travels they may go on;
// what they do meanwhile is kept when it arrives.
//
// Parts of the model may do so at different steps (`local.spread`). A renewal of the second moment
// then falls into the rounds of some: their (start - value) * denominator is no sum of lr m any
// more, but its mean over the replicas is still that of start - value, since nothing is under way
// when denominators change.
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/local_round.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/local_rule.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

namespace {

class LinearRule final : public LocalRule {
 public:
  explicit LinearRule(const RuleRequest& request)
      : LocalRule(request),
        spec_(optimiser_spec(config_.optimiser)),
        gradients_(request, request.config.embedding_tied.fused, false, kGradient),
        lanes_(exchanges_.size()),
        warm_config_(warm_up_of(request.config)) {
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
      lanes_[fragment_at(p)].places.push_back(p);
    if (lanes_.size() > 1) keep_own();
    if (config_.local.overlap > 1) sent_.emplace(weights_);
    if (!warm_config_) return;
    const RuleRequest warm{*warm_config_, request.weights, request.world, request.shared,
                           request.encoded};
    warm_gradients_.emplace(warm, warm.config.embedding_tied.fused, false, kGradient);
  }

  bool agrees_after(std::int64_t step) const override {
    return step <= config_.local.warmup || LocalRule::agrees_after(step);
  }
  void begin(std::int64_t step) override {
    LocalRule::begin(step);
    take_back_own();
    now_ = local_step(config_.local, step);
    if (step == config_.local.warmup) remember_start();
    if (step >= config_.local.warmup) warm_gradients_.reset();
    if (!now_.is_together) return;
    gradients().begin(step);
    // Or they would meet changes.
    posts_early_ = config_.dp_gradient.overlap &&
                   std::ranges::none_of(lanes_, [](const Lane& l) { return l.is_under_way; });
  }
  void block_done(std::int64_t block) override {
    if (!now_.is_together) return;
    gradients().take(block);
    if (posts_early_) gradients().post(block);
  }
  Measured measure(const StepLoss& loss, int signal) override;
  void apply(OptimiserState& state, double lr, double scale) override;
  void abandon() override {
    if (now_.is_together) gradients().abandon();
    send_changes();
  }
  void settle(bool is_checkpoint) override;
  void add_links(LinkRegistry& registry) override {
    LocalRule::add_links(registry);
    gradients_.add_links(registry);
  }

  RankTensors save(const OptimiserState& state) const override;
  void load(const std::vector<RankTensors>& saved, OptimiserState& state) override;

 private:
  // A fragment and what of it is on its way.
  struct Lane {
    std::vector<std::size_t> places;  // of its parameters
    bool is_under_way = false;
    // Since changes left: whether this replica has moved, and what decay has left of matrices.
    bool has_moved = false;
    double decay = 1;
  };

  GradientExchange& gradients() { return warm_gradients_ ? *warm_gradients_ : gradients_; }
  Measured measure_together(const StepLoss& loss, int signal);
  FragmentStep now_of(std::size_t f) const {
    return fragment_step(config_.local, fragments_, static_cast<std::int64_t>(f), step_);
  }
  void send_changes();
  void send(std::size_t f);
  void take(std::size_t f);
  at::Tensor denominator(std::size_t p) const {
    return held_denominator(spec_, *state_, p, renewals_).to(at::kCPU);
  }

  const OptimiserSpec spec_;
  GradientExchange gradients_;  // of steps that are taken together
  std::vector<Lane> lanes_;     // by fragment
  // The same during warm-up, if it has a codec of its own: sums that remember nothing, so that no
  // checkpoint knows of them.
  const std::optional<RunConfig> warm_config_;
  std::optional<GradientExchange> warm_gradients_;
  std::optional<FlatBlocks> sent_;  // values when changes left, if steps are made before they come
  LocalStep now_;
  const OptimiserState* state_ = nullptr;  // the run's, from load() on
  std::int64_t renewals_ = 0;              // of the second moment
  bool posts_early_ = false;
};

Measured LinearRule::measure(const StepLoss& loss, int signal) {
  for (std::size_t f = 0; f < lanes_.size(); ++f)
    if (now_of(f).comes_before_update) take(f);
  if (now_.is_together) return measure_together(loss, signal);
  Measured here = LocalRule::measure(loss, signal);
  // The norm of one replica's gradient, which is mostly noise, is so many times that of the mean.
  here.clip_times = std::sqrt(static_cast<double>(exchange_.members()));
  return here;
}

// Gradients are means over the samples of a replica.
Measured LinearRule::measure_together(const StepLoss& loss, int signal) {
  GradientExchange& sums = gradients();
  if (!posts_early_) sums.post_all();
  sums.wait();
  sums.give_gradients();
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights_.parameters) p.gradient.div_(sums.members());
  const bool speaks = world_.dp_member() == 0;  // for all replicas: they have the same sums
  const std::vector<NumberedSquare> squares =
      speaks ? squares_of(weights_) : std::vector<NumberedSquare>();
  const ReducedStep all = reduce_step(world_, {.loss = loss.value(), .signal = signal}, squares);
  return measured_by_all(all.loss / sums.members(), all.norm, all.signal);
}

void LinearRule::apply(OptimiserState& state, double lr, double scale) {
  if (now_.is_together) {
    gradients().commit();
    ++renewals_;
  }
  apply_held(spec_, state, weights_.parameters, lr, scale,
             {.renewals = renewals_, .renews = now_.is_together});
  for (Lane& lane : lanes_) {
    lane.decay *= 1 - lr * spec_.weight_decay;
    lane.has_moved = true;
  }
  send_changes();
}

void LinearRule::send_changes() {
  for (std::size_t f = 0; f < lanes_.size(); ++f) {
    if (!now_of(f).leaves_after_update) continue;
    send(f);
    if (config_.local.overlap == 0) take(f);
  }
}

void LinearRule::send(std::size_t f) {
  const at::NoGradGuard no_grad;
  GradientExchange& exchange = *exchanges_[f];
  for (const std::size_t p : lanes_[f].places) {
    const at::Tensor value = weights_.parameters[p].value.to(at::kCPU);
    exchange.part(p)
        .copy_(start_.part(p))
        .sub_(value)
        .mul_(denominator(p))
        .div_(exchange.contributors(p));
    if (sent_) sent_->part(p).copy_(value);
  }
  lanes_[f].is_under_way = true;
  lanes_[f].has_moved = false;
  lanes_[f].decay = 1;
  exchange.begin(step_);
  exchange.post_all();
}

void LinearRule::take(std::size_t f) {
  Lane& lane = lanes_[f];
  if (!lane.is_under_way) return;
  const at::NoGradGuard no_grad;
  GradientExchange& exchange = *exchanges_[f];
  exchange.wait();
  exchange.commit();
  lane.is_under_way = false;
  for (const std::size_t p : lane.places) {
    const at::Tensor& start = start_.part(p);
    at::Tensor value = weights_.parameters[p].value.detach();
    start.sub_(exchange.part(p).div_(denominator(p)));
    if (lane.has_moved)
      value.add_(
          start.sub(sent_->part(p)).mul_(value.dim() >= 2 ? lane.decay : 1).to(value.device()));
    else
      value.copy_(start);
  }
  refresh_copies(weights_.parameters);
}

// What is under way is waited for and taken, early. Then replicas are equal, but where fragments
// are in different steps of their rounds; what is shown for the model is then what they had alike
// last.
void LinearRule::settle(bool /*is_checkpoint*/) {
  for (std::size_t f = 0; f < lanes_.size(); ++f) take(f);
  if (step_ >= config_.local.warmup) show_outer();
}

// The second moment is the same everywhere, and with the model.
RankTensors LinearRule::save(const OptimiserState& state) const {
  RankTensors tensors;
  save_updates(state, tensors);
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
    tensors["moment1." + weights_.parameters[p].name] = on_host(state.moment1[p]);
  tensors[std::string(kRenewals)] = at::tensor({renewals_});
  save_own(tensors);
  return tensors;
}

void LinearRule::load(const std::vector<RankTensors>& saved, OptimiserState& state) {
  state_ = &state;
  remember_start();
  renewals_ = state.updates;  // of a run that renewed it in every step
  if (saved.empty()) return;
  const std::vector<RankTensors> replicas = replicas_of(saved);
  load_updates(replicas, state);
  if (const auto found = replicas.front().find(std::string(kRenewals));
      found != replicas.front().end())
    renewals_ = found->second.item<std::int64_t>();
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
    load_moment(replicas, "moment1." + weights_.parameters[p].name, state.moment1[p]);
  load_own(replicas);
}

}  // namespace

std::unique_ptr<UpdateRule> make_linear_rule(const RuleRequest& request) {
  return std::make_unique<LinearRule>(request);
}

}  // namespace laconic
