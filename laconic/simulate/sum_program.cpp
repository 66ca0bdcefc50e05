#include "laconic/simulate/sum_program.hpp"

#include <algorithm>

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/reduce/method.hpp"
#include "laconic/reduce/shared_low_rank.hpp"

namespace laconic {

namespace {

SumOperation add_codec_sum(ProgramBuilder& builder, const SumSetting& s, std::size_t block,
                           std::uint64_t step) {
  const CollectiveSpec spec =
      collective_of(s.group, s.policy, s.traffic, static_cast<std::uint32_t>(block),
                    elements_of(s.blocks[block]), s.dtype);
  return {{block}, add_collective(builder, spec, deadline_key(step + 1, block, 2))};
}

// The factors of some blocks; what stays raw beside them.
struct FactorCounts {
  double left = 0, right = 0, raw = 0;
  double multiply_adds = 0;  // of one product with all matrices
};

FactorCounts count_factors(const SumSetting& s, const std::vector<std::size_t>& blocks) {
  const SharedLowRankSpec spec{.rank = s.policy.rank, .min_ratio = s.policy.min_ratio};
  FactorCounts counts;
  for (const std::size_t block : blocks)
    for (const NamedTensor& tensor : s.blocks[block].tensors) {
      const auto elements = static_cast<double>(elements_of(tensor.tensor));
      const auto rank = static_cast<double>(factor_rank(spec, tensor.tensor));
      if (rank == 0) {
        counts.raw += elements;
        continue;
      }
      const auto rows = static_cast<double>(tensor.tensor.shape[0]);
      counts.left += rows * rank;
      counts.right += elements / rows * rank;
      counts.multiply_adds += elements * rank;
    }
  return counts;
}

// One flat sum of such an operation; nothing, without elements.
ExchangeStrands add_flat(ProgramBuilder& builder, const SumSetting& s, bool is_exact,
                         double elements, std::uint64_t key) {
  if (elements == 0) return {};
  GradientPolicy policy = s.policy;
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
  const FactorCounts counts = count_factors(s, blocks);
  const std::uint64_t key = deadline_key(step + 1, s.policy.by_block ? blocks.front() : 0, 2);
  const ExchangeStrands left = add_flat(builder, s, false, counts.left, key),
                        raw = add_flat(builder, s, true, counts.raw, key + 1),
                        right = add_flat(builder, s, false, counts.right, key);
  SumOperation operation{std::move(blocks), {}};
  for (const Rank member : s.group) {
    const int rank = builder.class_of(member);
    if (operation.strands.contains(rank)) continue;
    const int strand = builder.add_background(rank, key, s.traffic);
    operation.strands[rank] = strand;
    const double product = builder.multiply_add_seconds(rank, counts.multiply_adds);
    const auto start = [&](const ExchangeStrands& sum) {
      if (!sum.empty()) builder.start(strand, sum.at(rank));
    };
    const auto join = [&](const ExchangeStrands& sum) {
      if (!sum.empty()) builder.join(strand, sum.at(rank));
    };
    builder.compute(strand, WorkKind::codec, product);
    start(left);
    start(raw);
    join(left);
    builder.compute(strand, WorkKind::codec, product);
    start(right);
    join(right);
    join(raw);
    builder.compute(strand, WorkKind::codec, product);
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
