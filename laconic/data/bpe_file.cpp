#include "laconic/data/bpe_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace {

constexpr const char* kRemedy = "fetch the vocabulary again";
constexpr std::string_view kVersionLine = "#version";

using IdOfToken = std::unordered_map<std::string, std::int32_t>;  // keys in symbols

// Reads {"token": id, ...} and nothing else, without building a tree of 50,000 nodes. A callback
// that returns false stops the parse; `what` then says why.
class TokenReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  IdOfToken ids;
  std::string field = "json";
  std::string what = "not an object of token: id";

  bool start_object(std::size_t) override { return depth_++ == 0; }
  bool end_object() override { return true; }
  bool key(string_t& text) override {
    key_ = text;
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (depth_ == 0) return false;
    if (id > 0x7fffffff) return refuse(fmt::format("id {} is too large", id));
    if (ids.emplace(key_, static_cast<std::int32_t>(id)).second) return true;
    return refuse("the token is there twice");
  }
  bool number_integer(number_integer_t id) override {
    return refuse(fmt::format("id {} is negative", id));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    what = fmt::format("not valid JSON at byte {}; the file may be truncated", position);
    return false;
  }
  bool null() override { return refuse("its id is null"); }
  bool boolean(bool) override { return refuse("its id is a boolean"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("its id is no integer");
  }
  bool string(string_t&) override { return refuse("its id is a text"); }
  bool binary(binary_t&) override { return false; }
  bool start_array(std::size_t) override { return refuse("its id is a list"); }
  bool end_array() override { return false; }

 private:
  bool refuse(std::string why) {
    if (depth_ == 0) return false;
    field = fmt::format("token \"{}\"", key_);
    what = std::move(why);
    return false;
  }

  int depth_ = 0;
  std::string key_;
};

IdOfToken parse_tokens(std::string_view text, const std::string& path) {
  TokenReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
    throw FileError(path, reader.field, reader.what, kRemedy);
  return std::move(reader.ids);
}

std::vector<std::string> order_by_id(const IdOfToken& ids, const std::string& path) {
  std::vector<std::string> tokens(ids.size());
  std::vector<const std::string*> holder(ids.size());
  for (const auto& [symbols, id] : ids) {
    const std::string field = fmt::format("token \"{}\"", symbols);
    if (static_cast<std::size_t>(id) >= ids.size())
      throw FileError(path, field,
                      fmt::format("id {} with {} tokens; ids must be 0 ... {}, once each", id,
                                  ids.size(), ids.size() - 1),
                      kRemedy);
    if (const std::string* other = std::exchange(holder[id], &symbols))
      throw FileError(path, field, fmt::format("id {} is also that of \"{}\"", id, *other),
                      kRemedy);
    std::optional<std::string> bytes = parse_symbols(symbols);
    if (!bytes || bytes->empty())
      throw FileError(path, field, "not written in GPT-2's byte symbols",
                      "laconic reads byte-level BPE vocabularies only");
    tokens[id] = std::move(*bytes);
  }
  return tokens;
}

std::int32_t require(const IdOfToken& ids, const std::string& symbols, const std::string& what,
                     const std::string& path) {
  const auto found = ids.find(symbols);
  if (found == ids.end())
    throw FileError(path, fmt::format("token \"{}\"", symbols), what, kRemedy);
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
      throw FileError(names.merges, field, fmt::format("\"{}\" is not two tokens", line), kRemedy);
    if (const auto [twin, is_new] = seen.emplace(line, number); !is_new)
      throw FileError(names.merges, field,
                      fmt::format("\"{}\" is line {}, too", line, twin->second), kRemedy);
    const std::string left(line.substr(0, gap)), right(line.substr(gap + 1));
    return {id_of(left, field), id_of(right, field), id_of(left + right, field)};
  }

  std::int32_t id_of(const std::string& symbols, const std::string& field) const {
    const auto found = ids.find(symbols);
    if (found != ids.end()) return found->second;
    throw FileError(names.merges, field,
                    fmt::format("\"{}\" is no token of {}", symbols, names.tokens),
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
  throw FileError(path, "",
                  "neither vocab.json and merges.txt nor encoder.json and vocab.bpe are there",
                  "give the word \"bytes\", or a folder or prefix that holds one of these pairs");
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
