// model/folder_convention.hpp — how a family's Hugging Face folders look; asked for by
// hugging_face.cpp alone, answered in a file of each family (gpt_folder.cpp, llama_folder.cpp),
// which read their config.json by folder_config.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/base/text.hpp"
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
  // One of these names.
  template <class Enum, std::size_t kSize>
  Enum choice(const char* key, const std::array<Named<Enum>, kSize>& names) {
    const std::string given = text(key, "");
    if (const std::optional<Enum> value = value_in(names, given)) return *value;
    refuse_choice(key, given, join(names_in(names), ", "));
    return names.front().value;
  }
  // The object under the key; empty when there is none.
  FolderConfig part(const char* key);
  std::size_t size() const { return json_.size(); }  // keys
  bool is_empty() const { return json_.empty(); }
  // Absent or null is fine; anything else must be one of `accepted`.
  void require(const char* key, std::initializer_list<nlohmann::json> accepted);
  bool has(const char* key) const { return json_.contains(key); }  // null counts
  void skip(const char* key) { seen_.insert(key); }
  // Asks for the keys that Transformers 2 to 5 write for any model. Most say nothing about what is
  // computed here; of the others only what changes nothing is fine.
  void take_generic();
  // A key that nobody has asked for, and that is none of these, may want something that is not
  // computed here.
  void refuse_unknown(std::span<const std::string_view> harmless);
  void problem(const std::string& key, const std::string& what);
  void take_problems(FolderConfig& part);
  void finish();  // throws ConfigError with all of it

 private:
  FolderConfig(std::string path, nlohmann::json json)
      : path_(std::move(path)), json_(std::move(json)) {}
  void refuse_choice(const char* key, const std::string& given, const std::string& names);
  // Null when it is absent.
  const nlohmann::json* find(const char* key);

  std::string path_;
  nlohmann::json json_;
  std::set<std::string, std::less<>> seen_;
  Problems problems_;
};

struct FolderConvention {
  const char* family = "";                // for messages: "GPT-2"
  std::string prefix;                     // of names, which some folders leave out
  std::vector<std::string> ignored_ends;  // of names that are no parameters
  std::vector<std::pair<std::string, std::string>> copies;  // a name, and the parameter it repeats
  // Ends of names, and what older folders have instead.
  std::vector<std::pair<std::string, std::string>> older_ends = {};
  std::vector<std::string> head_parts = {};  // what the names of a head's parameters begin with
};
FolderConvention convention_of(const GptShape& shape);
FolderConvention convention_of(const LlamaShape& shape);
FolderConvention convention_of(const BertShape& shape);
FolderConvention convention_of(const Seq2SeqShape& shape);
FolderConvention convention_of(const LstmShape& shape);
FolderConvention convention_of(const GnmtShape& shape);

GptShape read_gpt_shape(FolderConfig& config);
LlamaShape read_llama_shape(FolderConfig& config);
BertShape read_bert_shape(FolderConfig& config);
Seq2SeqShape read_seq2seq_shape(FolderConfig& config);
LstmShape read_lstm_shape(FolderConfig& config);
GnmtShape read_gnmt_shape(FolderConfig& config);

// The model_type of what no one else reads.
inline constexpr const char* kSeq2SeqType = "laconic-seq2seq";
inline constexpr const char* kLstmType = "laconic-lstm";
inline constexpr const char* kGnmtType = "laconic-gnmt";

nlohmann::ordered_json config_json(const GptShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const LlamaShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const BertShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const Seq2SeqShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const LstmShape& shape, const FolderFacts& facts,
                                   const char* dtype);
nlohmann::ordered_json config_json(const GnmtShape& shape, const FolderFacts& facts,
                                   const char* dtype);

}  // namespace laconic
