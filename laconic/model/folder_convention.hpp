// model/folder_convention.hpp — how a family's Hugging Face folders look; asked for by
// hugging_face.cpp alone, answered in a file of each family (gpt_folder.cpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/model/hugging_face.hpp"

namespace laconic {

// Reads config.json and remembers everything that is wrong with it.
class FolderConfig {
 public:
  explicit FolderConfig(const std::string& path);  // throws FileError

  std::int64_t size(const char* key);
  double number(const char* key, double otherwise);
  // Absent or null is fine; anything else must be one of `accepted`.
  void require(const char* key, std::initializer_list<nlohmann::json> accepted);
  void problem(const std::string& key, const std::string& what);
  void finish();  // throws ConfigError with all of it

 private:
  std::string path_;
  nlohmann::json json_;
  Problems problems_;
};

struct FolderConvention {
  const char* family = "";                                  // for messages: "GPT-2"
  std::string prefix;                                       // that may stand before every name
  std::vector<std::string> ignored_ends;                    // of names that are no parameters
  std::vector<std::pair<std::string, std::string>> copies;  // a name, and the parameter it repeats
};
FolderConvention convention_of(const GptShape& shape);

GptShape read_gpt_shape(FolderConfig& config);
nlohmann::ordered_json config_json(const GptShape& shape, const FolderFacts& facts,
                                   const char* dtype);

}  // namespace laconic
