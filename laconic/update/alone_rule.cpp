#include <deque>

#include "laconic/base/error.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/flat_blocks.hpp"
#include "laconic/update/residual_state.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

namespace {

class AloneRule final : public UpdateRule {
 public:
  explicit AloneRule(const RuleRequest& request)
      : config_(request.config),
        weights_(request.weights),
        spec_(optimiser_spec(request.config.optimiser)),
        may_leave_(can_leave(request)) {
    const std::vector<std::size_t> tables = row_tables(config_, weights_.spec);
    tables_.insert(tables.begin(), tables.end());
  }

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
    laconic::apply(spec_, state, weights_.parameters, lr, scale);
    outstanding_.reset();
  }
  void abandon() override {}

  // What is outstanding is paid by a step that somebody waits for.
  bool leaves_steps() const override { return may_leave_ && outstanding_ == nullptr; }
  void leave(const StepLoss& loss, int signal, OptimiserState& state, double lr) override {
    const at::Tensor verdict =
        judge(loss, weights_.parameters, config_.train.clip, left_.empty() ? at::Tensor() : last_);
    left_.push_back({loss, signal, Arrival(verdict)});
    last_ = verdict;
    apply_judged(spec_, state, weights_.parameters, lr, verdict);
  }
  // Behind a step that is not good none changes anything, until it has been heard of.
  Measured hear() override {
    LACONIC_ASSERT(!left_.empty(), "no step was left");
    const Left left = std::move(left_.front());
    left_.pop_front();
    const at::Tensor& verdict = left.verdict.wait();
    const std::span<const double> numbers(verdict.data_ptr<double>(),
                                          static_cast<std::size_t>(verdict.numel()));
    const auto own = static_cast<std::size_t>(Judgement::count);
    const double norm = numbers[static_cast<std::size_t>(Judgement::norm)];
    Measured measured = measured_by_all(
        numbers.size() > own ? left.loss.value_of(numbers.subspan(own)) : left.loss.known(), norm,
        left.signal);
    if (numbers[static_cast<std::size_t>(Judgement::is_good)] == 0) {
      measured.is_skipped = measured.is_undone = true;
      left_.clear();
    }
    return measured;
  }

  // What more ranks left outstanding goes into the first step.
  void add_links(LinkRegistry& registry) override {
    registry.add(
        {.traffic = Traffic::dp_gradient,
         .name = std::string(name_of(Traffic::dp_gradient)),
         .tensors = [this] { return outstanding_tensors(); },
         .restore = [this](const std::vector<RankTensors>& saved) { return restore(saved); }});
  }

 private:
  struct Left {
    StepLoss loss;
    int signal;
    Arrival verdict;
  };

  // A shadow is compared before the update.
  static bool can_leave(const RuleRequest& request) {
    const RunConfig& config = request.config;
    const std::vector<Parameter>& parameters = request.weights.parameters;
    return (parameters.front().value.is_cuda() || request.leaves_on_host) &&
           config.steering.shadow == 0 && row_tables(config, request.weights.spec).empty() &&
           can_be_judged(optimiser_spec(config.optimiser), parameters);
  }

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
    const std::vector<BlockLayout> layouts = block_layouts(weights_, tables_);
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
    const FlatBlocks blocks(weights_, tables_);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks.take_gradients(weights_, b);
      outstanding_->post(b, blocks.data(b));
    }
    blocks.give_gradients(weights_);
  }

  const RunConfig& config_;
  Weights& weights_;
  const OptimiserSpec spec_;
  const bool may_leave_;
  ParameterNumbers tables_;                   // whose rows travel: nobody's business here
  std::deque<Left> left_;                     // and not heard of
  at::Tensor last_;                           // the verdict on the last of them, where it was made
  std::unique_ptr<GradientSum> outstanding_;  // after a resume from more ranks, until it is paid
  bool is_shadow_ = false;
};

}  // namespace

std::unique_ptr<UpdateRule> make_alone_rule(const RuleRequest& request) {
  return std::make_unique<AloneRule>(request);
}

}  // namespace laconic
