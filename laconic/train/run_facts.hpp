// train/run_facts.hpp — what a run knows of its data, and tells whoever reads its checkpoints.
#pragma once

#include <string>

#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/data/dataset.hpp"

namespace laconic {

// Opens the training data before anything else is made: a wrong path is the likeliest mistake.
// Throws FileError.
DataFacts read_data_facts(const std::string& prefix);

// What config.json of a checkpoint says beside the model's shape: dropout, the ids that begin and
// end a text, names of classes.
FolderFacts folder_facts_of(const RunConfig& config, const Start& start, const Dataset& train);

}  // namespace laconic
