// schedule/partition.hpp — how the blocks of a model are dealt out to stages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

struct BlockRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // one past the last
  bool operator==(const BlockRange&) const = default;
};

// Contiguous, none empty, with the smallest possible maximum of the stages' sums; among those the
// smallest sum of squares, and then the one whose early stages are longest.
// Requires: costs.size() >= stages >= 1, no cost negative or not finite.
std::vector<BlockRange> partition(const std::vector<double>& block_costs, int stages);

// "2,3,3,2": layers of each stage; the embedding comes with the first, the head with the last.
// Throws ConfigError when it is no such list.
std::vector<std::int64_t> parse_split(std::string_view text);
// Every reason why these numbers are no split of so many layers (only the first and the last stage
// may have none).
Problems check_split(const std::vector<std::int64_t>& split, std::int64_t layers, int stages);
std::vector<BlockRange> ranges_of_split(const std::vector<std::int64_t>& split);

// The rank of the pipeline that holds each block, when stages have these.
std::vector<int> ranks_of_blocks(const Schedule& schedule, const std::vector<BlockRange>& stages);

}  // namespace laconic
