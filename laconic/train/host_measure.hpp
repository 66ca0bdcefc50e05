// train/host_measure.hpp — what a rank measures of itself for a hosts file: how fast it computes
// the blocks of models in every precision, copies and encodes.
//
// Takes some seconds for a small model in each precision, and no more than half a minute for a
// large one: then fewer samples are measured at once, which is told.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/hosts/measured_hosts.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

struct HostMeasure {
  // Requires: check() of each is empty. The first one's rates are the device's, and its microbatch
  // is that of the run; each other's are those of its family.
  std::vector<RunConfig> models;
  int local_rank = 0;
  std::int64_t memory_bytes = 0;
  int cores = 1;                                 // of this rank's machine
  std::function<void(const std::string&)> tell;  // a line of progress, on rank 0
  double longest_seconds = 20;  // for the passes of one model in one precision, about
};

// By rank. Collective: all ranks of the world.
std::vector<MeasuredRank> measure_for_hosts(World& world, const HostMeasure& asked);

}  // namespace laconic
