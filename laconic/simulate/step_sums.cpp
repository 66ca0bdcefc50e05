#include "laconic/simulate/step_sums.hpp"

#include <algorithm>
#include <utility>

#include "laconic/base/index.hpp"

namespace laconic {

StepSums::StepSums(ProgramBuilder& builder, std::vector<HeldModel> held, bool shared_are_late)
    : builder_(builder), held_(std::move(held)), shared_are_late_(shared_are_late) {}

// One rank makes a sum for all members: the first of them.
bool StepSums::is_first_of(const Group& group, int rank) const {
  return std::ranges::all_of(group, [&](Rank member) { return builder_.class_of(member) >= rank; });
}

void StepSums::begin(std::uint64_t step, Which which,
                     const std::function<bool(std::size_t block)>& has) {
  before_ = std::move(now_);
  now_.assign(held_.size(), {});
  for (std::size_t rank = 0; rank < held_.size(); ++rank) {
    now_[rank].shared.resize(held_[rank].shared_sums().size());
    now_[rank].shared_ready.resize(held_[rank].shared_sums().size());
  }
  for (int rank = 0; rank < static_cast<int>(held_.size()); ++rank) {
    if (which == Which::all) {
      SumSetting setting = held(rank).replica_sums();
      for (std::size_t b = 0; has && b < setting.blocks.size(); ++b)
        if (!has(b)) setting.blocks[b].tensors.clear();
      if (is_first_of(setting.group, rank))
        for (const SumOperation& operation : add_sums(builder_, setting, step))
          for (const auto& [member, strand] : operation.strands)
            now_[index(member)].parts.push_back(
                {operation.blocks, strand, operation.blocks.size()});
    }
    add_shared_sums(rank, step);
  }
}

void StepSums::add_shared_sums(int rank, std::uint64_t step) {
  for (const HeldModel::SharedSum& set : held(rank).shared_sums()) {
    if (!is_first_of(set.setting.group, rank)) continue;
    for (const SumOperation& operation : add_sums(builder_, set.setting, step))
      for (const auto& [member, strand] : operation.strands) {
        const auto& theirs = held(member).shared_sums();
        for (std::size_t i = 0; i < theirs.size(); ++i)
          if (theirs[i].slot == set.slot) now_[index(member)].shared[i] = strand;
      }
  }
}

void StepSums::post(int rank, int strand, std::size_t block) {
  if (held(rank).is_fused() && !shared_are_late_) post_shared_of(rank, strand, block);
  for (OfRank::Part& part : now_[index(rank)].parts)
    if (std::ranges::find(part.blocks, block) != part.blocks.end() && --part.missing == 0)
      builder_.start(strand, part.strand);
}

void StepSums::post_shared_of(int rank, int strand, std::size_t block) {
  const auto& sets = held(rank).shared_sums();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::size_t& ready = now_[index(rank)].shared_ready[i];
    const std::size_t before = ready;
    for (const std::size_t p : sets[i].parameters)
      ready += held(rank).completing_block(p) == block ? 1 : 0;
    if (ready > before && ready == sets[i].parameters.size())
      builder_.start(strand, now_[index(rank)].shared[i]);
  }
}

void StepSums::post_all(int rank, int strand) {
  const std::vector<std::size_t>& blocks = held(rank).blocks();
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) post(rank, strand, *block);
}

void StepSums::post_shared(int rank, int strand) {
  for (const int shared : now_[index(rank)].shared) builder_.start(strand, shared);
}

void StepSums::wait_for(const OfRank& sums, int rank, int strand) {
  for (const OfRank::Part& part : sums.parts) builder_.join(strand, part.strand);
  for (const int shared : sums.shared) {
    if (!held(rank).is_fused()) builder_.start(strand, shared);
    builder_.join(strand, shared);
  }
}

void StepSums::wait_for_block_before(int rank, int strand, std::size_t block) {
  const OfRank& sums = before_[index(rank)];
  for (const OfRank::Part& part : sums.parts)
    if (std::ranges::find(part.blocks, block) != part.blocks.end())
      builder_.join(strand, part.strand);
  const auto& sets = held(rank).shared_sums();
  for (std::size_t i = 0; i < sets.size(); ++i)
    if (std::ranges::any_of(sets[i].parameters,
                            [&](std::size_t p) { return held(rank).completing_block(p) == block; }))
      builder_.join(strand, sums.shared[i]);
}

}  // namespace laconic
