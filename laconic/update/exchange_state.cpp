// What the sums of a GradientExchange remember, in checkpoints.
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/policy/class_policy.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/gradient_exchange.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

namespace {

std::string joined(const std::string& a, const std::string& b) {
  return a + (a.empty() || b.empty() ? "" : "; ") + b;
}

}  // namespace

// Ranks of a pipeline that do not encode (dp.gradient.stages) have nothing to override.
void GradientExchange::add_links(LinkRegistry& registry) {
  const auto add = [&](GradientSum& sum, const Shared* shared, LinkControl control,
                       std::string prefix) {
    control.override_codec = [&sum](const CodecOverride& codec_override) {
      sum.override_codec(codec_override);
    };
    control.measure_fidelity = [&sum](bool measures) { sum.measure_fidelity(measures); };
    control.fidelity = [&sum] { return sum.fidelity(); };
    control.tensors = [this, shared, &sum, prefix = std::move(prefix)] {
      RankTensors tensors = tensors_of(sum.save(), prefix);
      tensors.merge(kept_tensors(shared));
      return tensors;
    };
    registry.add(std::move(control));
  };
  add(*sum_, nullptr,
      {.traffic = Traffic::dp_gradient,
       .name = std::string(name_of(Traffic::dp_gradient)),
       .restore = [this](const std::vector<RankTensors>& saved) { return restore_sum(saved); }},
      unit_);
  for (const Shared& shared : shared_)
    add(*shared.sum, &shared,
        {.traffic = Traffic::embedding_tied,
         .name = std::string(name_of(Traffic::embedding_tied)),
         .restore =
             [this, &shared](const std::vector<RankTensors>& saved) {
               return restore_shared(shared, saved);
             }},
        std::string(kShared) + unit_);
}

// Residuals belong to a stage: with another number of stages they are dropped.
std::string GradientExchange::restore_sum(const std::vector<RankTensors>& saved) {
  if (saved.empty()) return "";
  const Mesh before = mesh_of(saved);
  if (!has_same_parts(before, world_.mesh()))
    return note_of_other_mesh(saved, before, world_.mesh());
  const Rank peer = rank_of(
      before, {.pp = world_.pp_member(), .tp = world_.coord().tp});  // then, of the first replica
  const std::vector<RankTensors> replicas = those_of(saved, group_of(before, peer, Axis::dp));
  std::string note = load_sum({.sum = *sum_,
                               .policy = policy_,
                               .layouts = layouts_,
                               .members = members(),
                               .member = world_.dp_member(),
                               .prefix = unit_},
                              replicas);
  note = joined(note, restore_kept(replicas, nullptr));
  if (is_anything_shared_ || !has_shared_residuals(saved)) return note;
  return joined(note,
                "residuals of embedding.tied in the checkpoint: no stages share anything now: "
                "dropped");
}

// Unfused, the holders of all replicas remember the same, since they add the same.
std::string GradientExchange::restore_shared(const Shared& shared,
                                             const std::vector<RankTensors>& saved) {
  if (saved.empty()) return "";
  const Mesh before = mesh_of(saved);
  if (!has_same_parts(before, world_.mesh()))
    return note_of_other_mesh(saved, before, world_.mesh());
  const Rank peer = rank_of(before, {.pp = world_.pp_member(), .tp = world_.coord().tp});
  const std::vector<RankTensors> holders =
      those_of(saved, group_at(before, peer, shared.set.holders, is_fused_));
  const std::string note = load_sum({.sum = *shared.sum,
                                     .policy = shared_policy_of(config_),
                                     .layouts = shared.layouts,
                                     .members = static_cast<int>(shared.group.size()),
                                     .member = member_of(shared.group, world_.rank()),
                                     .prefix = std::string(kShared) + unit_},
                                    holders);
  return joined(note, restore_kept(holders, &shared));
}

// By name, what is kept of a set, or of the blocks.
std::map<std::string, at::Tensor> GradientExchange::kept_parts(const Shared* shared) const {
  std::map<std::string, at::Tensor> parts;
  for (std::size_t p = 0; shared == nullptr && kept_ && p < weights_.parameters.size(); ++p)
    if (kept_->part(p).defined())
      parts[std::string(kLate) + weights_.parameters[p].name] = kept_->part(p);
  for (std::size_t i = 0; shared != nullptr && i < shared->kept_parts.size(); ++i)
    parts[fmt::format("{}{}{}", kShared, kLate, weights_.parameters[shared->places[i]].name)] =
        shared->kept_parts[i];
  return parts;
}

RankTensors GradientExchange::kept_tensors(const Shared* shared) const {
  RankTensors tensors;
  if (kept_step_ == kNoStep) return tensors;
  for (const auto& [name, part] : kept_parts(shared)) tensors[name] = on_host(part);
  if (!tensors.empty()) tensors[std::string(kLateStep)] = at::tensor({kept_step_});
  return tensors;
}

// With as many members as before each has its own again; otherwise all have the same share of all,
// so that the sum stays what it was, up to rounding.
std::string GradientExchange::restore_kept(const std::vector<RankTensors>& saved,
                                           const Shared* shared) {
  const auto step = saved.front().find(std::string(kLateStep));
  const auto parts = kept_parts(shared);
  if (step == saved.front().end()) return "";
  if (parts.empty())
    return shared == nullptr && lateness_.of_shared ? "" : std::string(kKeptIsDropped);
  const Group& group = shared != nullptr ? shared->group : world_.dp_group();
  const at::NoGradGuard no_grad;
  for (const auto& [name, part] : parts) {
    part.zero_();
    for (std::size_t m = 0; m < saved.size(); ++m) {
      const auto found = saved[m].find(name);
      const bool is_mine = static_cast<int>(m) == member_of(group, world_.rank());
      if (found == saved[m].end()) continue;
      if (saved.size() != group.size())
        part.add_(found->second.to(part.device()), 1.0 / static_cast<double>(group.size()));
      else if (is_mine)
        part.copy_(found->second);
    }
  }
  kept_step_ = step->second.item<std::int64_t>();
  return "";
}

}  // namespace laconic
