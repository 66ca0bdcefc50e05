// model/folder_convention.hpp — how a family's Hugging Face folders look; asked for by
// hugging_face.cpp alone, answered in a file of each family (gpt_folder.cpp, llama_folder.cpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
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
  // For what may be absent or null, `otherwise` stands.
  std::int64_t size(const char* key, std::int64_t otherwise);
  double number(const char* key, double otherwise);
  bool flag(const char* key, bool otherwise);
  std::string text(const char* key, const std::string& otherwise);
  std::vector<std::string> texts(const char* key);
  // The object under the key; empty when there is none.
  FolderConfig part(const char* key);
  bool is_empty() const { return json_.empty(); }
  // Absent or null is fine; anything else must be one of `accepted`.
  void require(const char* key, std::initializer_list<nlohmann::json> accepted);
  void skip(const char* key) { seen_.insert(key); }
  // A key that nobody has asked for, and that is none of these, may want something that is not
  // computed here.
  void refuse_unknown(std::span<const std::string_view> harmless);
  void problem(const std::string& key, const std::string& what);
  void take_problems(FolderConfig& part);
  void finish();  // throws ConfigError with all of it

 private:
  FolderConfig(std::string path, nlohmann::json json)
      : path_(std::move(path)), json_(std::move(json)) {}
  // Null when it is absent.
  const nlohmann::json* find(const char* key);

  std::string path_;
  nlohmann::json json_;
  std::set<std::string, std::less<>> seen_;
  Problems problems_;
};

struct FolderConvention {
  const char* family = "";                                  // for messages: "GPT-2"
  std::string prefix;                                       // that may stand before every name
  std::vector<std::string> ignored_ends;                    // of names that are no parameters
  std::vector<std::pair<std::string, std::string>> copies;  // a name, and the parameter it repeats
};
FolderConvention convention_of(const GptShape& shape);
FolderConvention convention_of(const LlamaShape& shape);

GptShape read_gpt_shape(FolderConfig& config);
LlamaShape read_llama_shape(FolderConfig& config);

nlohmann::ordered_json config_json(const GptShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const LlamaShape& shape, const FolderFacts& facts,
                                   const char* dtype);

}  // namespace laconic
