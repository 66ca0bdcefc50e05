#include "laconic/data/tokenizer_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/unicode.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

using Json = nlohmann::json;

constexpr const char* kReadable = "laconic reads byte-level BPE and BERT's WordPiece";

struct JsonAddedToken {
  std::string text;
  std::int32_t id = 0;
  bool is_special = false;
  bool is_normalised = false;
};

// Reads one file, and collects what is not supported until the end.
class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& path)
      : path_(path), json_(parse_json(text, path)) {}

  TokenizerJson read() {
    if (!json_.is_object()) fail("", "not an object");
    const Json& model = at(json_, "model");
    if (!model.is_object()) fail("model", "missing, or not an object");
    const std::string type = type_of_model(model);
    read_added();
    if (type == "BPE") {
      check_bpe(model);
    } else if (type == "WordPiece") {
      check_wordpiece(model);
    } else {
      unsupported(fmt::format("model {}", printable(type)));
    }
    refuse_unsupported();
    TokenizerJson result;
    if (type == "BPE") {
      result.model = bpe(model);
    } else {
      result.model = wordpiece(model);
    }
    for (const JsonAddedToken& token : added_) result.added.emplace(token.text, token.id);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& what) const {
    throw FileError(path_, field, what, kReadable);
  }
  void unsupported(std::string what) { unsupported_.push_back(std::move(what)); }
  void refuse_unsupported() const {
    if (!unsupported_.empty()) fail("", "not supported: " + join(unsupported_, "; "));
  }

  // null when there is no such key.
  static const Json& at(const Json& object, const char* key) {
    static const Json nothing;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? nothing : *found;
  }
  static std::string text_at(const Json& object, const char* key) {
    const Json& value = at(object, key);
    return value.is_string() ? value.get<std::string>() : std::string();
  }
  static std::string type_of(const Json& object) {
    return object.is_null() ? "null" : text_at(object, "type");
  }
  bool flag_at(const Json& object, const char* key, bool otherwise) const {
    const Json& value = at(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) fail(key, "neither true nor false");
    return value;
  }

  // Old files do not name the type of a model.
  static std::string type_of_model(const Json& model) {
    const std::string type = text_at(model, "type");
    if (!type.empty()) return type;
    if (model.contains("merges")) return "BPE";
    return model.contains("max_input_chars_per_word") ? "WordPiece" : "without a type";
  }

  void read_added() {
    const Json& list = at(json_, "added_tokens");
    if (!list.is_null() && !list.is_array()) fail("added_tokens", "not a list");
    for (const Json& item : list) {
      const Json& id = at(item, "id");
      JsonAddedToken token{.text = text_at(item, "content")};
      if (token.text.empty()) fail("added_tokens", "a token without content");
      const std::string field = fmt::format("added token \"{}\"", printable(token.text));
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMostVocabulary)
        fail(field, fmt::format("its id {} is not a whole number below {}", printable(id.dump()),
                                kMostVocabulary));
      token.id = id;
      token.is_special = flag_at(item, "special", false);
      token.is_normalised = flag_at(item, "normalized", !token.is_special);
      // Special tokens are not looked for in text, so these do not matter to them.
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (flag_at(item, key, false) && !token.is_special)
          unsupported(fmt::format("{} of {}", key, field));
      added_.push_back(std::move(token));
    }
  }

  // --- byte-level BPE

  void check_bpe(const Json& model) {
    const Json& dropout = at(model, "dropout");
    if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0))
      unsupported(fmt::format("model.dropout {}", printable(dropout.dump())));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!text_at(model, key).empty())
        unsupported(fmt::format("model.{} \"{}\"", key, printable(text_at(model, key))));
    if (flag_at(model, "byte_fallback", false)) unsupported("model.byte_fallback");
    rules_.ignore_merges = flag_at(model, "ignore_merges", false);
    check_bpe_normaliser(at(json_, "normalizer"));
    check_splits(at(json_, "pre_tokenizer"));
    if (!is_byte_level_) unsupported("a pre_tokenizer without ByteLevel");
    if (type_of(at(json_, "decoder")) != "ByteLevel")
      unsupported(fmt::format("decoder {}", printable(type_of(at(json_, "decoder")))));
  }

  void check_bpe_normaliser(const Json& normaliser) {
    const std::string type = type_of(normaliser);
    if (type == "NFC") {
      rules_.nfc = true;
    } else if (type == "Sequence") {
      for (const Json& part : at(normaliser, "normalizers")) check_bpe_normaliser(part);
    } else if (type != "null") {
      unsupported(fmt::format("normalizer {}", printable(type)));
    }
  }

  void check_splits(const Json& step) {
    const std::string type = type_of(step);
    if (type == "Sequence") {
      for (const Json& part : at(step, "pretokenizers")) check_splits(part);
    } else if (is_byte_level_) {
      // What follows would see bytes as symbols.
      unsupported(fmt::format("pre_tokenizer {} behind ByteLevel", printable(type)));
    } else if (type == "ByteLevel") {
      is_byte_level_ = true;
      if (flag_at(step, "add_prefix_space", true)) unsupported("ByteLevel.add_prefix_space");
      if (flag_at(step, "use_regex", true)) rules_.splits.push_back(SplitPattern::gpt2());
    } else if (type == "Digits") {
      rules_.splits.emplace_back(flag_at(step, "individual_digits", false) ? kDigitSplit
                                                                           : kNumberSplit);
    } else if (type == "Split") {
      check_split(step);
    } else if (type != "null") {
      unsupported(fmt::format("pre_tokenizer {}", printable(type)));
    }
  }

  void check_split(const Json& step) {
    const std::string behaviour = text_at(step, "behavior");
    if (behaviour != "Isolated")
      unsupported(fmt::format("Split.behavior {}", printable(behaviour)));
    const Json& pattern = at(step, "pattern");
    std::string regex = text_at(pattern, "Regex");
    if (regex.empty()) regex = literal_pattern(text_at(pattern, "String"));
    if (regex.empty()) return unsupported("Split without a pattern");
    try {
      rules_.splits.emplace_back(regex);
    } catch (const ConfigError& error) {
      unsupported(fmt::format("Split: {}", error.what()));
    }
  }

  BpeParts bpe(const Json& model) {
    read_vocabulary(at(model, "vocab"));
    BpeParts parts;
    parts.vocabulary.tokens = bytes_of_tokens();
    for (const JsonAddedToken& token : added_) {
      if (token.is_special) {
        rules_.special.push_back(token.id);
      } else {
        std::string text = token.is_normalised && rules_.nfc ? to_nfc(token.text) : token.text;
        rules_.added.push_back({std::move(text), token.id, token.is_normalised});
      }
    }
    parts.vocabulary.merges = merges(at(model, "merges"));
    parts.rules = std::move(rules_);
    return parts;
  }

  // Tokens of the model are written in symbols, added ones as they are.
  std::vector<std::string> bytes_of_tokens() const {
    std::vector<std::string> tokens(texts_.size());
    std::array<bool, 256> is_there{};
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      std::optional<std::string> bytes;
      if (!is_added_[id]) bytes = parse_symbols(texts_[id]);
      if (!is_added_[id] && (!bytes || bytes->empty()))
        fail(field_of(texts_[id]), "not written in GPT-2's byte symbols");
      if (bytes && bytes->size() == 1) is_there[static_cast<unsigned char>(bytes->front())] = true;
      tokens[id] = bytes ? std::move(*bytes) : texts_[id];
    }
    for (const std::uint8_t byte : bytes_in_symbol_order())
      if (!is_there[byte])
        fail(field_of(to_symbols({reinterpret_cast<const char*>(&byte), 1})),
             fmt::format("missing; it stands for byte 0x{:02x}, and all 256 are needed", byte));
    return tokens;
  }

  std::vector<BpeMerge> merges(const Json& list) const {
    if (!list.is_array()) fail("model.merges", "missing, or not a list");
    std::vector<BpeMerge> merges;
    std::unordered_map<std::uint64_t, std::size_t> places;
    merges.reserve(list.size());
    for (const Json& item : list) {
      const std::string field = fmt::format("merge {}", merges.size());
      const auto [left, right] = pair_of(item, field);
      const BpeMerge merge{id_of(left, field), id_of(right, field), id_of(left + right, field)};
      const auto key = std::uint64_t{static_cast<std::uint32_t>(merge.left)} << 32 |
                       static_cast<std::uint32_t>(merge.right);
      if (const auto [twin, is_new] = places.emplace(key, merges.size()); !is_new)
        fail(field, fmt::format("\"{} {}\" is merge {}, too", printable(left), printable(right),
                                twin->second));
      merges.push_back(merge);
    }
    return merges;
  }

  // "left right", or a list of the two.
  std::pair<std::string, std::string> pair_of(const Json& item, const std::string& field) const {
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string())
      return {item[0], item[1]};
    const std::string text = item.is_string() ? item.get<std::string>() : std::string();
    const std::size_t gap = text.find(' ');
    if (gap == std::string::npos || text.find(' ', gap + 1) != std::string::npos)
      fail(field, fmt::format("{} is not two tokens", printable(item.dump(-1, ' ', true))));
    return {text.substr(0, gap), text.substr(gap + 1)};
  }

  std::int32_t id_of(const std::string& symbols, const std::string& field) const {
    const auto found = ids_.find(symbols);
    if (found == ids_.end())
      fail(field, fmt::format("\"{}\" is no token of the vocabulary", printable(symbols)));
    if (is_added_[found->second])
      fail(field, fmt::format("makes \"{}\", an added token, of text", printable(symbols)));
    return found->second;
  }

  // --- WordPiece

  void check_wordpiece(const Json& model) {
    const Json& normaliser = at(json_, "normalizer");
    if (type_of(normaliser) != "BertNormalizer") {
      unsupported(fmt::format("normalizer {} with WordPiece", printable(type_of(normaliser))));
    } else {
      word_rules_.clean = flag_at(normaliser, "clean_text", true);
      word_rules_.space_cjk = flag_at(normaliser, "handle_chinese_chars", true);
      word_rules_.lower_case = flag_at(normaliser, "lowercase", true);
      word_rules_.strip_accents = flag_at(normaliser, "strip_accents", word_rules_.lower_case);
    }
    const std::string splitter = type_of(at(json_, "pre_tokenizer"));
    if (splitter != "BertPreTokenizer")
      unsupported(fmt::format("pre_tokenizer {} with WordPiece", printable(splitter)));
    const Json& longest = at(model, "max_input_chars_per_word");
    if (!longest.is_null() && !longest.is_number_unsigned())
      fail("model.max_input_chars_per_word", "not a whole number");
    for (const JsonAddedToken& token : added_)
      if (!token.is_special)
        unsupported(fmt::format("added token \"{}\" that is not special", printable(token.text)));
    const std::string decoder = type_of(at(json_, "decoder"));
    if (decoder != "WordPiece" && decoder != "null")
      unsupported(fmt::format("decoder {} with WordPiece", printable(decoder)));
  }

  WordPieceParts wordpiece(const Json& model) {
    read_vocabulary(at(model, "vocab"));
    WordPieceParts parts{.vocabulary = {.tokens = texts_}, .rules = word_rules_};
    WordPieceVocabulary& vocabulary = parts.vocabulary;
    for (const JsonAddedToken& token : added_) vocabulary.special.push_back(token.id);
    if (model.contains("continuing_subword_prefix"))
      vocabulary.continuation = text_at(model, "continuing_subword_prefix");
    if (vocabulary.continuation.empty())
      fail("model.continuing_subword_prefix", "empty, or not a text");
    const Json& longest = at(model, "max_input_chars_per_word");
    if (!longest.is_null()) vocabulary.longest_word = longest;
    const std::string unknown = model.contains("unk_token") ? text_at(model, "unk_token") : "[UNK]";
    const auto found = ids_.find(unknown);
    if (found == ids_.end())
      fail("model.unk_token",
           fmt::format("\"{}\" is no token of the vocabulary", printable(unknown)));
    vocabulary.unknown = found->second;
    vocabulary.clean_up = flag_at(at(json_, "decoder"), "cleanup", true);
    return parts;
  }

  // --- both

  static std::string field_of(const std::string& text) {
    return fmt::format("token \"{}\"", printable(text));
  }

  // Ids of the model and of added tokens together are 0 ... n-1.
  void read_vocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object()) fail("model.vocab", "missing, or not an object of token: id");
    ids_.reserve(vocabulary.size());
    for (const auto& [text, id] : vocabulary.items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMostVocabulary)
        fail(field_of(text), fmt::format("its id {} is not a whole number below {}",
                                         printable(id.dump()), kMostVocabulary));
      ids_.emplace(text, id);
    }
    for (const JsonAddedToken& token : added_)
      if (const auto [known, is_new] = ids_.emplace(token.text, token.id);
          !is_new && known->second != token.id)
        fail(field_of(token.text),
             fmt::format("its id is {} in the vocabulary, but {} among added tokens", known->second,
                         token.id));
    texts_.resize(ids_.size());
    is_added_.resize(ids_.size());
    std::vector<bool> is_taken(ids_.size());
    for (const auto& [text, id] : ids_) {
      if (static_cast<std::size_t>(id) >= ids_.size())
        fail(field_of(text), fmt::format("id {} with {} tokens; ids must be 0 ... {}, once each",
                                         id, ids_.size(), ids_.size() - 1));
      if (is_taken[id])
        fail(field_of(text),
             fmt::format("id {} is also that of \"{}\"", id, printable(texts_[id])));
      is_taken[id] = true;
      texts_[id] = text;
    }
    for (const JsonAddedToken& token : added_) is_added_[token.id] = true;
  }

  const std::string& path_;
  Json json_;
  std::vector<std::string> unsupported_;
  std::vector<JsonAddedToken> added_;
  BpeRules rules_{.splits = {}};
  WordPieceRules word_rules_;
  bool is_byte_level_ = false;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> texts_;  // by id, as the file writes them
  std::vector<bool> is_added_;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& path) {
  return JsonReader(text, path).read();
}

}  // namespace laconic
