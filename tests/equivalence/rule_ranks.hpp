// tests/equivalence/rule_ranks.hpp — for tests: ranks of a pp x dp mesh that update without a
// pipeline.
//
// Every rank holds its part of a small GPT and is handed gradients that are a pure
// function of (step, parameter, replica, end); what the rule makes of them is the
// test's business. So every number that should come out can be computed by hand.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>

#include "laconic/base/philox.hpp"
#include "laconic/config/read.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/residual_state.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic::test {

// Six blocks; the embedding has six times 256 elements, which ring sums cut evenly.
inline constexpr GptShape kShape{
    .layers = 4, .width = 16, .heads = 2, .context = 12, .vocabulary = 96};

// Contiguous parts, as equal as can be.
inline std::vector<int> rank_of_block(int pp) {
  const auto blocks = static_cast<int>(kShape.layers + 2);
  std::vector<int> ranks;
  for (int b = 0; b < blocks; ++b) ranks.push_back(b * pp / blocks);
  return ranks;
}
inline HeldBlocks held_blocks(int pp, int part) {
  HeldBlocks held;
  for (const int rank : rank_of_block(pp)) held.push_back(rank == part);
  return held;
}

enum class End : std::uint8_t { embedding, head };  // of the tied parameter

// The gradient of a parameter in one replica before any sum.
using GradientOf = std::function<at::Tensor(const Parameter&, std::int64_t step, int replica, End)>;

inline at::Tensor random_gradient(const Parameter& p, std::int64_t step, int replica, End end) {
  at::Tensor values = at::empty(p.value.sizes(), p.value.options().requires_grad(false));
  const Key key = derive(derive(key_of(77), static_cast<std::uint64_t>(step), p.number),
                         static_cast<std::uint64_t>(replica), static_cast<std::uint64_t>(end));
  const auto fill = [&](auto* data) {
    fill_normal(key, 0, 0, 0.1, std::span(data, static_cast<std::size_t>(values.numel())));
  };
  if (values.scalar_type() == at::kDouble)
    fill(values.data_ptr<double>());
  else
    fill(values.data_ptr<float>());
  return values;
}

// Whole numbers, whose sums are exact in any order.
inline at::Tensor whole_gradient(const Parameter& p, std::int64_t step, int replica, End end) {
  return random_gradient(p, step, replica, end).mul_(100).round_();
}

// Whole numbers where the order of a sum depends on the mesh.
inline at::Tensor tied_whole_gradient(const Parameter& p, std::int64_t step, int replica, End end) {
  return p.number == 0 ? whole_gradient(p, step, replica, end)
                       : random_gradient(p, step, replica, end);
}

// What one rank ends with. By number of the parameter.
struct Ended {
  Coord coord;
  std::map<std::size_t, at::Tensor> gradients;  // summed, of the last step
  std::map<std::size_t, at::Tensor> values;
  std::map<std::size_t, at::Tensor> moment1, moment2;
  std::vector<Measured> measured;  // by step
  RankTensors saved;
  std::string note;  // of load()
  MeterReading meter;
};

struct RuleRun {
  Mesh mesh;
  RunConfig config;
  std::int64_t steps = 1;
  GradientOf gradient = random_gradient;
  double lr = 0.01;
  std::function<void(Weights&)> start = {};  // changes what it begins with
  bool is_settled = false;                   // in the end
  bool is_saved = true;                      // the same; requires that nothing is under way
  std::optional<int> automatic = std::nullopt;
  // To go on from: what a run with the same parts ended with, after so many steps.
  std::int64_t first_step = 0;
  std::optional<std::int64_t> updates = std::nullopt;  // that were made by then, if not all
  std::vector<Ended> from = {};
  std::vector<RankTensors> saved = {};  // instead of those in `from`
  // What happens to a class before a step, and when a run goes on, what had happened by then.
  struct Change {
    std::int64_t step = 0;
    Traffic traffic = Traffic::dp_gradient;
    CodecOverride codec_override;
  };
  std::vector<Change> changes = {};
};

inline RunConfig config_for(const Mesh& mesh, const std::vector<std::string>& sets = {}) {
  RunConfig c;
  c.train.batch = 24;
  c.train.clip = 1;
  c.mesh = {.pp = mesh.pp, .dp = mesh.dp};
  for (const std::string& set : sets) {
    const Problems problems = apply_set(set, c);
    EXPECT_TRUE(problems.empty()) << to_text(problems);
  }
  return c;
}

class RankOfRules {
 public:
  RankOfRules(const RuleRun& run, World& world)
      : run_(run),
        world_(world),
        weights_(make_weights(
            kShape, 5,
            at::TensorOptions().dtype(
                run.config.run.precision == RunPrecision::float64 ? at::kDouble : at::kFloat),
            held_blocks(run.mesh.pp, world.pp_member()))),
        state_(make_optimiser_state(weights_.parameters)),
        rule_(make_update_rule(
            {.config = run.config,
             .weights = weights_,
             .world = world,
             .shared = shared_parameters(weights_.spec, rank_of_block(run.mesh.pp)),
             .encoded = encoded_ranks(run.config, run.automatic)})) {
    rule_->add_links(links_);
    if (run.start) run.start(weights_);
    continue_from();
  }

  Ended go() {
    ended_.coord = world_.coord();
    for (std::int64_t s = run_.first_step; s < run_.first_step + run_.steps; ++s) take_step(s);
    if (run_.is_settled) rule_->settle(true);
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
      const std::size_t number = weights_.parameters[p].number;
      ended_.values[number] = weights_.parameters[p].value.detach();
      ended_.moment1[number] = state_.moment1[p];
      ended_.moment2[number] = state_.moment2[p];
    }
    if (!run_.is_saved) return ended_;
    ended_.saved = rule_->save(state_);
    ended_.saved.merge(links_.tensors());
    add_mesh(run_.mesh, ended_.saved);
    return ended_;
  }

 private:
  void continue_from() {
    std::vector<RankTensors> saved = run_.saved;
    if (saved.empty())
      for (const Ended& rank : run_.from) saved.push_back(rank.saved);
    const at::NoGradGuard no_grad;
    for (const Ended& rank : run_.from) {
      state_.updates = run_.updates.value_or(run_.first_step);
      for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
        const auto found = rank.values.find(weights_.parameters[p].number);
        if (found == rank.values.end()) continue;
        weights_.parameters[p].value.copy_(found->second);
        state_.moment1[p].copy_(rank.moment1.at(found->first));
        state_.moment2[p].copy_(rank.moment2.at(found->first));
      }
    }
    rule_->load(saved, state_);
    ended_.note = links_.restore(saved);
  }

  at::Tensor gradient_of(const Parameter& p, std::int64_t step) const {
    const int replica = world_.dp_member();
    const bool has_head = weights_.holds((kShape.layers + 2) - 1);
    if (p.number != 0 || !has_head) return run_.gradient(p, step, replica, End::embedding);
    const at::Tensor head = run_.gradient(p, step, replica, End::head);
    return weights_.holds(0) ? run_.gradient(p, step, replica, End::embedding).add_(head) : head;
  }

  void take_step(std::int64_t step) {
    for (const RuleRun::Change& change : run_.changes)
      if (change.step == step || (step == run_.first_step && change.step < step))
        links_.override_codec(change.traffic, change.codec_override);
    rule_->begin(step);
    for (Parameter& p : weights_.parameters) p.gradient = gradient_of(p, step);
    for (std::int64_t b = (kShape.layers + 2); b-- > 0;)
      if (weights_.holds(b)) rule_->block_done(b);
    const bool is_last = world_.pp_member() == run_.mesh.pp - 1;
    const Measured measured = rule_->measure(is_last ? 1 + 0.1 * world_.dp_member() : 0, 0);
    ended_.measured.push_back(measured);
    const double clip = run_.config.train.clip * measured.clip_times;
    for (const Parameter& p : weights_.parameters)
      if (p.gradient.defined()) ended_.gradients[p.number] = p.gradient.clone();
    if (measured.is_skipped)
      rule_->abandon();
    else
      rule_->apply(state_, run_.lr, measured.norm > clip ? clip / measured.norm : 1);
    clear_gradients(weights_);
  }

  const RuleRun& run_;
  World& world_;
  Weights weights_;
  OptimiserState state_;
  std::unique_ptr<UpdateRule> rule_;
  LinkRegistry links_;
  Ended ended_;
};

// All ranks as threads; what each ended with, by rank.
inline std::vector<Ended> run_rules(const RuleRun& run) {
  const Problems problems = check_parallel(run.config);
  EXPECT_TRUE(problems.empty()) << to_text(problems);
  std::vector<Ended> ended(static_cast<std::size_t>(size(run.mesh)));
  if (size(run.mesh) == 1) {
    World alone;
    ended[0] = RankOfRules(run, alone).go();
    return ended;
  }
  run_ranks(size(run.mesh), [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world(run.mesh, progress_thread);
    Ended& mine = ended[static_cast<std::size_t>(transport.rank())];
    mine = RankOfRules(run, world).go();
    engine.flush();
    mine.meter = engine.meter().read();
  });
  return ended;
}

inline const Ended& rank_at(const std::vector<Ended>& ranks, const Mesh& mesh, int pp, int dp) {
  return ranks[static_cast<std::size_t>(rank_of(mesh, {.pp = pp, .dp = dp}))];
}

using Numbered = std::map<std::size_t, at::Tensor>;

// The same bits wherever two ranks hold the same parameter: replicas, and both ends.
inline void expect_lock_step(const std::vector<Ended>& ranks, bool has_own_moments = false) {
  for (const auto member : {&Ended::values, &Ended::moment1, &Ended::moment2}) {
    if (has_own_moments && member == &Ended::moment1) continue;
    std::map<std::size_t, std::pair<at::Tensor, Coord>> first;
    for (const Ended& rank : ranks)
      for (const auto& [number, tensor] : rank.*member) {
        const auto& [expected, where] = first.try_emplace(number, tensor, rank.coord).first->second;
        EXPECT_TRUE(tensor.equal(expected))
            << "parameter " << number << " at " << to_text(rank.coord) << " and at "
            << to_text(where) << ", member " << (member == &Ended::values ? "value" : "moment");
      }
  }
}

inline void expect_same_tensors(const Numbered& expected, const Numbered& actual,
                                const std::string& where) {
  for (const auto& [number, tensor] : actual) {
    ASSERT_TRUE(expected.contains(number)) << where << ": parameter " << number;
    EXPECT_TRUE(tensor.equal(expected.at(number))) << where << ": parameter " << number;
  }
}

inline std::uint64_t raw_bytes(const std::vector<Ended>& ranks, Traffic traffic) {
  std::uint64_t bytes = 0;
  for (const Ended& rank : ranks) bytes += sent(rank.meter, traffic).raw_bytes;
  return bytes;
}

}  // namespace laconic::test
