#include "laconic/train/gradient_exchange.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/policy.hpp"
#include "laconic/train/residual_state.hpp"

namespace laconic {

namespace {

std::optional<std::size_t> tied_place(const Gpt& gpt, const World& world) {
  const bool holds = !gpt.parameters.empty() && is_tied(gpt.parameters.front());
  LACONIC_ASSERT(holds == !world.tied_pair().empty(),
                 fmt::format("rank {} at {} {} the tied embedding", world.rank(),
                             to_text(world.coord()), holds ? "holds" : "lacks"));
  return holds && world.mesh().pp > 1 ? std::optional(gpt.places[0]) : std::nullopt;
}

// In the place of block 0 at both ends: messages of both have the same unit, and are as urgent as
// the first block of the next step.
std::vector<BlockLayout> tied_layouts(const Gpt& gpt, bool is_fused) {
  std::vector<BlockLayout> layouts(static_cast<std::size_t>(block_count(gpt.shape)));
  const Parameter& tied = gpt.parameters[gpt.places[0]];
  layouts[0] = {is_fused ? "embedding" : "embedding_pair", {{tied.name, spec_of(tied.value)}}};
  return layouts;
}

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

std::string join_notes(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "; " + b;
}

}  // namespace

GradientExchange::GradientExchange(const RunConfig& config, const Gpt& gpt, World& world,
                                   int encoded, bool is_fused)
    : config_(config),
      gpt_(gpt),
      world_(world),
      is_fused_(is_fused),
      tied_place_(tied_place(gpt, world)),
      blocks_(gpt, tied_place_ && is_fused ? choose_untied : choose_all),
      layouts_(block_layouts(gpt, tied_place_ && is_fused ? choose_untied : choose_all)),
      policy_(policy_of(config, world.pp_member(), encoded)),
      sum_(make_gradient_sum(world.progress_thread(), world.dp_group(), policy_,
                             Traffic::dp_gradient, layouts_, dtype_of(config))) {
  if (!tied_place_) return;
  const at::Tensor& value = gpt.value(0);
  tied_ = is_fused ? at::zeros(value.sizes(), value.options().device(at::kCPU).requires_grad(false))
                   : blocks_.part(*tied_place_);
  tied_layouts_ = tied_layouts(gpt, is_fused);
  tied_group_ = is_fused ? world.tied_group() : world.tied_pair();
  tied_sum_ = make_gradient_sum(world.progress_thread(), tied_group_, tied_policy_of(config),
                                Traffic::embedding_tied, tied_layouts_, dtype_of(config));
}

void GradientExchange::begin(std::int64_t step) {
  sum_->begin(static_cast<std::uint64_t>(step));
  if (tied_sum_) tied_sum_->begin(static_cast<std::uint64_t>(step));
}

void GradientExchange::begin_shadow(std::int64_t step) {
  sum_->begin_shadow(static_cast<std::uint64_t>(step));
  if (tied_sum_) tied_sum_->begin_shadow(static_cast<std::uint64_t>(step));
}

void GradientExchange::take(std::int64_t block) {
  blocks_.take_gradients(gpt_, static_cast<std::size_t>(block));
  if (is_fused_ && tied_place_ && completing_block(gpt_, gpt_.parameters[*tied_place_]) == block)
    take_tied();
}

void GradientExchange::post(std::int64_t block) {
  const auto b = static_cast<std::size_t>(block);
  if (is_fused_ && tied_place_ && completing_block(gpt_, gpt_.parameters[*tied_place_]) == block)
    post_tied();
  if (!blocks_.is_empty(b)) sum_->post(b, blocks_.data(b));
}

void GradientExchange::post_all() {
  for (std::int64_t b = block_count(gpt_.shape); b-- > 0;)
    if (gpt_.holds(b)) post(b);
}

void GradientExchange::wait() {
  sum_->wait();
  if (!tied_sum_) return;
  if (!is_fused_) post_tied();
  tied_sum_->wait();
}

void GradientExchange::commit() {
  sum_->commit();
  if (tied_sum_) tied_sum_->commit();
}

void GradientExchange::abandon() {
  sum_->abandon();
  if (tied_sum_) tied_sum_->abandon();
}

void GradientExchange::watch(bool looks) {
  sum_->watch(looks);
  if (tied_sum_) tied_sum_->watch(looks);
}

std::map<Traffic, Fidelity> GradientExchange::seen() const {
  std::map<Traffic, Fidelity> all;
  if (const Fidelity seen = sum_->seen(); seen.messages > 0) all[Traffic::dp_gradient] = seen;
  if (!tied_sum_) return all;
  if (const Fidelity seen = tied_sum_->seen(); seen.messages > 0)
    all[Traffic::embedding_tied] = seen;
  return all;
}

const at::Tensor& GradientExchange::part(std::size_t p) const {
  return is_tied_over_stages(p) ? tied_ : blocks_.part(p);
}

void GradientExchange::give_gradients() const {
  blocks_.give_gradients(gpt_);
  if (tied_place_) give_tied();
}

void GradientExchange::take_tied() const {
  const at::NoGradGuard no_grad;
  const at::Tensor& gradient = gpt_.value(0).grad();
  if (gradient.defined())
    tied_.copy_(gradient);
  else
    tied_.zero_();
}

void GradientExchange::give_tied() const {
  const at::NoGradGuard no_grad;
  at::Tensor value = gpt_.value(0);
  value.mutable_grad() = tied_.to(value.device());
}

void GradientExchange::post_tied() {
  tied_sum_->post(0, data_of(tied_));
}

void GradientExchange::sum_tied_in_replica(std::int64_t step) {
  if (!tied_sum_) return;
  LACONIC_ASSERT(!is_fused_, "fused");
  take_tied();
  tied_sum_->begin(static_cast<std::uint64_t>(step));
  post_tied();
  tied_sum_->wait();
  tied_sum_->commit();
  give_tied();
}

// Ranks of a pipeline that do not encode (dp.gradient.stages) have nothing to be treated.
void GradientExchange::treat(Traffic traffic, const Treatment& treatment) {
  if (traffic == Traffic::dp_gradient) sum_->treat(treatment);
  if (traffic == Traffic::embedding_tied && tied_sum_) tied_sum_->treat(treatment);
}

RankTensors GradientExchange::save() const {
  const std::string unit(unit_of(config_));
  RankTensors tensors = tensors_of(sum_->save(), unit);
  if (tied_sum_) tensors.merge(tensors_of(tied_sum_->save(), std::string(kTied) + unit));
  add_mesh(world_.mesh(), tensors);
  return tensors;
}

std::string GradientExchange::load(const std::vector<RankTensors>& saved) {
  if (saved.empty()) return "";
  const Mesh before = mesh_of(saved);
  const int pp = world_.mesh().pp;
  if (before.pp != pp) return note_of_other_pipeline(saved, before.pp, pp);
  const std::string unit(unit_of(config_));
  const Rank peer = rank_of(before, {.pp = world_.pp_member()});  // then, of the first replica
  std::string note = load_sum({*sum_, policy_, layouts_, members(), world_.dp_member(), unit},
                              those_of(saved, group_of(before, peer, Axis::dp)));
  if (!tied_sum_) return note;
  // The pairs of all replicas remember the same, since they add the same.
  const Group holders = is_fused_ ? tied_group(before, peer) : tied_pair(before, peer);
  return join_notes(
      note, load_sum({*tied_sum_, tied_policy_of(config_), tied_layouts_,
                      static_cast<int>(tied_group_.size()), member_of(tied_group_, world_.rank()),
                      std::string(kTied) + unit},
                     those_of(saved, holders)));
}

}  // namespace laconic
