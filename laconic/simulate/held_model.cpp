#include "laconic/simulate/held_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "laconic/architecture/grid_place.hpp"
#include "laconic/base/index.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/layout/layout.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/reduce/sparse_change.hpp"

namespace laconic {

HeldModel::HeldModel(const SimulationRequest& request, Rank rank, bool is_fused)
    : request_(request),
      mesh_(request.mesh),
      rank_(rank),
      coord_(coord_of(mesh_, rank)),
      holders_(
          ranks_of_blocks(request.decisions.schedule, ranges_of_split(request.decisions.split))),
      is_fused_(is_fused),
      tables_(row_tables(request.config, request.spec)),
      sets_(shared_parameters(request.spec, holders_)) {
  std::set<std::size_t> parameters;
  for (std::size_t b = 0; b < holders_.size(); ++b) {
    is_held_.push_back(holders_[b] == coord_.pp);
    if (!is_held_[b]) continue;
    blocks_.push_back(b);
    parameters.insert(request.spec.blocks[b].uses.begin(), request.spec.blocks[b].uses.end());
  }
  parameters_.assign(parameters.begin(), parameters.end());
  add_shared();
}

std::vector<std::size_t> HeldModel::users_here(std::size_t parameter) const {
  std::vector<std::size_t> users;
  for (const std::int64_t block : users_of(request_.spec, parameter))
    if (holds(static_cast<std::size_t>(block))) users.push_back(static_cast<std::size_t>(block));
  return users;
}

std::size_t HeldModel::completing_block(std::size_t parameter) const {
  return users_here(parameter).front();
}

std::vector<std::size_t> HeldModel::completed_by(std::size_t block) const {
  std::vector<std::size_t> completed;
  for (const std::size_t p : request_.spec.blocks[block].uses)
    if (completing_block(p) == block && !request_.spec.parameters[p].is_frozen)
      completed.push_back(p);
  return completed;
}

TensorSpec HeldModel::tensor_of(std::size_t parameter) const {
  const RunConfig& config = request_.config;
  return {config.run.master_type(),
          sizes_at({request_.grid, coord_, table_cuts(config, request_.spec)},
                   request_.spec.parameters[parameter])};
}

double HeldModel::elements() const {
  double sum = 0;
  for (const std::size_t block : blocks_) sum += elements_completed_by(block);
  return sum;
}

double HeldModel::elements_completed_by(std::size_t block) const {
  double sum = 0;
  for (const std::size_t p : completed_by(block))
    if (std::ranges::find(tables_, p) == tables_.end())
      sum += static_cast<double>(laconic::elements_of(tensor_of(p)));
  return sum;
}

double HeldModel::sparse_change_bytes() const {
  double sum = 0;
  for (const std::size_t p : parameters_) sum += static_cast<double>(sparse_bytes(tensor_of(p)));
  return sum;
}

// Of a set that several ranks share the one with its first user speaks.
std::int64_t HeldModel::spoken_for() const {
  std::int64_t count = 0;
  for (const std::size_t p : parameters_) {
    const auto first = static_cast<std::size_t>(first_user(request_.spec, p));
    const Layout layout = layout_at({request_.grid, coord_, {}}, request_.spec.parameters[p]);
    if (holds(first) && speaks_for(layout, mesh_, coord_)) ++count;
  }
  return count;
}

bool HeldModel::is_left_out(std::size_t parameter) const {
  if (std::ranges::find(tables_, parameter) != tables_.end()) return true;
  if (!is_fused_) return false;
  return std::ranges::any_of(sets_, [&](const SharedParameters& set) {
    return std::ranges::find(set.parameters, parameter) != set.parameters.end();
  });
}

SumSetting HeldModel::replica_sums() const {
  const RunConfig& config = request_.config;
  SumSetting setting{
      .group = group_of(mesh_, rank_, Axis::dp),
      .policy = policy_of(config, {.pp = coord_.pp, .encoded = request_.decisions.encoded_ranks}),
      .traffic = Traffic::dp_gradient,
      .blocks = std::vector<BlockLayout>(request_.spec.blocks.size()),
      .dtype = config.run.master_type()};
  for (const std::size_t block : blocks_)
    for (const std::size_t p : completed_by(block))
      if (!is_left_out(p))
        setting.blocks[block].tensors.push_back({request_.spec.parameters[p].name, tensor_of(p)});
  return setting;
}

// A set has the place of its first user, and a second one that begins there one behind all blocks.
void HeldModel::add_shared() {
  const std::size_t blocks = request_.spec.blocks.size();
  std::set<std::int64_t> taken;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const SharedParameters& set = sets_[i];
    const bool is_first = taken.insert(set.first_user).second;
    const std::size_t slot = is_first ? static_cast<std::size_t>(set.first_user) : blocks + i;
    if (std::ranges::find(set.holders, coord_.pp) == set.holders.end()) continue;
    SharedSum shared{.setting = {.group = group_at(mesh_, rank_, set.holders, is_fused_),
                                 .policy = shared_policy_of(request_.config),
                                 .traffic = Traffic::embedding_tied,
                                 .blocks = std::vector<BlockLayout>(std::max(blocks, slot + 1)),
                                 .dtype = request_.config.run.master_type()},
                     .parameters = set.parameters,
                     .slot = slot};
    for (const std::size_t p : set.parameters)
      shared.setting.blocks[slot].tensors.push_back(
          {request_.spec.parameters[p].name, tensor_of(p)});
    shared_.push_back(std::move(shared));
  }
}

}  // namespace laconic
