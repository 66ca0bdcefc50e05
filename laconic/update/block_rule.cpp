// Every block is updated by itself, when its sums are here: forward of the next step waits for the
// blocks that it comes to, and for no other (EmbRace's horizontal scheduling).
//
// Sums of the step that was left and forward of the next one overlap. Backward of the next one
// cannot begin before forward has gone through all blocks, and so waited for all sums: buffers and
// residuals are never wanted by two steps at once, and there is one of each.
#include <algorithm>
#include <deque>

#include "laconic/base/error.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

namespace {

class BlockRule final : public SummedRule {
 public:
  explicit BlockRule(const RuleRequest& request)
      : SummedRule(request, request.config.embedding_tied.fused),
        spec_(optimiser_spec(request.config.optimiser)),
        owed_(weights_.spec.blocks.size(), false) {
    for (const std::vector<Leaf>& leaves : weights_.leaves) {
      std::vector<std::int64_t>& from = completed_by_.emplace_back();
      for (const Leaf& leaf : leaves) {
        const std::int64_t block = completing_block(weights_, weights_.parameters[leaf.place]);
        if (std::ranges::find(from, block) == from.end()) from.push_back(block);
      }
    }
  }

  // Sums of the step before may still be under way: those of this one begin with its gradients.
  void begin(std::int64_t step) override {
    step_ = step;
    is_begun_ = false;
  }
  void begin_shadow(std::int64_t) override {
    LACONIC_ASSERT(false, "blocks that are updated one by one have no shadow");
  }

  void block_done(std::int64_t block) override {
    if (!is_begun_) {
      update_all();
      exchange_.begin(step_);
      is_begun_ = true;
    }
    SummedRule::block_done(block);
  }

  bool leaves_steps() const override { return true; }

  void leave(const StepLoss& loss, int signal, OptimiserState& state, double lr) override {
    if (!config_.dp_gradient.overlap) exchange_.post_all();
    left_ = {.share = {.loss = loss.value(), .signal = signal},
             .updates = state.updates++,
             .lr = lr,
             .squares = std::vector<double>(weights_.parameters.size(), 0.0)};
    state_ = &state;
    for (std::size_t b = 0; b < owed_.size(); ++b)
      owed_[b] = !exchange_.completed_by(static_cast<std::int64_t>(b)).empty();
    end_if_updated();
  }

  bool owes_update(std::int64_t block) const override {
    return std::ranges::any_of(of(block), [this](std::int64_t b) { return is_owed(b); });
  }

  // Whoever would wait updates other blocks meanwhile: theirs is work that must be done before
  // forward comes to them, and cannot be done sooner without holding up backward.
  void wait_for(std::int64_t block) override {
    for (const std::int64_t b : of(block)) {
      if (is_owed(b) && !exchange_.has_arrived(b)) update_arrived();
      if (is_owed(b)) update(b);
    }
  }

  void settle(bool /*is_checkpoint*/) override { update_all(); }

  Measured hear() override {
    LACONIC_ASSERT(!norms_.empty(), "no step was left and updated");
    const ReducedStep all = take_step(world_);
    const double norm = is_whole_here() ? norms_.front() : all.norm;
    norms_.pop_front();
    return measured_by_all(all.loss, norm, all.signal);
  }

 private:
  // What is remembered of the step whose sums are under way: updates are as they would have been
  // then.
  struct Left {
    StepShare share = {};
    std::int64_t updates = 0;  // before it
    double lr = 0;
    std::vector<double> squares = {};  // by place: of gradients
  };

  const std::vector<std::int64_t>& of(std::int64_t block) const {
    return completed_by_[static_cast<std::size_t>(block)];
  }
  bool is_owed(std::int64_t block) const { return owed_[static_cast<std::size_t>(block)]; }
  bool is_whole_here() const { return world_.replica().size() == 1; }

  void update_arrived() {
    for (std::int64_t b = 0; b < static_cast<std::int64_t>(owed_.size()); ++b)
      if (is_owed(b) && exchange_.has_arrived(b)) update(b);
  }
  void update_all() {
    for (std::int64_t b = 0; b < static_cast<std::int64_t>(owed_.size()); ++b)
      if (is_owed(b)) update(b);
  }

  // Parameters and moments of the block, which share their memory with the whole.
  void update(std::int64_t block) {
    exchange_.wait(block);
    const std::vector<std::size_t>& places = exchange_.completed_by(block);
    std::vector<Parameter> parameters;
    OptimiserState state{.updates = left_.updates, .moment1 = {}, .moment2 = {}};
    for (const std::size_t p : places) {
      parameters.push_back(weights_.parameters[p]);
      parameters.back().gradient = exchange_.part(p);
      state.moment1.push_back(state_->moment1[p]);
      state.moment2.push_back(state_->moment2[p]);
    }
    const std::vector<double> squares = squared_norms(parameters);
    for (std::size_t i = 0; i < places.size(); ++i) left_.squares[places[i]] = squares[i];
    laconic::apply(spec_, state, parameters, left_.lr, 1);
    owed_[static_cast<std::size_t>(block)] = false;
    end_if_updated();
  }

  // The others hear of the step when its last block is updated here: a norm is part of it.
  void end_if_updated() {
    if (std::ranges::find(owed_, true) != owed_.end()) return;
    exchange_.commit();
    norms_.push_back(norm_of(left_.squares));
    post_step(world_, left_.share, is_whole_here() ? std::vector<NumberedSquare>() : squares());
  }

  // One replica speaks for all: they have the same sums.
  std::vector<NumberedSquare> squares() const {
    std::vector<NumberedSquare> numbered;
    if (world_.dp_member() != 0) return numbered;
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
      if (speaks_for(weights_, weights_.parameters[p]))
        numbered.push_back({weights_.parameters[p].number, left_.squares[p]});
    return numbered;
  }

  const OptimiserSpec spec_;
  std::vector<std::vector<std::int64_t>> completed_by_;  // by block: who completes its parameters
  std::int64_t step_ = 0;
  bool is_begun_ = false;
  Left left_;
  OptimiserState* state_ = nullptr;
  std::vector<bool> owed_;    // by block: what it completes is not updated yet
  std::deque<double> norms_;  // of steps that nobody has heard of
};

}  // namespace

std::unique_ptr<UpdateRule> make_block_rule(const RuleRequest& request) {
  return std::make_unique<BlockRule>(request);
}

}  // namespace laconic
