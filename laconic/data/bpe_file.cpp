#include "laconic/data/bpe_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace {

constexpr const char* kFetchAgain = "fetch the vocabulary again";
constexpr std::string_view kVersionLine = "#version";

using IdOfToken = std::unordered_map<std::string, std::int32_t>;  // keys in symbols

std::string field_of(std::string_view symbols) {
  return fmt::format("token \"{}\"", printable(symbols));
}

std::int32_t id_in(const nlohmann::json& value, const std::string& symbols,
                   const std::string& path) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() < kMostVocabulary) return value;
  throw FileError(path, field_of(symbols),
                  fmt::format("its id {} is not a whole number below {}", printable(value.dump()),
                              kMostVocabulary),
                  kFetchAgain);
}

IdOfToken parse_tokens(std::string_view text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path, kFetchAgain);
  if (!json.is_object()) throw FileError(path, "", "not an object of token: id", kFetchAgain);
  IdOfToken ids;
  ids.reserve(json.size());
  for (const auto& [symbols, value] : json.items())
    ids.emplace(symbols, id_in(value, symbols, path));
  return ids;
}

std::vector<std::string> order_by_id(const IdOfToken& ids, const std::string& path) {
  std::vector<std::string> tokens(ids.size());
  std::vector<const std::string*> holder(ids.size());
  for (const auto& [symbols, id] : ids) {
    if (static_cast<std::size_t>(id) >= ids.size())
      throw FileError(path, field_of(symbols),
                      fmt::format("id {} with {} tokens; ids must be 0 ... {}, once each", id,
                                  ids.size(), ids.size() - 1),
                      kFetchAgain);
    if (const std::string* other = std::exchange(holder[id], &symbols))
      throw FileError(path, field_of(symbols),
                      fmt::format("id {} is also that of \"{}\"", id, printable(*other)),
                      kFetchAgain);
    std::optional<std::string> bytes = parse_symbols(symbols);
    if (!bytes || bytes->empty())
      throw FileError(path, field_of(symbols), "not written in GPT-2's byte symbols",
                      "laconic reads byte-level BPE vocabularies only");
    tokens[id] = std::move(*bytes);
  }
  return tokens;
}

std::int32_t require(const IdOfToken& ids, const std::string& symbols, const std::string& what,
                     const std::string& path) {
  const auto found = ids.find(symbols);
  if (found == ids.end()) throw FileError(path, field_of(symbols), what, kFetchAgain);
  return found->second;
}

void require_all_bytes(const IdOfToken& ids, const std::string& path) {
  for (const std::uint8_t byte : bytes_in_symbol_order())
    require(ids, to_symbols({reinterpret_cast<const char*>(&byte), 1}),
            fmt::format("missing; it stands for byte 0x{:02x}, and all 256 are needed", byte),
            path);
}

struct MergeReader {
  const IdOfToken& ids;
  const BpePaths& names;
  IdOfToken seen;  // "left right" -> line

  BpeMerge read(std::string_view line, std::int32_t number) {
    const std::string field = fmt::format("line {}", number);
    const std::size_t gap = line.find(' ');
    if (gap == std::string_view::npos || gap == 0 || gap + 1 == line.size() ||
        line.find(' ', gap + 1) != std::string_view::npos)
      throw FileError(names.merges, field, fmt::format("\"{}\" is not two tokens", printable(line)),
                      kFetchAgain);
    if (const auto [twin, is_new] = seen.emplace(line, number); !is_new)
      throw FileError(names.merges, field,
                      fmt::format("\"{}\" is line {}, too", printable(line), twin->second),
                      kFetchAgain);
    const std::string left(line.substr(0, gap)), right(line.substr(gap + 1));
    return {id_of(left, field), id_of(right, field), id_of(left + right, field)};
  }

  std::int32_t id_of(const std::string& symbols, const std::string& field) const {
    const auto found = ids.find(symbols);
    if (found != ids.end()) return found->second;
    throw FileError(names.merges, field,
                    fmt::format("\"{}\" is no token of {}", printable(symbols), names.tokens),
                    "the two files must come from the same vocabulary");
  }
};

std::vector<BpeMerge> parse_merges(std::string_view text, const IdOfToken& ids,
                                   const BpePaths& names) {
  std::vector<BpeMerge> merges;
  MergeReader reader{ids, names, {}};
  for (std::int32_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool is_header = number == 1 && line.starts_with(kVersionLine);
    if (!line.empty() && !is_header) merges.push_back(reader.read(line, number));
  }
  return merges;
}

}  // namespace

BpePaths find_bpe_files(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string stem = fs::is_directory(path) ? path + "/" : path;
  for (const auto& [tokens, merges] :
       {std::pair{"vocab.json", "merges.txt"}, std::pair{"encoder.json", "vocab.bpe"}}) {
    const bool has_tokens = fs::exists(stem + tokens), has_merges = fs::exists(stem + merges);
    if (has_tokens && has_merges) return {stem + tokens, stem + merges};
    if (has_tokens || has_merges)
      throw FileError(stem + (has_tokens ? merges : tokens), "",
                      fmt::format("missing, but {} is there", has_tokens ? tokens : merges),
                      "a vocabulary is both files");
  }
  throw FileError(
      path, "", "neither vocab.json and merges.txt nor encoder.json and vocab.bpe are there",
      "give the word \"bytes\", a folder with tokenizer.json, vocab.txt or tokenizer.model, or a "
      "folder or prefix that holds one of these pairs");
}

BpeVocabulary parse_bpe(std::string_view tokens_text, std::string_view merges_text,
                        const BpePaths& names) {
  const IdOfToken ids = parse_tokens(tokens_text, names.tokens);
  BpeVocabulary vocabulary;
  vocabulary.tokens = order_by_id(ids, names.tokens);
  require_all_bytes(ids, names.tokens);
  vocabulary.end_of_text = require(ids, std::string(kEndOfText),
                                   "missing; it marks the end of a document", names.tokens);
  vocabulary.merges = parse_merges(merges_text, ids, names);
  return vocabulary;
}

BpeVocabulary read_bpe(const BpePaths& paths) {
  return parse_bpe(MappedFile(paths.tokens).text(), MappedFile(paths.merges).text(), paths);
}

void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder) {
  std::string tokens = "{";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    tokens += fmt::format("{}{}:{}", id == 0 ? "" : ",",
                          nlohmann::json(to_symbols(vocabulary.tokens[id])).dump(), id);
  tokens += "}\n";
  std::string merges = "#version: 0.2\n";
  for (const BpeMerge& merge : vocabulary.merges)
    merges += fmt::format("{} {}\n", to_symbols(vocabulary.tokens[merge.left]),
                          to_symbols(vocabulary.tokens[merge.right]));
  write_atomically(folder + "/vocab.json", tokens);
  write_atomically(folder + "/merges.txt", merges);
}

}  // namespace laconic
