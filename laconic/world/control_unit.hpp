// world/control_unit.hpp — units of control traffic while training: no two senders share a tag.
#pragma once

#include <cstdint>

namespace laconic {

// 0 is the start-up's.
constexpr std::uint32_t kExchangeUnit = 1;   // what all ranks tell each other (world/world.hpp)
constexpr std::uint32_t kRankStateUnit = 2;  // a rank's own (checkpoint/rank_state.hpp)
constexpr std::uint32_t kCollectUnit = 3;    // tensors for a checkpoint (checkpoint/collect.hpp)
constexpr std::uint32_t kNoteUnit = 5;       // what they hear of later (world/world.hpp)
constexpr std::uint32_t kDecisionUnit = 4;   // what one rank decides for all (world/world.hpp)

}  // namespace laconic
