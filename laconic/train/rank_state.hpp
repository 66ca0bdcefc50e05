// train/rank_state.hpp — what each rank alone remembers, as files of a checkpoint.
//
//   FOLDER/step-00000100/rank-00003.safetensors
//
// Each rank writes its own file into the folder that rank 0 is filling, if it
// sees that folder. A rank on a machine that does not share it sends the bytes
// to rank 0, which costs the network what it costs.
#pragma once

#include <string>
#include <vector>

#include "laconic/train/update_rule.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

// Collective. `folder` counts on rank 0 only.
void add_rank_files(World& world, const std::string& folder, const RankTensors& mine);

// What all ranks saved there, by rank; empty when there is nothing. Throws FileError.
std::vector<RankTensors> read_rank_states(const std::string& checkpoint);

}  // namespace laconic
