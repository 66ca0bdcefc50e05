// config/grid_choice.hpp — the grid that a configuration asks for: `mesh.tp`, `mesh.order`,
// [tensor].
//
//   tp = 1            no tensor parallelism
//   tp = 8            the grid that 8 ranks mean to tensor.method: 2 x 2 x 2 to "3d"
//   tp = [2, 4, 1]    so many ranks along the axes tp0, tp1 and tp2
//
//   order = "auto"    the axis that carries least in forward is outermost, the one with most
//                     innermost, where links are fastest
//   order = [2, 0, 1] tp2 is outermost
//
//   table = "auto"    of both ways to cut the table of tokens the one that moves fewer bytes
//
// Pure.
#pragma once

#include <array>
#include <string_view>

#include "laconic/architecture/family.hpp"
#include "laconic/architecture/grid_cost.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

std::array<int, 3> parse_grid(std::string_view text, TensorMethod method);  // throws ConfigError
std::array<int, 3> parse_order(std::string_view text);                      // throws ConfigError
// Whether there is a grid of several ranks, or what is asked for cannot be one.
bool has_grid(const RunConfig& config);

// Requires, for all of these: check_grid_texts(config) is empty, and so is check(family).
std::array<int, 3> grid_of(const RunConfig& config);
// Requires: check(config) is empty.
std::array<int, 3> order_of(const RunConfig& config);
// The mesh of the plan has `tp` alone.
GridPlan grid_plan_of(const RunConfig& config, const Family& family);

// Of what moves: sums of short floats are made in float32, and travel so (grid/grid.hpp), as
// numbers of a loss do.
Dtype message_dtype(const RunConfig& config, const GridTraffic& traffic);

// Every reason why the grid cannot be, whatever the model is.
Problems check_grid_texts(const RunConfig& config);
// That, and every reason why it cannot cut this model and these microbatches.
Problems check_grid_alone(const RunConfig& config, const Family& family);
// The same, with grids of as many ranks that could, or where there are none with the nearest
// numbers of ranks and other methods that can. With model.start check() leaves this to whoever has
// read the folder.
Problems check_grid(const RunConfig& config, const Family& family);

}  // namespace laconic
