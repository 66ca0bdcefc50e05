// architecture/grid_place.hpp — what one rank holds of a model: which blocks, and which part of
// each parameter. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/layout/replica_cut.hpp"

namespace laconic {

// Where in a tensor grid a rank holds its parts of parameters; as a rule there is none, and they
// are whole.
struct GridPlace {
  GridPlan plan = {};
  Coord coord = {};
  // Tables whose rows are looked up, and no more (ParameterSpec::looked_up_by), and travel.
  ReplicaCuts tables = {};
};

// Which blocks somebody holds, by block; empty: all.
using HeldBlocks = std::vector<bool>;

// Whether a rank has some rows of the parameter, whole.
bool is_dealt(const GridPlace& place, const ParameterSpec& parameter);
// What a rank at `place` holds of a parameter: its shard of cut_sizes() (layout/grid_plan.hpp).
// Requires: rows are not dealt.
std::vector<Range> shard_at(const GridPlace& place, const ParameterSpec& parameter);
Layout layout_at(const GridPlace& place, const ParameterSpec& parameter);
std::vector<std::int64_t> sizes_at(const GridPlace& place, const ParameterSpec& parameter);

// The same as runs of elements: also where rows are dealt, which no ranges are.
std::vector<ShardRun> runs_at(const GridPlace& place, const ParameterSpec& parameter);

}  // namespace laconic
