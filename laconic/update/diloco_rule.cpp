// DiLoCo. The outer step treats the mean change of a round as a gradient and goes along it with
// Nesterov momentum; it is what all ranks begin the next round with.
//
// Streaming DiLoCo: fragments of the model do so at different steps of a round, and while the
// changes of one travel ranks go on. When they come, the outer step is made on what the fragment
// was when all ranks had it last, the outer parameters; a rank's own become a mixture of these and
// of what it has meanwhile. So replicas never have equal parameters, but for the outer ones, which
// are the model: what is evaluated and saved. DiLoCo has one fragment, whose changes come at once,
// and mixes nothing.
//
// Between steps settle() shows the outer parameters and puts a rank's own aside, until the next
// step begins. What is under way has then come, and waits for its step: a checkpoint changes
// nothing.
#include <c10/core/GradMode.h>

#include "laconic/tensor/host.hpp"
#include "laconic/update/local_rule.hpp"

namespace laconic {

namespace {

constexpr char kOuter[] = "outer.";
constexpr char kCame[] = "came.";  // mean changes that the outer step has not taken yet

class DilocoRule final : public LocalRule {
 public:
  explicit DilocoRule(const RuleRequest& request)
      : LocalRule(request),
        mixing_(config_.local.method == LocalMethod::streaming_diloco ? config_.local.mixing : 0),
        momentum_(request.weights),
        lanes_(exchanges_.size()) {
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
      lanes_[fragment_at(p)].places.push_back(p);
    if (lanes_.size() > 1 || fragments_.overlap > 0 || mixing_ > 0) keep_own();
  }

  void begin(std::int64_t step) override {
    LocalRule::begin(step);
    take_back_own();
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(optimiser_spec(config_.optimiser), state, weights_.parameters, lr, scale);
    finish_step();
  }
  void abandon() override { finish_step(); }  // this replica's inner step alone is left out
  void settle(bool is_checkpoint) override;

  RankTensors save(const OptimiserState& state) const override;
  void load(const std::vector<RankTensors>& saved, OptimiserState& state) override;

 private:
  // A fragment on its way.
  struct Lane {
    std::vector<std::size_t> places;  // of its parameters
    bool is_under_way = false;
    bool has_come = false;  // and waits for its step
  };

  void finish_step();
  void send(std::size_t f);
  void come(std::size_t f);
  void take(std::size_t f);
  void load_lanes(const RankTensors& first);

  const double mixing_;
  FlatBlocks momentum_;      // of the outer step
  std::vector<Lane> lanes_;  // by fragment
};

void DilocoRule::finish_step() {
  for (std::size_t f = 0; f < lanes_.size(); ++f) {
    const auto fragment = static_cast<std::int64_t>(f);
    if (leaves_after(fragments_, fragment, step_ + 1)) send(f);
    if (comes_after(fragments_, fragment, step_ + 1)) take(f);
  }
}

void DilocoRule::send(std::size_t f) {
  take(f);  // what a run with other rounds had under way
  const at::NoGradGuard no_grad;
  GradientExchange& exchange = *exchanges_[f];
  for (const std::size_t p : lanes_[f].places)
    exchange.part(p)
        .copy_(start_.part(p))
        .sub_(weights_.parameters[p].value.to(at::kCPU))
        .div_(exchange.contributors(p));
  exchange.begin(step_);
  exchange.post_all();
  lanes_[f].is_under_way = true;
}

// The mean of all replicas' changes is in the buffers afterwards.
void DilocoRule::come(std::size_t f) {
  if (!lanes_[f].is_under_way || lanes_[f].has_come) return;
  exchanges_[f]->wait();
  exchanges_[f]->commit();
  lanes_[f].has_come = true;
}

void DilocoRule::take(std::size_t f) {
  if (!lanes_[f].is_under_way) return;
  come(f);
  lanes_[f].is_under_way = lanes_[f].has_come = false;
  const at::NoGradGuard no_grad;
  const auto [lr, momentum] = laconic::outer_step(config_.local);
  for (const std::size_t p : lanes_[f].places) {
    const at::Tensor& change = exchanges_[f]->part(p);
    momentum_.part(p).mul_(momentum).add_(change);
    change.add_(momentum_.part(p), momentum);
    start_.part(p).sub_(change, lr);
    at::Tensor value = weights_.parameters[p].value.detach();
    if (mixing_ > 0)
      value.mul_(mixing_).add_(start_.part(p).to(value.device()), 1 - mixing_);
    else
      value.copy_(start_.part(p));
  }
  refresh_copies(weights_.parameters);
}

void DilocoRule::settle(bool /*is_checkpoint*/) {
  for (std::size_t f = 0; f < lanes_.size(); ++f) come(f);
  show_outer();
}

// What all replicas have alike is the first one's to save.
RankTensors DilocoRule::save(const OptimiserState& state) const {
  const bool is_first = world_.dp_member() == 0;
  RankTensors tensors;
  save_updates(state, tensors);
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    const std::size_t f = fragment_at(p);
    tensors["moment1." + name] = on_host(state.moment1[p]);
    if (state.moment2[p].defined()) tensors["moment2." + name] = on_host(state.moment2[p]);
    if (is_first) tensors[kOuter + name] = momentum_.part(p);
    if (is_first && lanes_[f].has_come) tensors[kCame + name] = exchanges_[f]->part(p);
  }
  save_own(tensors);
  return tensors;
}

void DilocoRule::load(const std::vector<RankTensors>& saved, OptimiserState& state) {
  remember_start();
  if (saved.empty()) return;
  const std::vector<RankTensors> replicas = replicas_of(saved);
  load_updates(replicas, state);
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    load_moment(replicas, "moment1." + name, state.moment1[p]);
    if (state.moment2[p].defined()) load_moment(replicas, "moment2." + name, state.moment2[p]);
    const RankTensors& first = replicas.front();
    if (const auto found = first.find(kOuter + name); found != first.end())
      momentum_.part(p).copy_(found->second);
  }
  load_own(replicas);
  if (fragments_.overlap > 0) load_lanes(replicas.front());
}

// A fragment of which the checkpoint has all that had come goes on waiting for its step.
void DilocoRule::load_lanes(const RankTensors& first) {
  for (std::size_t f = 0; f < lanes_.size(); ++f) {
    Lane& lane = lanes_[f];
    lane.has_come = std::ranges::all_of(lane.places, [&](std::size_t p) {
      return first.contains(kCame + weights_.parameters[p].name);
    });
    lane.is_under_way = lane.has_come;
    for (std::size_t i = 0; lane.has_come && i < lane.places.size(); ++i)
      exchanges_[f]
          ->part(lane.places[i])
          .copy_(first.at(kCame + weights_.parameters[lane.places[i]].name));
  }
}

}  // namespace

std::unique_ptr<UpdateRule> make_diloco_rule(const RuleRequest& request) {
  return std::make_unique<DilocoRule>(request);
}

}  // namespace laconic
