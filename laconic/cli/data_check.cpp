#include "laconic/cli/data_check.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/dataset.hpp"

namespace laconic {

namespace {

std::vector<std::pair<const char*, std::string>> parts_of(const DataSection& data) {
  std::vector<std::pair<const char*, std::string>> parts = {{"data.train", data.train}};
  if (!data.valid.empty()) parts.emplace_back("data.valid", data.valid);
  return parts;
}

bool is_missing(const std::string& prefix) {
  return !std::filesystem::exists(prefix + ".idx");
}

Problem missing(const char* key, const std::string& prefix) {
  return {key, fmt::format("{}.idx does not exist: make it with `laconic prepare`, or correct {}",
                           prefix, key)};
}

std::string read_part(const char* key, const std::string& prefix, const RunConfig& config,
                      std::int64_t vocabulary) {
  const Dataset data = open_dataset(prefix, config.model.context, vocabulary, 0,
                                    {config.task.kind, config.task.next_sentence});
  return fmt::format("{}: {} tokens, {} samples of {}", key,
                     with_commas(static_cast<std::int64_t>(tokens_in(data).tokens())),
                     with_commas(static_cast<std::int64_t>(samples_in(data))),
                     config.model.context);
}

// The number of token ids that a run would take; 0: nobody says.
std::int64_t vocabulary_for(const RunConfig& config) {
  if (!config.model.start.empty()) return std::numeric_limits<std::int32_t>::max();
  if (config.model.vocabulary > 0) return config.model.vocabulary;
  const std::optional<Sidecar> sidecar = read_sidecar(config.data.train);
  return sidecar ? sidecar->vocabulary : 0;
}

}  // namespace

Problems find_missing_data(const DataSection& data) {
  Problems problems;
  for (const auto& [key, prefix] : parts_of(data))
    if (is_missing(prefix)) problems.push_back(missing(key, prefix));
  return problems;
}

DataCheck check_data(const RunConfig& config) {
  DataCheck check{.problems = find_missing_data(config.data), .facts = {}};
  if (is_missing(config.data.train)) return check;
  std::int64_t vocabulary = 0;
  const auto attempt = [&](const char* key, const auto& act) {
    try {
      act();
    } catch (const ConfigError& error) {
      append(check.problems, all_at(key, error.problems()));
    } catch (const std::exception& error) {
      check.problems.push_back({key, error.what()});
    }
  };
  attempt("data.train", [&] {
    vocabulary = vocabulary_for(config);
    if (vocabulary == 0)
      throw ConfigError(
          fmt::format("{}.json does not exist, so model.vocabulary must say how many "
                      "token ids the data has",
                      config.data.train));
  });
  if (vocabulary == 0) return check;
  for (const auto& [key, prefix] : parts_of(config.data))
    if (!is_missing(prefix))
      attempt(key, [&, key = key, prefix = prefix] {
        check.facts.push_back(read_part(key, prefix, config, vocabulary));
      });
  return check;
}

}  // namespace laconic
