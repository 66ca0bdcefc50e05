// checkpoint/rank_state.hpp — what each rank alone remembers, as files of a checkpoint.
//
//   FOLDER/step-00000100/rank-00003.safetensors
//
// Each rank writes its own file into the folder that rank 0 is filling, if it
// sees that folder. A rank on a machine that does not share it sends the bytes
// to rank 0, which costs the network what it costs.
#pragma once

#include <string>
#include <vector>

#include "laconic/runtime/link_registry.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// The folder that rank 0 is filling, as the others see it.
struct RankFolder {
  std::string path;      // absolute, on rank 0's machine
  bool is_seen = false;  // from here
  bool is_seen_by_all = false;
  std::vector<bool> seen;  // by rank
};
// Collective. `folder` counts on rank 0 only.
RankFolder find_rank_folder(World& world, const std::string& folder);

// Collective.
void add_rank_files(World& world, const RankFolder& folder, const RankTensors& mine);

// What all ranks saved there, by rank; empty when there is nothing. Throws FileError.
std::vector<RankTensors> read_rank_states(const std::string& checkpoint);

}  // namespace laconic
