// train/host_measure.hpp — what a rank measures of itself for a hosts file: how fast it computes
// the blocks of a model, copies and encodes. Takes a few seconds.
#pragma once

#include <c10/core/TensorOptions.h>

#include <cstdint>

#include "laconic/architecture/family.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/hosts/measured_hosts.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// By rank. Collective: all ranks of the world. Requires: the configuration's microbatch fits.
// `cores` are those of this rank's machine.
std::vector<MeasuredRank> measure_for_hosts(World& world, const RunConfig& config,
                                            const Family& family, const at::TensorOptions& options,
                                            std::int64_t memory_bytes, int cores);

}  // namespace laconic
