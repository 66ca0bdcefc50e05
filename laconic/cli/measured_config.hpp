// cli/measured_config.hpp — which models `laconic measure` measures beside the configuration's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"

namespace laconic {

// "all", or families with commas between them; empty: none. Without `own`, which the configuration
// has a model of. Every word that is no family is a problem.
std::vector<ModelKind> parse_families(std::string_view text, ModelKind own, Problems& problems);

// A small model of that family, on the device of the run: the preset that others begin from.
// Throws ConfigError.
RunConfig small_config(ModelKind kind, const RunSection& run, const std::string& presets_folder);

}  // namespace laconic
