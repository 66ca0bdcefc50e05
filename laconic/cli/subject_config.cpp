#include "laconic/cli/subject_config.hpp"

#include <filesystem>

#include "laconic/data/dataset.hpp"

namespace laconic {

namespace {

Problems check_vocabulary(RunConfig& config) {
  if (config.model.vocabulary > 0) return {};
  if (!config.data.train.empty() && std::filesystem::exists(config.data.train + ".json"))
    if (const auto sidecar = read_sidecar(config.data.train))
      config.model.vocabulary = sidecar->vocabulary;
  if (config.model.vocabulary > 0) return {};
  return {{"model.vocabulary",
           "neither the configuration nor its data says how many token ids there are: give it, "
           "as in --set model.vocabulary=50257"}};
}

}  // namespace

Problems check_subject(RunConfig& config) {
  Problems problems = check_vocabulary(config);
  if (!config.model.start.empty())
    problems.push_back(
        {"model.start", "is a folder, which is not read here: give the sizes in [model]"});
  if (config.data.train.empty()) config.data.train = "none";  // nobody reads it
  append(problems, check(config));
  return problems;
}

}  // namespace laconic
