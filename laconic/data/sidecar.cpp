#include "laconic/data/sidecar.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/indexed.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

std::int64_t labels_per_record(TaskKind task) {
  switch (task) {
    case TaskKind::classify:
    case TaskKind::regress: return 1;
    case TaskKind::span: return 2;
    case TaskKind::causal:
    case TaskKind::masked:
    case TaskKind::translate: break;
  }
  return 0;
}

namespace {

constexpr std::uint64_t kFormat = 1;
constexpr const char* kPrepareOrDelete =
    "prepare the data again, or delete this file to go without";

std::uint64_t number_at(const nlohmann::json& json, const char* field, const std::string& name) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();  // others count signed
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > kMost)
    throw FileError(name, field, "missing, or not a whole number below 2^63", kPrepareOrDelete);
  return *found;
}

std::int64_t vocabulary_at(const nlohmann::json& json, const std::string& name) {
  const std::uint64_t vocabulary = number_at(json, "vocabulary", name);
  if (vocabulary < 1 || vocabulary > kMostVocabulary)
    throw FileError(name, "vocabulary",
                    fmt::format("{} is not within 1 ... {}", vocabulary, kMostVocabulary),
                    kPrepareOrDelete);
  return static_cast<std::int64_t>(vocabulary);
}

std::string text_at(const nlohmann::json& json, const char* field, const std::string& name) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string())
    throw FileError(name, field, "missing, or not a text", kPrepareOrDelete);
  return *found;
}

nlohmann::ordered_json to_json(const SpecialTokens& special) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, member] : kSpecialTokens)
    if (special.*member != kNoToken) json[std::string(name)] = special.*member;
  return json;
}

nlohmann::ordered_json to_json(const RecordInfo& records) {
  nlohmann::ordered_json json = {{"task", name_in(kTaskKindNames, records.task)},
                                 {"parts", records.parts},
                                 {"labels_per_record", records.labels_per_record}};
  if (!records.label_names.empty()) json["label_names"] = records.label_names;
  if (records.labels_per_record > 0) json["labels_xxh3"] = records.labels_xxh3;
  return json;
}

SpecialTokens special_at(const nlohmann::json& json, std::int64_t vocabulary,
                         const std::string& name) {
  SpecialTokens special;
  const auto found = json.find("special");
  if (found == json.end()) return special;
  if (!found->is_object()) throw FileError(name, "special", "not an object", kPrepareOrDelete);
  for (const auto& [token, member] : kSpecialTokens) {
    const std::string key(token);
    if (!found->contains(key)) continue;
    const std::uint64_t id = number_at(*found, key.c_str(), name);
    if (id >= static_cast<std::uint64_t>(vocabulary))
      throw FileError(name, "special." + key,
                      fmt::format("{} is outside the vocabulary of {}", id, vocabulary),
                      kPrepareOrDelete);
    special.*member = static_cast<std::int32_t>(id);
  }
  return special;
}

bool has_parts(TaskKind task, std::uint64_t parts) {
  if (task == TaskKind::masked) return parts == 0;
  if (task == TaskKind::classify || task == TaskKind::regress) return parts == 1 || parts == 2;
  return parts == 2;
}

std::vector<std::string> names_at(const nlohmann::json& json, const std::string& name) {
  std::vector<std::string> names;
  const auto found = json.find("label_names");
  const bool is_list = found != json.end() && found->is_array() && !found->empty();
  for (const auto& one : is_list ? *found : nlohmann::json::array()) {
    if (!one.is_string()) throw FileError(name, "label_names", "not all texts", kPrepareOrDelete);
    names.push_back(one);
  }
  if (names.empty())
    throw FileError(name, "label_names", "missing, or not a list of texts", kPrepareOrDelete);
  return names;
}

std::optional<RecordInfo> records_at(const nlohmann::json& json, const std::string& name) {
  const auto found = json.find("records");
  if (found == json.end()) return {};
  if (!found->is_object()) throw FileError(name, "records", "not an object", kPrepareOrDelete);
  const std::string text = text_at(*found, "task", name);
  const std::optional<TaskKind> task = value_in(kTaskKindNames, text);
  if (!task || *task == TaskKind::causal)
    throw FileError(name, "records.task", fmt::format("\"{}\" is not known", printable(text)),
                    "a newer laconic may have written it");
  RecordInfo records{.task = *task};
  const std::uint64_t parts = number_at(*found, "parts", name);
  const std::uint64_t labels = number_at(*found, "labels_per_record", name);
  if (!has_parts(*task, parts) || labels != static_cast<std::uint64_t>(labels_per_record(*task)))
    throw FileError(name, "records",
                    fmt::format("{} parts and {} labels are not what {} has", parts, labels, text),
                    kPrepareOrDelete);
  records.parts = static_cast<std::int64_t>(parts);
  records.labels_per_record = static_cast<std::int64_t>(labels);
  if (*task == TaskKind::classify) records.label_names = names_at(*found, name);
  if (labels > 0) records.labels_xxh3 = text_at(*found, "labels_xxh3", name);
  return records;
}

}  // namespace

std::string to_text(const Sidecar& sidecar) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"tokeniser", sidecar.tokeniser},
                                 {"vocabulary", sidecar.vocabulary},
                                 {"documents", sidecar.documents},
                                 {"tokens", sidecar.tokens},
                                 {"bytes", sidecar.bytes},
                                 {"bin_xxh3", sidecar.bin_xxh3}};
  if (sidecar.prompts > 0) json["prompts"] = sidecar.prompts;
  if (sidecar.special != SpecialTokens{}) json["special"] = to_json(sidecar.special);
  if (sidecar.records) json["records"] = to_json(*sidecar.records);
  return json.dump(2) + "\n";
}

Sidecar parse_sidecar(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name, kPrepareOrDelete);
  if (!json.is_object()) throw FileError(name, "", "not a JSON object", kPrepareOrDelete);
  if (const std::uint64_t format = number_at(json, "format", name); format != kFormat)
    throw FileError(name, "format", fmt::format("{}; known is {}", format, kFormat),
                    "a newer laconic may have written it");
  Sidecar sidecar;
  sidecar.tokeniser = text_at(json, "tokeniser", name);
  sidecar.vocabulary = vocabulary_at(json, name);
  sidecar.documents = number_at(json, "documents", name);
  sidecar.tokens = number_at(json, "tokens", name);
  sidecar.bytes = number_at(json, "bytes", name);
  sidecar.bin_xxh3 = text_at(json, "bin_xxh3", name);
  if (json.contains("prompts")) sidecar.prompts = number_at(json, "prompts", name);
  sidecar.special = special_at(json, sidecar.vocabulary, name);
  sidecar.records = records_at(json, name);
  return sidecar;
}

std::optional<Sidecar> read_sidecar(const std::string& prefix) {
  const std::string path = prefix + ".json";
  if (!std::filesystem::exists(path)) return {};
  return parse_sidecar(MappedFile(path).text(), path);
}

void verify_dataset(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  const std::optional<Sidecar> sidecar = read_sidecar(prefix);
  if (!sidecar)
    throw FileError(prefix + ".json", "", "missing: there is no checksum to verify against",
                    "data from elsewhere has none; prepare it with laconic to have one");
  if (sidecar->tokens != dataset.tokens())
    throw FileError(prefix + ".json", "tokens",
                    fmt::format("{}, but the .bin file has {}", sidecar->tokens, dataset.tokens()),
                    "prepare the data again");
  const auto verify_file = [&](const std::string& path, const std::string& expected) {
    const std::string sum = checksum_of_file(path);
    if (sum != expected)
      throw FileError(path, "xxh3",
                      fmt::format("{}, should be {}: the file is damaged", sum, expected),
                      "prepare the data again");
  };
  verify_file(prefix + ".bin", sidecar->bin_xxh3);
  if (sidecar->records && sidecar->records->labels_per_record > 0)
    verify_file(prefix + ".labels", sidecar->records->labels_xxh3);
}

}  // namespace laconic
