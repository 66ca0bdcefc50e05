// update/local_rule.hpp — replicas that step alone for some steps, and what they agree on then.
//
// It is a replica that steps alone, and that may be a pipeline: its ranks agree on loss and norm in
// every inner step, and stages on the gradients of what they share. Stages that make equal steps
// have equal changes, of which each sends its share.
//
// Changes travel in fragments (schedule/fragment.hpp), of which most methods have one. Where parts
// of the model come at different times, no two ranks ever have equal parameters: the model, which
// is evaluated and saved, is then `start_`, what all ranks had of each part when it came last (the
// outer parameters). Between steps it is shown, and a rank's own parameters are put aside.
#pragma once

#include <optional>

#include "laconic/schedule/fragment.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

class LocalRule : public UpdateRule {
 public:
  explicit LocalRule(const RuleRequest& request);

  std::int64_t samples() const override { return config_.local_batch(); }
  bool agrees_after(std::int64_t step) const override { return step % config_.local.steps == 0; }
  void begin(std::int64_t step) override { step_ = step; }
  void begin_shadow(std::int64_t step) override;
  void block_done(std::int64_t) override {}
  Measured measure(const StepLoss& loss, int signal) override;
  void add_links(LinkRegistry& registry) override {
    for (const auto& exchange : exchanges_) exchange->add_links(registry);
  }

 protected:
  void remember_start();
  // Of every replica's own moment; at another number of them all have the mean. By name of the
  // parameter, so that they find their way to any other pipeline.
  void load_moment(const std::vector<RankTensors>& replicas, const std::string& name,
                   at::Tensor& moment) const;
  // For ranks whose parameters are not the model's, from their construction on.
  void keep_own() { own_.emplace(weights_); }
  void show_outer();
  void take_back_own();
  void save_own(RankTensors& tensors) const;
  // Requires: remember_start(). A rank of a run that kept none has the model.
  void load_own(const std::vector<RankTensors>& replicas);
  std::size_t fragment_at(std::size_t p) const {
    return static_cast<std::size_t>(
        fragment_of(fragments_, completing_block(weights_, weights_.parameters[p])));
  }
  // How many updates this replica has made: one that has left a step out, alone, has made fewer
  // than the others, and corrects its moments by fewer.
  static void save_updates(const OptimiserState& state, RankTensors& tensors);
  void load_updates(const std::vector<RankTensors>& replicas, OptimiserState& state) const;
  // What replicas saved. Throws ConfigError when they were of another grid.
  std::vector<RankTensors> replicas_of(const std::vector<RankTensors>& saved) const;

  const RunConfig& config_;
  Weights& weights_;
  World& world_;
  const FragmentSpec fragments_;
  const std::vector<std::unique_ptr<GradientExchange>> exchanges_;  // of changes, by fragment
  GradientExchange& exchange_;  // the first, of all changes where there is but one
  FlatBlocks start_;            // parameters at the beginning of a fragment's round
  std::int64_t step_ = 0;

 private:
  void reduce_round(double loss, int signal, Measured& here);

  std::optional<FlatBlocks> own_;  // of this rank, while the outer parameters are shown
  bool is_shown_ = false;
  std::int64_t left_out_ = 0;  // inner steps of this replica in this round
  std::int64_t in_a_row_ = 0;  // and the last ones without a good one between
};

}  // namespace laconic
