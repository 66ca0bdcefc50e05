#include "laconic/data/sidecar.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/data/indexed.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

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
  if (const std::string sum = checksum_of_file(prefix + ".bin"); sum != sidecar->bin_xxh3)
    throw FileError(prefix + ".bin", "xxh3",
                    fmt::format("{}, should be {}: the file is damaged", sum, sidecar->bin_xxh3),
                    "prepare the data again");
}

}  // namespace laconic
