// config/projection_choice.hpp — what a run cannot do with a model whose boundaries are projected
// (architecture/projection.hpp). Pure.
#pragma once

#include "laconic/architecture/family.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// Everything, each with its reason. Nothing, if no boundary is projected.
Problems check_projected(const RunConfig& config, const Family& family);

}  // namespace laconic
