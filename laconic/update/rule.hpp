// update/rule.hpp — the rules behind make_update_rule(), and what they have in common.
//
// Each is in a file of its own: alone_rule, summed_rule, block_rule, compressed_adam_rule,
// local_rule, diloco_rule, linear_rule, sparse_rule, table_rule.
#pragma once

#include <memory>

#include "laconic/update/gradient_exchange.hpp"
#include "laconic/update/step_reduction.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {

std::unique_ptr<UpdateRule> make_alone_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_summed_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_block_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_compressed_adam_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_diloco_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_linear_rule(const RuleRequest& request);
std::unique_ptr<UpdateRule> make_sparse_rule(const RuleRequest& request);
// `dense` is for all parameters that are not in tables of rows.
std::unique_ptr<UpdateRule> make_table_rule(const RuleRequest& request,
                                            std::unique_ptr<UpdateRule> dense);

// What a step amounts to, when all ranks have these numbers.
Measured measured_by_all(double loss, double norm, int signal);

// Every step: gradients of all blocks are summed, and the optimiser follows them; or those of the
// step before (lateness.hpp), of which then the norm is.
class SummedRule : public UpdateRule {
 public:
  SummedRule(const RuleRequest& request, bool is_fused, bool may_be_on_device = false);

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t step) override { exchange_.begin(step); }
  void begin_shadow(std::int64_t step) override { exchange_.begin_shadow(step); }
  void block_done(std::int64_t block) override;
  Measured measure(const StepLoss& loss, int signal) override;
  void apply(OptimiserState& state, double lr, double scale) override;
  void abandon() override { exchange_.abandon(); }
  void add_links(LinkRegistry& registry) override { exchange_.add_links(registry); }

 protected:
  void wait_for_sums();
  Measured measured(double loss, double norm, int signal);

  const RunConfig& config_;
  Weights& weights_;
  World& world_;
  GradientExchange exchange_;
};

}  // namespace laconic
