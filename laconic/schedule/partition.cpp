// partition(): dynamic programming over (stages left, first block).
//
// Three questions, each under the answer of the one before: how small the largest
// stage can be; with no stage above that, how small the sum of squares can be,
// which is what makes stages alike; and with both, which split has the longest
// first stage, then the longest second, and so on. For the first two
//
//     best[left][begin] = min over end > begin of join(sums[begin][end], best[left - 1][end])
//
// is the best value of the blocks from `begin` on in `left` stages, where join()
// makes the value of a stage's sum and the rest's: the larger of the two, or the
// square added to the rest (kNever, if the sum is above `largest`). Both grow with
// the rest, so the best of the rest is part of the best of all, which is why the
// recursion is right. The third question reads the split off the table: each stage
// takes as many blocks as it can while the value stays the best. Sums of the same
// costs in another order differ in their last bits, so "the best" means within
// kRounding of it. For B blocks that is stages * B^2 steps.
#include "laconic/schedule/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// More than sums of equal costs differ when they are added in another order: no tie may break by
// it.
constexpr double kRounding = 1 + 1e-12;

using Table = std::vector<std::vector<double>>;  // [stages left][first block]

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Multiplies by a power of two, so that no square can overflow.
std::vector<double> scaled(std::vector<double> costs) {
  const double largest = *std::ranges::max_element(costs);
  if (largest > 0)
    for (double& cost : costs) cost = std::scalbn(cost, -std::ilogb(largest));
  return costs;
}

Table sums_of_ranges(const std::vector<double>& costs) {
  Table sums(costs.size() + 1, std::vector<double>(costs.size() + 1, 0));
  for (std::size_t begin = 0; begin < costs.size(); ++begin)
    for (std::size_t end = begin; end < costs.size(); ++end)
      sums[begin][end + 1] = sums[begin][end] + costs[end];
  return sums;
}

// The table `best` of the essay above.
template <class Join>
Table best_of_rest(const Table& sums, int stages, const Join& join) {
  const std::size_t blocks = sums.size() - 1;
  Table best(index(stages) + 1, std::vector<double>(blocks + 1, kNever));
  best[0][blocks] = 0;
  for (std::size_t left = 1; left < best.size(); ++left)
    for (std::size_t begin = 0; begin < blocks; ++begin)
      for (std::size_t end = begin + 1; end <= blocks; ++end)
        best[left][begin] =
            std::min(best[left][begin], join(sums[begin][end], best[left - 1][end]));
  return best;
}

void require(const std::vector<double>& costs, int stages) {
  LACONIC_ASSERT(stages >= 1 && costs.size() >= index(stages),
                 fmt::format("{} blocks in {} stages", costs.size(), stages));
  for (const double cost : costs)
    LACONIC_ASSERT(std::isfinite(cost) && cost >= 0, fmt::format("a block costs {}", cost));
}

std::int64_t parse_layers(std::string_view text, std::string_view word) {
  std::int64_t layers = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layers);
  if (error != std::errc{} || end != word.data() + word.size() || layers < 0)
    throw ConfigError(
        fmt::format("'{}' in the split '{}' is no number of layers; expected is a "
                    "list like 2,3,3,2",
                    printable(word), printable(text)));
  return layers;
}

}  // namespace

std::vector<BlockRange> partition(const std::vector<double>& block_costs, int stages) {
  require(block_costs, stages);
  const Table sums = sums_of_ranges(scaled(block_costs));
  const double largest = best_of_rest(
      sums, stages, [](double sum, double rest) { return std::max(sum, rest); })[index(stages)][0];
  const auto squares = [&](double sum, double rest) {
    return sum <= largest * kRounding ? sum * sum + rest : kNever;
  };
  const Table best = best_of_rest(sums, stages, squares);

  std::vector<BlockRange> ranges;
  std::size_t begin = 0;
  for (std::size_t left = index(stages); left > 0; --left) {
    std::size_t end = block_costs.size();
    while (squares(sums[begin][end], best[left - 1][end]) > best[left][begin] * kRounding) --end;
    ranges.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
    begin = end;
  }
  return ranges;
}

// Multiply-adds of forward times three: backward has two products for each of forward's. A layer
// has 12 width^2 of weights, and attention's two products over half of the context on average; the
// head is one product with the vocabulary. Looking an embedding up multiplies nothing.
std::vector<std::int64_t> parse_split(std::string_view text) {
  std::vector<std::int64_t> layers;
  for (const std::string& word : split(text, ',')) layers.push_back(parse_layers(text, trim(word)));
  return layers;
}

Problems check_split(const std::vector<std::int64_t>& split, std::int64_t layers, int stages) {
  Problems problems;
  const auto problem = [&](std::string what) { problems.push_back({"split", std::move(what)}); };
  if (split.size() != index(stages))
    problem(fmt::format("{} numbers for {} stages", split.size(), stages));
  std::int64_t left = layers;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    const bool is_end = stage == 0 || stage + 1 == split.size();
    if (split[stage] == 0 && !is_end)
      problem(fmt::format("stage {} has no layer; only the first and the last of {} may have none",
                          stage, split.size()));
    if (split[stage] < 0)
      problem(fmt::format("stage {} has {} layers", stage, split[stage]));
    else
      left = split[stage] <= left ? left - split[stage] : -1;
  }
  if (left != 0)
    problem(fmt::format("{} is no split of {} layers", fmt::join(split, " + "), layers));
  return problems;
}

std::vector<BlockRange> ranges_of_split(const std::vector<std::int64_t>& split) {
  std::vector<BlockRange> ranges;
  std::int64_t begin = 0;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    std::int64_t end = begin + split[stage];
    if (stage == 0) ++end;                 // the embedding
    if (stage + 1 == split.size()) ++end;  // the head
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::vector<int> ranks_of_blocks(const Schedule& schedule, const std::vector<BlockRange>& stages) {
  std::vector<int> ranks;
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (std::int64_t b = stages[s].begin; b < stages[s].end; ++b)
      ranks.push_back(rank_of_stage(schedule, static_cast<int>(s)));
  return ranks;
}

}  // namespace laconic
