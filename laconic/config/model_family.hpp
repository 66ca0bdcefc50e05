// config/model_family.hpp — the family that a configuration asks for. Pure.
#pragma once

#include <cstdint>

#include "laconic/architecture/family.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// `vocabulary` counts when model.vocabulary is 0. Requires: model.start is empty; check(config) is.
Family family_of(const ModelSection& model, std::int64_t vocabulary);

}  // namespace laconic
