// train/rule.hpp — the rules behind make_update_rule(), and what they have in common.
//
// Each is in a file of its own: alone_rule, summed_rule, compressed_adam_rule,
// local_rule.
#pragma once

#include <memory>

#include "laconic/train/agreement.hpp"
#include "laconic/train/gradient_exchange.hpp"
#include "laconic/train/update_rule.hpp"

namespace laconic {

struct RuleRequest {
  const RunConfig& config;
  const Gpt& gpt;
  World& world;
  int encoded = 0;  // so many first ranks of a pipeline encode
};

std::unique_ptr<UpdateRule> make_alone_rule(const RunConfig& config, const Gpt& gpt);
std::unique_ptr<UpdateRule> make_summed_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_compressed_adam_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_local_rule(const RuleRequest& request);

// What a step amounts to, when all ranks have these numbers.
Measured measured_by_all(double loss, double norm, int signal);

// The first that any rank has to say. Collective.
std::string common_note(World& world, const std::string& mine);

// Every step: gradients of all blocks are summed, and AdamW follows them.
class SummedRule : public UpdateRule {
 public:
  SummedRule(const RuleRequest& request, bool is_fused);

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t step) override { exchange_.begin(step); }
  void begin_shadow(std::int64_t step) override { exchange_.begin_shadow(step); }
  void block_done(std::int64_t block) override;
  Measured measure(double loss, int signal) override;
  void apply(OptimiserState& state, double lr, double scale) override;
  void abandon() override { exchange_.abandon(); }
  void measure_fidelity(bool looks) override { exchange_.measure_fidelity(looks); }
  std::map<Traffic, Fidelity> fidelity() const override { return exchange_.fidelity(); }
  void treat(Traffic traffic, const CodecOverride& treatment) override {
    exchange_.treat(traffic, treatment);
  }
  RankTensors save(const OptimiserState&) const override { return exchange_.save(); }
  std::string load(const std::vector<RankTensors>& saved, OptimiserState&) override;

 protected:
  void wait_for_sums();

  const RunConfig& config_;
  const Gpt& gpt_;
  World& world_;
  GradientExchange exchange_;
};

}  // namespace laconic
