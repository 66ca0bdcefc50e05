#include "laconic/policy/class_policy.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/residual_state.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

namespace {

class AloneRule final : public UpdateRule {
 public:
  explicit AloneRule(const RuleRequest& request)
      : config_(request.config), weights_(request.weights) {}

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t) override { is_shadow_ = false; }
  void begin_shadow(std::int64_t) override { is_shadow_ = true; }
  void block_done(std::int64_t) override {}
  Measured measure(const StepLoss& loss, int signal) override {
    if (outstanding_ != nullptr && !is_shadow_) add_outstanding();
    const PendingSquares squares(weights_.parameters);  // on a GPU before anybody waits
    return measured_by_all(loss.value(), norm_of(squares.values()), signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(optimiser_spec(config_.optimiser), state, weights_.parameters, lr, scale);
    outstanding_.reset();
  }
  void abandon() override {}

  // What more ranks left outstanding goes into the first step.
  void add_links(LinkRegistry& registry) override {
    registry.add(
        {.traffic = Traffic::dp_gradient,
         .name = std::string(name_of(Traffic::dp_gradient)),
         .tensors = [this] { return outstanding_tensors(); },
         .restore = [this](const std::vector<RankTensors>& saved) { return restore(saved); }});
  }

 private:
  RankTensors outstanding_tensors() const {
    return outstanding_ != nullptr ? tensors_of(outstanding_->save(), std::string(kGradient))
                                   : RankTensors();
  }
  std::string restore(const std::vector<RankTensors>& saved) {
    if (!has_residuals(saved)) return has_kept(saved) ? std::string(kKeptIsDropped) : "";
    if (const Mesh before = mesh_of(saved); !has_same_parts(before, {}))
      return note_of_other_mesh(saved, before, {});
    if (unit_of(config_) != kGradient)
      return "residuals of the checkpoint are no gradients: dropped";
    const GradientPolicy policy = policy_of(config_);
    const std::vector<BlockLayout> layouts = block_layouts(weights_);
    outstanding_ = make_lone_sum(policy, layouts, dtype_of(weights_.precision.sum));
    std::string note = load_sum({.sum = *outstanding_,
                                 .policy = policy,
                                 .layouts = layouts,
                                 .prefix = std::string(kGradient)},
                                saved);
    if (!note.empty()) outstanding_.reset();
    return note;
  }

  void add_outstanding() {
    const FlatBlocks blocks(weights_);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks.take_gradients(weights_, b);
      outstanding_->post(b, blocks.data(b));
    }
    blocks.give_gradients(weights_);
  }

  const RunConfig& config_;
  Weights& weights_;
  std::unique_ptr<GradientSum> outstanding_;  // after a resume from more ranks, until it is paid
  bool is_shadow_ = false;
};

}  // namespace

std::unique_ptr<UpdateRule> make_alone_rule(const RuleRequest& request) {
  return std::make_unique<AloneRule>(request);
}

}  // namespace laconic
