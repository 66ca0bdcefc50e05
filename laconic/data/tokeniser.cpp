#include "laconic/data/tokeniser.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/bpe_file.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr std::int32_t kByteEnd = 256;
constexpr const char* kMarker = "/laconic_tokeniser.json";

// What save() said the folder holds; "bpe" for a folder it did not write.
std::string saved_kind(const std::string& path) {
  const std::string marker = path + kMarker;
  if (!fs::exists(marker)) return "bpe";
  const nlohmann::json json = read_json(marker);
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string())
    throw FileError(marker, "kind", "missing, or not a text",
                    "prepare the data again, or delete this file if vocab.json is there");
  return json["kind"];
}

}  // namespace

std::string_view to_text(TokeniserKind kind) {
  return kind == TokeniserKind::bytes ? "bytes" : "bpe";
}

Tokeniser::Tokeniser(BpeVocabulary vocabulary)
    : form_(std::make_shared<const Bpe>(std::move(vocabulary))) {}

TokeniserKind Tokeniser::kind() const {
  return std::holds_alternative<Bytes>(form_) ? TokeniserKind::bytes : TokeniserKind::bpe;
}

std::int32_t Tokeniser::vocabulary_size() const {
  if (kind() == TokeniserKind::bytes) return kByteEnd + 1;
  return static_cast<std::int32_t>(std::get<1>(form_)->vocabulary().tokens.size());
}

std::int32_t Tokeniser::end_of_document() const {
  return kind() == TokeniserKind::bytes ? kByteEnd : std::get<1>(form_)->vocabulary().end_of_text;
}

void Tokeniser::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  if (kind() == TokeniserKind::bpe) return std::get<1>(form_)->encode(text, out);
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  out.insert(out.end(), first, first + text.size());
}

std::vector<std::int32_t> Tokeniser::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, tokens);
  return tokens;
}

std::string Tokeniser::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size())
      throw ConfigError(
          fmt::format("token {} is outside the vocabulary of {}; is this the tokeniser "
                      "the data was prepared with?",
                      token, vocabulary_size()));
    if (kind() == TokeniserKind::bpe)
      text += std::get<1>(form_)->vocabulary().tokens[token];
    else if (token != kByteEnd)
      text += static_cast<char>(token);
  }
  return text;
}

void Tokeniser::save(const std::string& folder) const {
  fs::create_directories(folder);
  if (kind() == TokeniserKind::bpe) write_bpe(std::get<1>(form_)->vocabulary(), folder);
  write_atomically(folder + kMarker, fmt::format("{{\"kind\": \"{}\"}}\n", to_text(kind())));
}

Tokeniser load_tokeniser(const std::string& path) {
  if (path == "bytes") return Tokeniser();
  const std::string kind = saved_kind(path);
  if (kind == "bytes") return Tokeniser();
  if (kind != "bpe")
    throw FileError(path + kMarker, "kind",
                    fmt::format("\"{}\" is neither bytes nor bpe", printable(kind)),
                    "a newer laconic may have written it");
  return Tokeniser(read_bpe(find_bpe_files(path)));
}

bool has_tokeniser(const std::string& folder) {
  return fs::exists(folder + kMarker) || fs::exists(folder + "/vocab.json") ||
         fs::exists(folder + "/encoder.json");
}

std::string tokeniser_folder_of(const std::string& prefix) {
  const std::string own = prefix + kTokeniserEnding;
  if (fs::exists(own) || !prefix.ends_with(kValidEnding)) return own;
  return prefix.substr(0, prefix.size() - std::string_view(kValidEnding).size()) + kTokeniserEnding;
}

}  // namespace laconic
