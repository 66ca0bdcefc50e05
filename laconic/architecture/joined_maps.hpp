// architecture/joined_maps.hpp — which linear maps of a block take the same input: a grid computes
// them as one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

struct JoinedMaps {
  Role role = Role::up;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;          // of all together
  bool takes_memory = false;         // what an encoder left, not the stream
  std::vector<std::size_t> weights;  // parameters by number
};

std::vector<JoinedMaps> joined_maps(const ModelSpec& spec, const BlockSpec& block);

}  // namespace laconic
