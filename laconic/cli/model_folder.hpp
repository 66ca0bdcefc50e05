// cli/model_folder.hpp — finished models, as the verbs that use them take them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "laconic/cli/arguments.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

// A run folder stands for its newest good checkpoint, RUN/best for its best; anything else for
// itself. Throws FileError.
std::string model_folder(const std::string& path);

// Throws FileError, ConfigError.
Weights load_model(const ModelArguments& arguments, const std::string& folder);

// Nothing where the path is empty. Generated text may hold broken UTF-8, which JSON cannot: it is
// replaced.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace laconic
