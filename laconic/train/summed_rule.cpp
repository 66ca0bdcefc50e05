#include <cmath>
#include <string_view>

#include "laconic/train/rule.hpp"

namespace laconic {

Measured measured_by_all(double loss, double norm, int signal) {
  return {.loss = loss,
          .norm = norm,
          .is_skipped = !std::isfinite(loss) || !std::isfinite(norm),
          .signal = signal};
}

std::string common_note(World& world, const std::string& mine) {
  for (const Bytes& bytes : world.gather(as_bytes(std::span(mine.data(), mine.size()))))
    if (!bytes.empty()) return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return "";
}

SummedRule::SummedRule(const RuleRequest& request, bool is_fused)
    : config_(request.config),
      gpt_(request.gpt),
      world_(request.world),
      exchange_(request.config, request.gpt, request.world, request.encoded, is_fused) {}

void SummedRule::block_done(std::int64_t block) {
  exchange_.take(block);
  if (config_.dp_gradient.overlap) exchange_.post(block);
}

// Without a pipeline every rank has the whole gradient in the end, so that the agreement can hide
// behind the sums. With one nobody has, and the squares, which are known only after the sums,
// travel with the rest of the agreement: one exchange either way.
Measured SummedRule::measure(double loss, int signal) {
  if (!config_.dp_gradient.overlap) exchange_.post_all();
  const StepNote note{.loss = loss, .signal = signal};
  if (world_.mesh().pp == 1) {
    const Agreed all = agree(world_, note);
    wait_for_sums();
    return measured_by_all(all.loss, global_norm(gpt_.parameters), all.signal);
  }
  wait_for_sums();
  const bool speaks = world_.dp_member() == 0;  // for all replicas: they have the same sums
  const Agreed all = agree(world_, note, speaks ? squares_of(gpt_) : std::vector<NumberedSquare>());
  return measured_by_all(all.loss, all.norm, all.signal);
}

void SummedRule::wait_for_sums() {
  exchange_.wait();
  exchange_.give_gradients();
}

void SummedRule::apply(OptimiserState& state, double lr, double scale) {
  exchange_.commit();
  laconic::apply(adamw_of(config_.optimiser), state, gpt_.parameters, lr, scale);
}

std::string SummedRule::load(const std::vector<RankTensors>& saved, OptimiserState&) {
  return common_note(world_, exchange_.load(saved));
}

std::unique_ptr<UpdateRule> make_summed_rule(const RuleRequest& request) {
  return std::make_unique<SummedRule>(request, request.config.embedding_tied.fused);
}

}  // namespace laconic
