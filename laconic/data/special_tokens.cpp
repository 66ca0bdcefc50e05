#include "laconic/data/special_tokens.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

struct SpecialField {
  const char* name;
  std::int32_t SpecialTokens::*id;
};

constexpr SpecialField kSpecialFields[] = {
    {"pad", &SpecialTokens::pad}, {"bos", &SpecialTokens::bos}, {"eos", &SpecialTokens::eos},
    {"cls", &SpecialTokens::cls}, {"sep", &SpecialTokens::sep}, {"mask", &SpecialTokens::mask},
    {"unk", &SpecialTokens::unk},
};

// A name is a text, or an object with the text as "content".
void add_names(const std::string& path, SpecialNames& names) {
  if (!std::filesystem::exists(path)) return;
  const nlohmann::json json = read_json(path);
  if (!json.is_object()) throw FileError(path, "", "not an object");
  for (const SpecialField& field : kSpecialFields) {
    const std::string key = fmt::format("{}_token", field.name);
    if (!json.contains(key) || json[key].is_null()) continue;
    const nlohmann::json& value = json[key];
    const nlohmann::json& text =
        value.is_object() && value.contains("content") ? value["content"] : value;
    if (!text.is_string()) throw FileError(path, key, "neither a text nor an object with content");
    names.emplace(field.name, text);
  }
}

}  // namespace

SpecialNames read_special_names(const std::string& folder) {
  SpecialNames names;
  add_names(folder + "/tokenizer_config.json", names);
  add_names(folder + "/special_tokens_map.json", names);
  return names;
}

SpecialTokens find_special_tokens(const SpecialNames& names,
                                  const std::map<std::string, std::int32_t>& ids) {
  SpecialTokens tokens;
  for (const SpecialField& field : kSpecialFields) {
    const auto name = names.find(field.name);
    if (name == names.end()) continue;
    const auto id = ids.find(name->second);
    if (id != ids.end()) tokens.*field.id = id->second;
  }
  return tokens;
}

}  // namespace laconic
