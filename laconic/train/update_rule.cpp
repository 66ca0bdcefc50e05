#include "laconic/train/update_rule.hpp"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/flat_blocks.hpp"

namespace laconic {

namespace {

Dtype dtype_of(const RunConfig& config) {
  return config.run.dtype == "float64" ? Dtype::f64 : Dtype::f32;
}

// What "auto" means: messages that may be added on the way go round in a ring, where each link
// carries one stream, which fills it better than all at once to all (bench/results).
std::string algorithm_of(const DpGradientSection& gradient) {
  const bool is_plain = gradient.method == "codec" && gradient.codec == "raw" &&
                        (gradient.down.empty() || gradient.down == "raw");
  return gradient.algorithm == "auto" ? (is_plain ? "ring" : "direct") : gradient.algorithm;
}

// Residuals are in units of what travels; the prefix of their names says which.
constexpr std::string_view kGradient = "gradient.", kMoment = "moment.", kChange = "change.";

std::string_view unit_of(const RunConfig& config) {
  if (config.local.steps > 0) return kChange;
  return config.dp_gradient.method == "compressed_adam" ? kMoment : kGradient;
}

RankTensors tensors_of(const NamedFloats& values, std::string_view unit) {
  RankTensors tensors;
  for (const auto& [name, floats] : values)
    tensors[std::string(unit) + name] =
        tensor_from_bytes(as_bytes(std::span<const float>(floats)), Dtype::f32,
                          {static_cast<std::int64_t>(floats.size())});
  return tensors;
}

NamedFloats floats_of(const RankTensors& tensors, std::string_view unit) {
  NamedFloats values;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(unit))
      values[name.substr(unit.size())] = {tensor.data_ptr<float>(),
                                          tensor.data_ptr<float>() + tensor.numel()};
  return values;
}

bool has_residuals(const RankTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& item) {
    for (const std::string_view unit : {kGradient, kMoment, kChange})
      if (item.first.starts_with(unit)) return true;
    return false;
  });
}

// Gives `sum` this member's part of what was saved. What another policy left is of no use to this
// one: then it begins with nothing, and the note says so.
std::string load_sum(GradientSum& sum, const std::vector<RankTensors>& saved, int members,
                     int member, const RunConfig& config, const std::vector<BlockLayout>& layouts) {
  std::vector<NamedFloats> states;
  for (const RankTensors& tensors : saved) states.push_back(floats_of(tensors, unit_of(config)));
  const bool is_empty = std::all_of(states.begin(), states.end(),
                                    [](const NamedFloats& state) { return state.empty(); });
  if (is_empty)
    return !saved.empty() && has_residuals(saved.front())
               ? "residuals of the checkpoint belong to another dp.gradient policy: dropped"
               : "";
  try {
    sum.load(
        reshard(states, members, policy_of(config), layouts)[static_cast<std::size_t>(member)]);
    return "";
  } catch (const ConfigError& error) {
    return fmt::format("residuals of the checkpoint do not fit dp.gradient: dropped ({})",
                       error.problems().front().what);
  }
}

// What ranks tell each other about a step.
struct StepNote {
  double loss = 0;
  double square = 0;  // of the norm of this rank's own gradient
  std::int64_t skipped = 0;
  std::int64_t in_a_row = 0;
  std::int64_t signal = 0;
};

struct Agreed {
  double loss = 0;  // summed in rank order
  double square = 0;
  std::int64_t skipped = 0;
  std::int64_t in_a_row = std::numeric_limits<std::int64_t>::max();  // least of all ranks
  int signal = 0;
};

Agreed agree(World& world, const StepNote& mine) {
  Agreed all;
  for (const StepNote& note : world.gather_values(mine)) {
    all.loss += note.loss;
    all.square += note.square;
    all.skipped += note.skipped;
    all.in_a_row = std::min(all.in_a_row, note.in_a_row);
    all.signal = std::max(all.signal, static_cast<int>(note.signal));
  }
  return all;
}

Measured common(double loss, double norm, int signal) {
  return {.loss = loss,
          .norm = norm,
          .is_skipped = !std::isfinite(loss) || !std::isfinite(norm),
          .signal = signal};
}

class Alone final : public UpdateRule {
 public:
  Alone(const RunConfig& config, const Gpt& gpt) : config_(config), gpt_(gpt) {}

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t) override {}
  void block_done(std::int64_t) override {}
  Measured measure(double loss, int signal) override {
    if (owed_ != nullptr) add_owed();
    return common(loss, global_norm(gpt_.parameters), signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(adamw_of(config_.optimiser), state, gpt_.parameters, lr, scale);
    owed_.reset();
  }
  void abandon() override {}

  RankTensors save(const OptimiserState&) const override {
    return owed_ != nullptr ? tensors_of(owed_->save(), kGradient) : RankTensors();
  }
  // What more ranks left outstanding goes into the first step.
  std::string load(const std::vector<RankTensors>& saved, OptimiserState&) override {
    if (saved.empty() || !has_residuals(saved.front())) return "";
    if (unit_of(config_) != kGradient)
      return "residuals of the checkpoint are no gradients: dropped";
    const std::vector<BlockLayout> layouts = block_layouts(gpt_);
    owed_ = make_lone_sum(policy_of(config_), layouts, dtype_of(config_));
    std::string note = load_sum(*owed_, saved, 1, 0, config_, layouts);
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
};

// What the rules with a sum over the dp group have in common.
class WithSum : public UpdateRule {
 public:
  WithSum(const RunConfig& config, const Gpt& gpt, World& world)
      : config_(config),
        gpt_(gpt),
        world_(world),
        blocks_(gpt),
        layouts_(block_layouts(gpt)),
        sum_(make_gradient_sum(world.courier(), world.dp_group(), policy_of(config),
                               Traffic::dp_gradient, layouts_, dtype_of(config))) {}

  RankTensors save(const OptimiserState&) const override {
    return tensors_of(sum_->save(), unit_of(config_));
  }
  std::string load(const std::vector<RankTensors>& saved, OptimiserState&) override {
    return load_sum(*sum_, saved, members(), world_.dp_member(), config_, layouts_);
  }

 protected:
  int members() const { return static_cast<int>(world_.dp_group().size()); }
  AdamW adamw() const { return adamw_of(config_.optimiser); }

  // Sends what the buffers hold and waits for the sums.
  void sum_all() {
    for (std::size_t b = blocks_.size(); b-- > 0;) sum_->post(b, blocks_.data(b));
    sum_->wait();
  }

  const RunConfig& config_;
  const Gpt& gpt_;
  World& world_;
  FlatBlocks blocks_;
  std::vector<BlockLayout> layouts_;
  std::unique_ptr<GradientSum> sum_;
};

class Summed : public WithSum {
 public:
  using WithSum::WithSum;

  std::int64_t samples() const override { return config_.train.batch; }
  void begin(std::int64_t step) override { sum_->begin(static_cast<std::uint64_t>(step)); }
  void block_done(std::int64_t block) override {
    const auto b = static_cast<std::size_t>(block);
    blocks_.take_gradients(gpt_, b);
    if (config_.dp_gradient.overlap) sum_->post(b, blocks_.data(b));
  }
  Measured measure(double loss, int signal) override {
    if (!config_.dp_gradient.overlap)
      for (std::size_t b = blocks_.size(); b-- > 0;) sum_->post(b, blocks_.data(b));
    const Agreed all = agree(world_, {.loss = loss, .signal = signal});
    sum_->wait();
    blocks_.give_gradients(gpt_);
    return common(all.loss, global_norm(gpt_.parameters), all.signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    sum_->commit();
    laconic::apply(adamw(), state, gpt_.parameters, lr, scale);
  }
  void abandon() override { sum_->abandon(); }
};

// Clipping needs the norm before the moment can be formed, so after warm-up nothing leaves during
// backward. The norm is then the root mean square of the ranks' own norms: that of the mean
// gradient, which is smaller, nobody knows.
class CompressedAdam final : public Summed {
 public:
  using Summed::Summed;

  void begin(std::int64_t step) override {
    is_warm_ = step >= config_.dp_gradient.warmup;
    Summed::begin(step);
  }
  void block_done(std::int64_t block) override {
    if (!is_warm_) Summed::block_done(block);
  }
  Measured measure(double loss, int signal) override {
    if (!is_warm_) return Summed::measure(loss, signal);
    const double norm = members() * global_norm(gpt_.parameters);
    const Agreed all = agree(world_, {.loss = loss, .square = norm * norm, .signal = signal});
    return common(all.loss, std::sqrt(all.square / members()), all.signal);
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    if (!is_warm_) return Summed::apply(state, lr, scale);
    const at::NoGradGuard no_grad;
    const double beta = config_.optimiser.beta1;
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p) {  // this rank's share of the moment
      blocks_.part(p).copy_(state.moment1[p]).mul_(beta / members());
      const at::Tensor& gradient = gpt_.parameters[p].value.grad();
      if (gradient.defined()) blocks_.part(p).add_(gradient.to(at::kCPU), (1 - beta) * scale);
    }
    sum_all();
    sum_->commit();
    blocks_.give_gradients(gpt_);
    apply_moment(adamw(), state, gpt_.parameters, lr);
  }

 private:
  bool is_warm_ = false;
};

// Rounds of `local.steps` inner steps. The outer step treats the mean change of a round as a
// gradient and goes along it with Nesterov momentum; it is what all ranks begin the next round
// with.
class Local final : public WithSum {
 public:
  Local(const RunConfig& config, const Gpt& gpt, World& world)
      : WithSum(config, gpt, world), start_(gpt), momentum_(gpt) {
    remember_start();
  }

  std::int64_t samples() const override { return config_.local_batch(); }
  bool agrees_after(std::int64_t step) const override { return step % config_.local.steps == 0; }
  void begin(std::int64_t step) override { step_ = step; }
  void block_done(std::int64_t) override {}
  Measured measure(double loss, int signal) override {
    Measured here = common(loss, global_norm(gpt_.parameters), 0);
    here.is_common = false;
    left_out_ += here.is_skipped ? 1 : 0;
    in_a_row_ = here.is_skipped ? in_a_row_ + 1 : 0;
    if (!agrees_after(step_ + 1)) return here;
    const Agreed all = agree(world_, {.loss = loss,
                                      .skipped = std::exchange(left_out_, 0),
                                      .in_a_row = in_a_row_,
                                      .signal = signal});
    here.loss = all.loss / members();
    here.signal = all.signal;
    here.left_out = all.skipped;
    here.in_a_row = all.in_a_row;
    return here;
  }
  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(adamw(), state, gpt_.parameters, lr, scale);
    finish_step();
  }
  void abandon() override { finish_step(); }  // this rank's inner step alone is left out

  RankTensors save(const OptimiserState& state) const override {
    RankTensors tensors = WithSum::save(state);
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p) {
      const std::string& name = gpt_.parameters[p].name;
      tensors["moment1." + name] = on_host(state.moment1[p]);
      tensors["moment2." + name] = on_host(state.moment2[p]);
      if (world_.dp_member() == 0) tensors["outer." + name] = momentum_.part(p);
    }
    return tensors;
  }
  std::string load(const std::vector<RankTensors>& saved, OptimiserState& state) override {
    remember_start();
    if (saved.empty()) return "";
    const std::string note = WithSum::load(saved, state);
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p) {
      const std::string& name = gpt_.parameters[p].name;
      load_moment(saved, "moment1." + name, state.moment1[p]);
      load_moment(saved, "moment2." + name, state.moment2[p]);
      if (const auto found = saved.front().find("outer." + name); found != saved.front().end())
        momentum_.part(p).copy_(found->second);
    }
    return note;
  }

 private:
  void remember_start() {
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p)
      start_.part(p).copy_(gpt_.parameters[p].value);
  }

  void finish_step() {
    if (agrees_after(step_ + 1)) outer_step();
  }

  void outer_step() {
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p)
      blocks_.part(p)
          .copy_(start_.part(p))
          .sub_(gpt_.parameters[p].value.to(at::kCPU))
          .div_(members());
    sum_->begin(static_cast<std::uint64_t>(step_));
    sum_all();
    sum_->commit();
    const double momentum = config_.local.outer_momentum;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      momentum_.buffer(b).mul_(momentum).add_(blocks_.buffer(b));
      blocks_.buffer(b).add_(momentum_.buffer(b), momentum);
      start_.buffer(b).sub_(blocks_.buffer(b), config_.local.outer_lr);
    }
    for (std::size_t p = 0; p < gpt_.parameters.size(); ++p)
      gpt_.parameters[p].value.detach().copy_(start_.part(p));
  }

  // With as many ranks as before each has its own again; otherwise all have the mean.
  void load_moment(const std::vector<RankTensors>& saved, const std::string& name,
                   at::Tensor& moment) const {
    if (static_cast<int>(saved.size()) == members()) {
      const RankTensors& mine = saved[static_cast<std::size_t>(world_.dp_member())];
      if (const auto found = mine.find(name); found != mine.end()) moment.copy_(found->second);
      return;
    }
    if (!saved.front().contains(name)) return;  // of a run without local steps: all ranks' already
    at::Tensor mean = moment.zero_();
    for (const RankTensors& tensors : saved)
      if (const auto found = tensors.find(name); found != tensors.end())
        mean.add_(found->second.to(mean.device()), 1.0 / static_cast<double>(saved.size()));
  }

  FlatBlocks start_;     // parameters at the beginning of the round
  FlatBlocks momentum_;  // of the outer step
  std::int64_t step_ = 0;
  std::int64_t left_out_ = 0;  // inner steps of this rank in this round
  std::int64_t in_a_row_ = 0;  // and the last ones without a good one between
};

}  // namespace

AdamW adamw_of(const OptimiserSection& o) {
  return {.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay};
}

GradientPolicy policy_of(const RunConfig& config) {
  const DpGradientSection& g = config.dp_gradient;
  return {.method = g.method == "power_sgd" ? ReduceMethod::power_sgd : ReduceMethod::codec,
          .up = parse_codec(g.codec),
          .down = parse_codec(g.down.empty() ? g.codec : g.down),
          .up_feedback = g.feedback != "none",
          .down_feedback = g.feedback == "both",
          .warm_up_steps = g.warmup,
          .algorithm = algorithm_of(g),
          .rank = g.rank,
          .min_ratio = g.min_ratio,
          .by_block = g.by_block,
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

Problems check_parallel(const RunConfig& config) {
  if (config.mesh.dp == 1) return {};
  Problems problems = check(policy_of(config), dtype_of(config), static_cast<int>(config.mesh.dp));
  for (Problem& p : problems) p.where = "dp.gradient" + (p.where.empty() ? "" : "." + p.where);
  return problems;
}

std::unique_ptr<UpdateRule> make_update_rule(const RunConfig& config, const Gpt& gpt,
                                             World& world) {
  if (world.is_alone()) return std::make_unique<Alone>(config, gpt);
  if (config.local.steps > 0) return std::make_unique<Local>(config, gpt, world);
  if (config.dp_gradient.method == "compressed_adam")
    return std::make_unique<CompressedAdam>(config, gpt, world);
  return std::make_unique<Summed>(config, gpt, world);
}

}  // namespace laconic
