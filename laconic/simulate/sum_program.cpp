#include "laconic/simulate/sum_program.hpp"

#include <algorithm>

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/reduce/method.hpp"
#include "laconic/simulate/rank_work.hpp"

namespace laconic {

namespace {

SumOperation add_codec_sum(ProgramBuilder& builder, const SumSetting& s, std::size_t block,
                           std::uint64_t step) {
  const CollectiveSpec spec =
      collective_of(s.group, s.policy, s.traffic, static_cast<std::uint32_t>(block),
                    elements_of(s.blocks[block]), s.dtype);
  return {{block}, add_collective(builder, spec, deadline_key(step + 1, block, 2))};
}

FactorWork factors_of(const SumSetting& s, const std::vector<std::size_t>& blocks) {
  const SharedLowRankSpec spec{.rank = s.policy.rank, .min_ratio = s.policy.min_ratio};
  FactorWork work;
  for (const std::size_t block : blocks)
    for (const NamedTensor& tensor : s.blocks[block].tensors)
      add_factors(spec, tensor.tensor, 1, work);
  return work;
}

// One flat sum of such an operation; nothing, without elements.
ExchangeStrands add_flat(ProgramBuilder& builder, const SumSetting& s, bool is_exact,
                         double elements, std::uint64_t key) {
  if (elements == 0) return {};
  GradientPolicy policy = s.policy;
  policy.up_feedback = policy.down_feedback = false;  // matrices remember, not their factors
  if (is_exact) policy.up = policy.down = Raw{};
  return add_collective(
      builder,
      collective_of(s.group, policy, s.traffic, 0, static_cast<std::uint64_t>(elements), s.dtype),
      key);
}

//   begin ─► raw ────────────────────────────────┐
//        └─► left ─► project ─► right ───────────┴─► finish
SumOperation add_power_sgd(ProgramBuilder& builder, const SumSetting& s,
                           std::vector<std::size_t> blocks, std::uint64_t step) {
  const FactorWork work = factors_of(s, blocks);
  const std::uint64_t key = deadline_key(step + 1, s.policy.by_block ? blocks.front() : 0, 2);
  const ExchangeStrands left = add_flat(builder, s, false, work.left, key),
                        raw = add_flat(builder, s, true, work.raw, key + 1),
                        right = add_flat(builder, s, false, work.right, key);
  SumOperation operation{std::move(blocks), {}};
  for (const Rank member : s.group) {
    const int rank = builder.class_of(member);
    if (operation.strands.contains(rank)) continue;
    const int strand = builder.add_background(rank, key, s.traffic);
    operation.strands[rank] = strand;
    const FactorSeconds seconds = builder.factor_seconds(rank, work, s.policy.up_feedback);
    const auto start = [&](const ExchangeStrands& sum) {
      if (!sum.empty()) builder.start(strand, sum.at(rank));
    };
    const auto join = [&](const ExchangeStrands& sum) {
      if (!sum.empty()) builder.join(strand, sum.at(rank));
    };
    builder.compute(strand, WorkKind::codec, seconds.begin);
    start(left);
    start(raw);
    join(left);
    builder.compute(strand, WorkKind::codec, seconds.project);
    start(right);
    join(right);
    join(raw);
    builder.compute(strand, WorkKind::codec, seconds.finish);
  }
  return operation;
}

}  // namespace

std::vector<SumOperation> add_sums(ProgramBuilder& builder, const SumSetting& s,
                                   std::uint64_t step) {
  std::vector<std::size_t> filled;
  for (std::size_t b = 0; b < s.blocks.size(); ++b)
    if (elements_of(s.blocks[b]) > 0) filled.push_back(b);
  std::vector<SumOperation> operations;
  if (s.group.size() == 1 || filled.empty()) return operations;
  if (s.policy.method == ReduceMethod::codec)
    for (const std::size_t block : filled)
      operations.push_back(add_codec_sum(builder, s, block, step));
  else if (s.policy.by_block)
    for (const std::size_t block : filled)
      operations.push_back(add_power_sgd(builder, s, {block}, step));
  else
    operations.push_back(add_power_sgd(builder, s, filled, step));
  return operations;
}

}  // namespace laconic
