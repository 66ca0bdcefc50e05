// checkpoint/link_state.hpp — what the links of each rank remember, as files of a checkpoint.
//
//   FOLDER/step-00000100/rank-00003.pp.*
//
// References are too much to send: they are saved only where every rank sees the folder. The two
// ends of a link must remember the same, so that all ranks load theirs, or none does.
#pragma once

#include <string>

#include "laconic/checkpoint/rank_state.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// Saves nothing where some rank does not see the folder. Collective. Throws std::runtime_error on
// rank 0, which names the first rank that failed.
void add_link_files(World& world, const RankFolder& folder, const LinkRegistry& links);

// Returns what a user should know; empty: all is loaded. `checkpoint` is empty where there is none
// whose links were like ours. Collective. Throws FileError.
std::string load_link_files(World& world, const std::string& checkpoint, const LinkRegistry& links);

}  // namespace laconic
