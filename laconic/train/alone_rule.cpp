#include "laconic/train/residual_state.hpp"
#include "laconic/train/rule.hpp"

namespace laconic {

namespace {

class AloneRule final : public UpdateRule {
 public:
  AloneRule(const RunConfig& config, const Gpt& gpt) : config_(config), gpt_(gpt) {}

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t) override { is_shadow_ = false; }
  void begin_shadow(std::int64_t) override { is_shadow_ = true; }
  void block_done(std::int64_t) override {}
  Measured measure(double loss, int signal) override {
    if (owed_ != nullptr && !is_shadow_) add_owed();
    return measured_by_all(loss, global_norm(gpt_.parameters), signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(adamw_of(config_.optimiser), state, gpt_.parameters, lr, scale);
    owed_.reset();
  }
  void abandon() override {}
  void treat(Traffic, const CodecOverride&) override {}

  RankTensors save(const OptimiserState&) const override {
    return owed_ != nullptr ? tensors_of(owed_->save(), std::string(kGradient)) : RankTensors();
  }
  // What more ranks left outstanding goes into the first step.
  std::string load(const std::vector<RankTensors>& saved, OptimiserState&) override {
    if (!has_residuals(saved)) return "";
    if (const Mesh before = mesh_of(saved); before.pp > 1)
      return note_of_other_pipeline(saved, before.pp, 1);
    if (unit_of(config_) != kGradient)
      return "residuals of the checkpoint are no gradients: dropped";
    const GradientPolicy policy = policy_of(config_);
    const std::vector<BlockLayout> layouts = block_layouts(gpt_);
    owed_ = make_lone_sum(policy, layouts, dtype_of(config_));
    std::string note = load_sum({*owed_, policy, layouts, 1, 0, std::string(kGradient)}, saved);
    if (!note.empty()) owed_.reset();
    return note;
  }

 private:
  void add_owed() {
    const FlatBlocks blocks(gpt_);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks.take_gradients(gpt_, b);
      owed_->post(b, blocks.data(b));
    }
    blocks.give_gradients(gpt_);
  }

  const RunConfig& config_;
  const Gpt& gpt_;
  std::unique_ptr<GradientSum> owed_;  // after a resume from more ranks, until it is paid
  bool is_shadow_ = false;
};

}  // namespace

std::unique_ptr<UpdateRule> make_alone_rule(const RunConfig& config, const Gpt& gpt) {
  return std::make_unique<AloneRule>(config, gpt);
}

}  // namespace laconic
