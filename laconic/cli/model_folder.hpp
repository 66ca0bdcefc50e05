// cli/model_folder.hpp — finished models, as the verbs that use them take them: whole in this
// process, or on a tensor grid, of which it is a rank.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "laconic/cli/arguments.hpp"
#include "laconic/train/used_model.hpp"

namespace laconic {

// A run folder stands for its newest good checkpoint, RUN/best for its best; anything else for
// itself. Throws FileError.
std::string model_folder(const std::string& path);

// Loads the model, with the other ranks of the grid that the words ask for, if they do, and lets
// `use` have it; on a grid all ranks do the same, and rank 0 alone talks to people and writes
// files. Throws FileError, ConfigError, PeerLost, Timeout and what `use` does.
using UseModel = std::function<void(const UsedModel& model)>;
void with_model(const ModelArguments& arguments, const UseModel& use);

// Nothing where the path is empty, or another rank writes it. Generated text may hold broken UTF-8,
// which JSON cannot: it is replaced.
void write_json(const std::string& path, const nlohmann::ordered_json& json,
                const ModelRanks& ranks);

}  // namespace laconic
