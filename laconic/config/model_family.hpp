// config/model_family.hpp — the family that a configuration asks for. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "laconic/architecture/family.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// What the data tells; counts where the configuration says 0.
struct DataSizes {
  std::int64_t vocabulary = 0;
  std::int64_t labels = 0;
};

// The head of a BERT follows from the task. Requires: model.start is empty; check(config) is.
Family family_of(const RunConfig& config, const DataSizes& sizes);

// Boundaries that the configuration projects, with its seed: behind the layers of
// model.project_after, or, with learned codes of pp.activation, where stages end.
Projection projection_in(const RunConfig& config);
// Whether pp.activation asks for learned codes. A run that goes on from a model with codes has them
// where that has, wherever its own stages end.
bool has_boundary_codes(const RunConfig& config);
// What learned maps of boundaries begin as.
CodeBegin boundary_start(const RunConfig& config);

// Nothing, if the text is another codec, or none, which is said elsewhere.
std::optional<AutoEncoder> learned_codec(std::string_view text);

// Blocks of that family between the first and the last (architecture/family.hpp).
std::int64_t layers_between(const ModelSection& model);

// Why a model of this family cannot do the run's task, if it cannot.
Problems check_task(const Family& family, const RunConfig& config);

// What a model is asked by default: the other way round.
TaskSection task_for(const Family& family);

// The same model with the head that the task needs, for whoever begins from a folder.
Family with_head(const Family& family, const RunConfig& config, const DataSizes& sizes);

}  // namespace laconic
