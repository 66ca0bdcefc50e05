#include "laconic/update/gradient_exchange.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/tensor/device_stream.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

namespace {

bool is_holder(const SharedParameters& set, const World& world) {
  return std::ranges::find(set.holders, world.pp_member()) != set.holders.end();
}

// Parameters that are in no buffer of a block: tables of rows, and what is fused.
ParameterNumbers left_out_of_blocks(const RuleRequest& request, bool is_fused,
                                    ParameterNumbers numbers) {
  const std::vector<std::size_t> tables = row_tables(request.config, request.weights.spec);
  numbers.insert(tables.begin(), tables.end());
  if (is_fused)
    for (const SharedParameters& set : request.shared)
      numbers.insert(set.parameters.begin(), set.parameters.end());
  return numbers;
}

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// Parameters one behind the other in a flat buffer.
std::vector<at::Tensor> views_of(const Weights& weights, const std::vector<std::size_t>& places,
                                 const at::Tensor& buffer) {
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const std::size_t place : places) {
    const at::Tensor& value = weights.parameters[place].value;
    views.push_back(buffer.narrow(0, begin, value.numel()).view(value.sizes()));
    begin += value.numel();
  }
  return views;
}

// Whether the block completes the parameter at `place` on this rank.
bool completes(const Weights& weights, std::int64_t block, std::size_t place) {
  return completing_block(weights, weights.parameters[place]) == block;
}

}  // namespace

GradientExchange::GradientExchange(const RuleRequest& request, bool is_fused, bool may_be_on_device,
                                   std::string_view unit, const ParameterNumbers& left_out)
    : config_(request.config),
      weights_(request.weights),
      world_(request.world),
      is_fused_(is_fused),
      unit_(unit.empty() ? unit_of(config_) : unit),
      is_anything_shared_(!request.shared.empty()),
      policy_(policy_of(config_, {.pp = world_.pp_member(), .encoded = request.encoded})),
      may_be_on_device_(may_be_on_device && weights_.device().is_cuda()),
      is_on_device_(stays_on_device(policy_, world_.dp_group())),
      lateness_(lateness_of(config_)),
      blocks_(request.weights, left_out_of_blocks(request, is_fused, left_out),
              is_on_device_ ? weights_.device() : at::Device(at::kCPU)),
      layouts_(block_layouts(request.weights, left_out_of_blocks(request, is_fused, left_out))),
      sum_(make_gradient_sum(world_.progress_thread(), world_.dp_group(), policy_,
                             Traffic::dp_gradient, layouts_, dtype_of(weights_.precision.sum),
                             is_on_device_)),
      copies_(copies_of_grid(left_out)) {
  require_shared(request);
  if (lateness_.of_blocks)
    kept_.emplace(weights_, left_out_of_blocks(request, is_fused, left_out), blocks_.device());
  std::set<std::int64_t> taken;  // first users of earlier sets
  for (std::size_t i = 0; i < request.shared.size(); ++i) {
    const SharedParameters& set = request.shared[i];
    const bool is_first = taken.insert(set.first_user).second;
    const std::int64_t slot =
        is_first ? set.first_user : block_count(weights_.spec) + static_cast<std::int64_t>(i);
    if (is_holder(set, world_)) shared_.push_back(make_shared(set, static_cast<std::size_t>(slot)));
  }
  completed_ = completed_places();
  LACONIC_ASSERT(shared_.empty() || is_fused_ || !(lateness_.of_blocks || lateness_.of_shared),
                 "sums that are made of other sums are not late");
}

// Those of buffers, and what is fused.
std::vector<std::vector<std::size_t>> GradientExchange::completed_places() const {
  std::vector<std::vector<std::size_t>> places(blocks_.size());
  for (std::size_t b = 0; b < places.size(); ++b) places[b] = blocks_.members(b);
  if (is_fused_)
    for (const Shared& shared : shared_)
      for (const std::size_t p : shared.places)
        places[static_cast<std::size_t>(completing_block(weights_, weights_.parameters[p]))]
            .push_back(p);
  return places;
}

bool GradientExchange::stays_on_device(const GradientPolicy& policy, const Group& group) const {
  return may_be_on_device_ &&
         sums_on_device(policy, dtype_of(weights_.precision.sum), static_cast<int>(group.size()));
}

// A parameter that another rank uses, too, and that nobody sums would drift apart unnoticed.
void GradientExchange::require_shared(const RuleRequest& request) const {
  ParameterNumbers shared;
  for (const SharedParameters& set : request.shared)
    shared.insert(set.parameters.begin(), set.parameters.end());
  for (const Parameter& p : weights_.parameters)
    LACONIC_ASSERT(p.is_frozen || shared.contains(p.number) ||
                       std::ranges::all_of(users_of(weights_.spec, p.number),
                                           [&](std::int64_t b) { return weights_.holds(b); }),
                   p.name + " is used on another rank, too, and in no set of shared parameters");
}

// `slot` is the place in the layouts, the same on all holders: messages of all have the same unit.
// It is that of the first block that uses the set, so that they are as urgent as that block of the
// next step; a second set that begins there has one behind all blocks.
GradientExchange::Shared GradientExchange::make_shared(const SharedParameters& set,
                                                       std::size_t slot) const {
  Shared shared{
      .set = set,
      .places = {},
      .group = group_at(world_.mesh(), world_.rank(), set.holders, is_fused_),
      .layouts = std::vector<BlockLayout>(std::max(weights_.spec.blocks.size(), slot + 1)),
      .slot = slot,
      .is_on_device = false,
      .buffer = {},
      .parts = {},
      .sum = nullptr};
  const GradientPolicy policy = shared_policy_of(config_);
  shared.is_on_device = stays_on_device(policy, shared.group);
  const auto first = static_cast<std::size_t>(set.first_user);
  BlockLayout& layout = shared.layouts[slot];
  layout.name = weights_.spec.blocks[first].name + (is_fused_ ? "" : "_pair") +
                (slot == first ? "" : fmt::format("_{}", slot));
  std::int64_t elements = 0;
  for (const std::size_t number : set.parameters) {
    shared.places.push_back(weights_.places[number]);
    const Parameter& parameter = weights_.parameters[shared.places.back()];
    layout.tensors.push_back({parameter.name, sum_spec_of(weights_, parameter)});
    elements += parameter.value.numel();
  }
  const bool is_where_blocks_are = shared.is_on_device == is_on_device_;
  if (!is_fused_ && is_where_blocks_are && shared.places.size() == 1) {
    // Where the sum over replicas has left it.
    shared.parts = {blocks_.part(shared.places[0])};
    shared.buffer = shared.parts[0].view(-1);
  } else {
    const at::Device device = shared.is_on_device ? weights_.device() : at::Device(at::kCPU);
    shared.buffer =
        at::zeros({elements}, at::TensorOptions().dtype(weights_.precision.sum).device(device));
  }
  if (shared.parts.empty()) shared.parts = views_of(weights_, shared.places, shared.buffer);
  if (lateness_.of_shared) {
    shared.kept_buffer = at::zeros_like(shared.buffer);
    shared.kept_parts = views_of(weights_, shared.places, shared.kept_buffer);
  }
  shared.sum =
      make_gradient_sum(world_.progress_thread(), shared.group, policy, Traffic::embedding_tied,
                        shared.layouts, dtype_of(weights_.precision.sum), shared.is_on_device);
  return shared;
}

int GradientExchange::contributors(std::size_t p) const {
  for (const Shared& shared : shared_)
    if (std::ranges::find(shared.places, p) != shared.places.end())
      return static_cast<int>(shared.set.holders.size()) * members();
  return members();
}

// Exact sums of two equal numbers are equal wherever they lie. Of more the order counts, which in a
// ring is another in every chunk.
std::vector<GradientExchange::Copies> GradientExchange::copies_of_grid(
    const ParameterNumbers& left_out) const {
  const bool is_lossy_sum =
      is_lossy(policy_.up) || is_lossy(policy_.down) || policy_.method == ReduceMethod::power_sgd;
  if (is_trivial(weights_.place.plan) || members() == 1 || (members() == 2 && !is_lossy_sum))
    return {};
  std::map<Axes, Copies> by_axes;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    if (left_out.contains(weights_.parameters[p].number)) continue;
    const Axes cut =
        axes_of(layout_at(weights_.place, weights_.spec.parameters[weights_.parameters[p].number]));
    Axes beside;
    for (const Axis axis : kTensorAxes)
      if (std::ranges::find(cut, axis) == cut.end() && extent(world_.mesh(), axis) > 1)
        beside.push_back(axis);
    if (beside.empty()) continue;
    Copies& copies = by_axes[beside];
    copies.group = group_along(world_.mesh(), world_.rank(), beside);
    copies.places.push_back(p);
  }
  std::vector<Copies> all;
  for (auto& [axes, copies] : by_axes) all.push_back(std::move(copies));
  return all;
}

void GradientExchange::agree_on_copies() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const std::size_t p : copies_[i].places) parts.push_back(part(p).reshape({-1}));
    const at::Tensor mine = on_host(at::cat(parts));
    // Units behind those of all blocks and sets.
    const auto unit = static_cast<std::uint32_t>(0xFF00 + i);
    const Bytes bytes = broadcast(world_.engine(), copies_[i].group, Traffic::dp_gradient, unit,
                                  agreements_, bytes_of_tensor(mine));
    const at::Tensor first = tensor_from_bytes(bytes, dtype_of(mine.scalar_type()), {mine.numel()});
    std::int64_t at = 0;
    for (const std::size_t p : copies_[i].places) {
      part(p).copy_(first.narrow(0, at, part(p).numel()).view(part(p).sizes()));
      at += part(p).numel();
    }
  }
  ++agreements_;
}

GradientExchange::SumTurn GradientExchange::turn_of(bool is_late, std::int64_t step) const {
  if (!is_late || step < lateness_.after) return SumTurn::own;
  return kept_step_ != kNoStep && kept_step_ + 1 == step ? SumTurn::kept : SumTurn::none;
}

// Every step has one sum of its number, whenever it travels.
std::uint64_t GradientExchange::number_of(SumTurn turn, std::int64_t step) const {
  return static_cast<std::uint64_t>(turn == SumTurn::kept ? step - 1 : step);
}

// What was kept of another step than the one before, by a run that goes on elsewhere, is of no use.
void GradientExchange::begin(std::int64_t step) {
  step_ = step;
  begin_blocks(step);
  for (Shared& shared : shared_) begin_shared(shared, step);
  kept_step_ = kNoStep;
}

void GradientExchange::begin_blocks(std::int64_t step) {
  turn_ = turn_of(lateness_.of_blocks, step);
  if (turn_ != SumTurn::none) sum_->begin(number_of(turn_, step));
  if (turn_ != SumTurn::kept) return;
  std::swap(blocks_, *kept_);
  for (std::size_t b = blocks_.size(); b-- > 0;)
    if (!blocks_.is_empty(b)) sum_->post(b, blocks_.data(b), ready_if(is_on_device_));
}

void GradientExchange::begin_shared(Shared& shared, std::int64_t step) {
  shared.ready = 0;
  shared.turn = turn_of(lateness_.of_shared, step);
  if (shared.turn != SumTurn::none) shared.sum->begin(number_of(shared.turn, step));
  if (shared.turn != SumTurn::kept) return;
  std::swap(shared.buffer, shared.kept_buffer);
  std::swap(shared.parts, shared.kept_parts);
  post_shared(shared);
}

void GradientExchange::begin_shadow(std::int64_t step) {
  LACONIC_ASSERT(!lateness_.of_blocks && !lateness_.of_shared, "late sums have no shadow");
  sum_->begin_shadow(static_cast<std::uint64_t>(step));
  for (Shared& shared : shared_) {
    shared.sum->begin_shadow(static_cast<std::uint64_t>(step));
    shared.ready = 0;
  }
}

void GradientExchange::take(std::int64_t block) {
  const FlatBlocks& blocks = turn_ == SumTurn::own ? blocks_ : *kept_;
  blocks.take_gradients(weights_, static_cast<std::size_t>(block));
  if (step_ >= lateness_.after) kept_step_ = step_;
  if (!is_fused_) return;
  for (Shared& shared : shared_) {
    const auto& parts = shared.turn == SumTurn::own ? shared.parts : shared.kept_parts;
    for (std::size_t i = 0; i < shared.places.size(); ++i)
      if (completes(weights_, block, shared.places[i]))
        copy_gradient(weights_.parameters[shared.places[i]], parts[i]);
  }
}

void GradientExchange::post(std::int64_t block) {
  const auto b = static_cast<std::size_t>(block);
  if (is_fused_)
    for (Shared& shared : shared_) {
      if (shared.turn != SumTurn::own) continue;
      const std::size_t before = shared.ready;
      for (const std::size_t place : shared.places)
        shared.ready += completes(weights_, block, place) ? 1 : 0;
      if (shared.ready > before && shared.ready == shared.places.size()) post_shared(shared);
    }
  if (turn_ != SumTurn::own || blocks_.is_empty(b)) return;
  sum_->post(b, blocks_.data(b), ready_if(is_on_device_));
}

// Nobody waits for it but the sum: the codecs' other work goes on.
Ready GradientExchange::ready_if(bool is_on_device) const {
  return is_on_device ? Ready(queued_so_far(weights_.device())) : std::nullopt;
}

void GradientExchange::post_shared(Shared& shared) {
  shared.sum->post(shared.slot, data_of(shared.buffer), ready_if(shared.is_on_device));
}

// What libtorch does with the buffer from here on comes after the sum.
void GradientExchange::wait_for_shared(Shared& shared) {
  shared.sum->wait();
  if (shared.is_on_device) wait_for_codecs(weights_.device());
}

void GradientExchange::post_all() {
  for (std::int64_t b = block_count(weights_.spec); b-- > 0;)
    if (weights_.holds(b)) post(b);
}

// Unfused, what the replicas summed goes through the buffer of the set.
void GradientExchange::wait() {
  if (turn_ != SumTurn::none) sum_->wait();
  if (is_on_device_) wait_for_codecs(weights_.device());
  if (!is_fused_)
    for (Shared& shared : shared_) {
      for (std::size_t i = 0; i < shared.places.size(); ++i)
        shared.parts[i].copy_(blocks_.part(shared.places[i]));
      post_shared(shared);
    }
  for (Shared& shared : shared_) {
    if (shared.turn == SumTurn::none) continue;
    wait_for_shared(shared);
    for (std::size_t i = 0; !is_fused_ && i < shared.places.size(); ++i)
      blocks_.part(shared.places[i]).copy_(shared.parts[i]);
  }
  if (turn_ != SumTurn::none) agree_on_copies();
}

bool GradientExchange::has_sums() const {
  return turn_ != SumTurn::none || std::ranges::any_of(shared_, [](const Shared& shared) {
           return shared.turn != SumTurn::none;
         });
}

bool GradientExchange::has_part_in(const Shared& shared, std::int64_t block) const {
  return std::ranges::any_of(shared.places,
                             [&](std::size_t p) { return completes(weights_, block, p); });
}

bool GradientExchange::has_arrived(std::int64_t block) const {
  return sum_->has_arrived(static_cast<std::size_t>(block)) &&
         std::ranges::all_of(shared_, [&](const Shared& shared) {
           return !has_part_in(shared, block) || shared.sum->has_arrived(shared.slot);
         });
}

void GradientExchange::wait(std::int64_t block) {
  LACONIC_ASSERT((is_fused_ || shared_.empty()) && copies_.empty() && !is_on_device_,
                 "the sums of a block are not all there is to wait for");
  sum_->wait(static_cast<std::size_t>(block));
  for (Shared& shared : shared_)
    if (has_part_in(shared, block)) shared.sum->wait(shared.slot);
}

const std::vector<std::size_t>& GradientExchange::completed_by(std::int64_t block) const {
  return completed_[static_cast<std::size_t>(block)];
}

void GradientExchange::commit() {
  if (turn_ != SumTurn::none) sum_->commit();
  for (Shared& shared : shared_)
    if (shared.turn != SumTurn::none) shared.sum->commit();
}

void GradientExchange::abandon() {
  if (turn_ != SumTurn::none) sum_->abandon();
  for (Shared& shared : shared_)
    if (shared.turn != SumTurn::none) shared.sum->abandon();
}

const at::Tensor& GradientExchange::part(std::size_t p) const {
  if (is_fused_)
    for (const Shared& shared : shared_)
      for (std::size_t i = 0; i < shared.places.size(); ++i)
        if (shared.places[i] == p) return shared.parts[i];
  return blocks_.part(p);
}

void GradientExchange::give_gradients() const {
  if (turn_ != SumTurn::none)
    blocks_.give_gradients(weights_);
  else
    for (std::size_t p = 0; p < weights_.parameters.size(); ++p)
      if (blocks_.part(p).defined()) weights_.parameters[p].gradient.reset();
  if (!is_fused_) return;
  for (const Shared& shared : shared_)
    for (std::size_t i = 0; i < shared.places.size(); ++i)
      weights_.parameters[shared.places[i]].gradient =
          shared.turn != SumTurn::none ? shared.parts[i].to(weights_.device())
          : turn_ != SumTurn::none     ? at::zeros_like(weights_.parameters[shared.places[i]].value)
                                       : at::Tensor();
}

void GradientExchange::sum_shared_in_replica(std::int64_t step) {
  LACONIC_ASSERT(!is_fused_ || shared_.empty(), "fused");
  for (Shared& shared : shared_) {
    for (std::size_t i = 0; i < shared.places.size(); ++i)
      copy_gradient(weights_.parameters[shared.places[i]], shared.parts[i]);
    shared.sum->begin(static_cast<std::uint64_t>(step));
    post_shared(shared);
    wait_for_shared(shared);
    shared.sum->commit();
    for (std::size_t i = 0; i < shared.places.size(); ++i)
      weights_.parameters[shared.places[i]].gradient = shared.parts[i].to(weights_.device());
  }
}

}  // namespace laconic
