// update/local_rule.hpp — replicas that step alone for some steps, and what they agree on then.
//
// It is a replica that steps alone, and that may be a pipeline: its ranks agree on loss and norm in
// every inner step, and stages on the gradients of what they share. Stages that make equal steps
// have equal changes, of which each sends its share.
//
// Changes travel in fragments (schedule/fragment.hpp), of which all methods but streaming_diloco
// have one.
#pragma once

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
  FlatBlocks start_;            // parameters at the beginning of the round
  std::int64_t step_ = 0;

 private:
  void reduce_round(double loss, int signal, Measured& here);

  std::int64_t left_out_ = 0;  // inner steps of this replica in this round
  std::int64_t in_a_row_ = 0;  // and the last ones without a good one between
};

}  // namespace laconic
