// architecture/parameter_place.hpp — what one rank holds of a parameter. Pure and std only.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/layout/layout.hpp"
#include "laconic/layout/replica_cut.hpp"

namespace laconic {

// Where in a tensor grid a rank holds its parts of parameters; as a rule there is none, and they
// are whole.
struct GridPlace {
  GridPlan plan = {};
  Coord coord = {};
  // Tables whose rows are looked up, and no more (ParameterSpec::looked_up_by), that replicas
  // share.
  ReplicaCuts tables = {};
};

// What a rank at `place` holds of a parameter: its shard of cut_sizes() (layout/grid_plan.hpp).
// Requires: rows are not dealt.
std::vector<Range> shard_at(const GridPlace& place, const ParameterSpec& parameter);
Layout layout_at(const GridPlace& place, const ParameterSpec& parameter);
std::vector<std::int64_t> sizes_at(const GridPlace& place, const ParameterSpec& parameter);

}  // namespace laconic
