// Finds out which files a tokeniser is, and reads them: load_tokeniser, has_tokeniser.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/bpe_file.hpp"
#include "laconic/data/sentencepiece.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/tokenizer_json.hpp"
#include "laconic/data/wordpiece.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr const char* kJsonFile = "tokenizer.json";
constexpr const char* kWordPieceFile = "vocab.txt";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kNamesFile = "special_tokens_map.json";
constexpr const char* kSentencePieceFiles[] = {"tokenizer.model", "spiece.model"};

std::string folder_of_file(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string content_of(const std::string& path) {
  return std::string(MappedFile(path).text());
}

// The file itself, and what else in its folder says how to use it.
std::vector<TokeniserFile> files_with(const std::string& path, const char* name) {
  std::vector<TokeniserFile> files = {{name, content_of(path)}};
  for (const char* other : {kConfigFile, kNamesFile})
    if (const std::string beside = folder_of_file(path) + "/" + other; fs::exists(beside))
      files.push_back({other, content_of(beside)});
  return files;
}

// What save() said the folder holds; empty for a folder that it did not write.
std::string saved_kind(const std::string& path) {
  const std::string marker = path + kTokeniserMarker;
  if (!fs::exists(marker)) return {};
  const nlohmann::json json = read_json(marker);
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string())
    throw FileError(marker, "kind", "missing, or not a text",
                    "prepare the data again, or delete this file if vocab.json is there");
  const std::string kind = json["kind"];
  for (const TokeniserKind known : {TokeniserKind::bytes, TokeniserKind::bpe,
                                    TokeniserKind::wordpiece, TokeniserKind::sentencepiece})
    if (kind == to_text(known)) return kind;
  throw FileError(
      marker, "kind",
      fmt::format("\"{}\" is none of bytes, bpe, wordpiece, sentencepiece", printable(kind)),
      "a newer laconic may have written it");
}

// --- tokenizer.json

void add_usual_names(SpecialNames& names, const std::map<std::string, std::int32_t>& known,
                     const char* key, std::initializer_list<const char*> usual) {
  for (const char* name : usual)
    if (known.contains(name)) names.emplace(key, name);
}

// Where no file names them, tokens are special by the names that everybody gives them.
void add_usual_names(SpecialNames& names, const std::map<std::string, std::int32_t>& known) {
  add_usual_names(names, known, "eos", {"<|endoftext|>", "<|end_of_text|>", "</s>"});
  add_usual_names(names, known, "bos", {"<|begin_of_text|>", "<s>"});
  add_usual_names(names, known, "pad", {"[PAD]", "<pad>"});
  add_usual_names(names, known, "unk", {"[UNK]"});
  add_usual_names(names, known, "cls", {"[CLS]"});
  add_usual_names(names, known, "sep", {"[SEP]"});
  add_usual_names(names, known, "mask", {"[MASK]", "<mask>"});
}

std::vector<std::int32_t> ids_in(const SpecialTokens& special) {
  std::vector<std::int32_t> ids;
  for (const std::int32_t id :
       {special.pad, special.bos, special.eos, special.cls, special.sep, special.mask, special.unk})
    if (id >= 0) ids.push_back(id);
  return ids;
}

// A token that a file names as special is special, even if it was added as one to be found in text.
TokeniserForm form_of(BpeParts parts, const SpecialTokens& special) {
  const std::vector<std::int32_t> ids = ids_in(special);
  std::erase_if(parts.rules.added, [&](const AddedToken& token) {
    return std::ranges::find(ids, token.id) != ids.end();
  });
  parts.rules.special.insert(parts.rules.special.end(), ids.begin(), ids.end());
  parts.vocabulary.end_of_text = special.eos >= 0 ? special.eos : special.sep;
  return std::make_shared<const Bpe>(std::move(parts.vocabulary), std::move(parts.rules));
}

TokeniserForm form_of(WordPieceParts parts, const SpecialTokens& special) {
  const std::vector<std::int32_t> ids = ids_in(special);
  parts.vocabulary.special.insert(parts.vocabulary.special.end(), ids.begin(), ids.end());
  return std::make_shared<const WordPiece>(std::move(parts.vocabulary), parts.rules);
}

Tokeniser load_json(const std::string& path) {
  std::vector<TokeniserFile> files = files_with(path, kJsonFile);
  TokenizerJson json = parse_tokenizer_json(files[0].bytes, path);
  SpecialNames names = read_special_names(folder_of_file(path));
  add_usual_names(names, json.added);
  const SpecialTokens special = find_special_tokens(names, json.added);
  if (special.eos < 0 && special.sep < 0)
    throw FileError(path, "added_tokens", "none of them is known to end a text",
                    fmt::format("name it as eos_token in {} beside this file", kConfigFile));
  TokeniserForm form =
      std::visit([&](auto& parts) { return form_of(std::move(parts), special); }, json.model);
  return Tokeniser(std::move(form), special, std::move(files));
}

// --- vocab.txt

// Whether some token has a capital letter outside brackets, as no uncased vocabulary has.
bool has_capitals(const WordPieceVocabulary& vocabulary) {
  return std::ranges::any_of(vocabulary.tokens, [](const std::string& token) {
    return !token.starts_with('[') &&
           std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; });
  });
}

// What BertTokenizer's configuration says; what it says beyond that is refused.
class BertConfig {
 public:
  explicit BertConfig(std::string path) : path_(std::move(path)), json_(read_json(path_)) {
    if (!json_.is_object()) throw FileError(path_, "", "not an object");
  }

  WordPieceRules rules() const {
    WordPieceRules rules;
    rules.lower_case = flag("do_lower_case", true);
    rules.space_cjk = flag("tokenize_chinese_chars", true);
    rules.strip_accents = flag("strip_accents", rules.lower_case);
    std::vector<std::string> problems;
    if (!flag("do_basic_tokenize", true)) problems.push_back("do_basic_tokenize false");
    if (json_.contains("never_split") && !json_["never_split"].is_null() &&
        !json_["never_split"].empty())
      problems.push_back("never_split");
    constexpr std::string_view kKnown[] = {"BertTokenizer",       "BertTokenizerFast",
                                           "DistilBertTokenizer", "DistilBertTokenizerFast",
                                           "ElectraTokenizer",    "ElectraTokenizerFast"};
    if (json_.contains("tokenizer_class") && json_["tokenizer_class"].is_string())
      if (const std::string name = json_["tokenizer_class"];
          std::ranges::find(kKnown, name) == std::end(kKnown))
        problems.push_back("tokenizer_class " + printable(name));
    if (!problems.empty())
      throw FileError(path_, "", "not supported: " + join(problems, "; "),
                      "laconic reads vocab.txt as BertTokenizer does");
    return rules;
  }

 private:
  bool flag(const char* key, bool otherwise) const {
    if (!json_.contains(key) || json_[key].is_null()) return otherwise;
    if (!json_[key].is_boolean()) throw FileError(path_, key, "neither true nor false");
    return json_[key];
  }

  std::string path_;
  nlohmann::json json_;
};

Tokeniser load_wordpiece(const std::string& path) {
  WordPieceVocabulary vocabulary = parse_wordpiece(MappedFile(path).text(), path);
  std::vector<TokeniserFile> files = files_with(path, kWordPieceFile);
  const std::string config = folder_of_file(path) + "/" + kConfigFile;
  WordPieceRules rules;
  if (fs::exists(config)) {
    rules = BertConfig(config).rules();
  } else {
    rules.lower_case = rules.strip_accents = !has_capitals(vocabulary);
    files.push_back({kConfigFile, fmt::format("{{\"tokenizer_class\": \"BertTokenizer\", "
                                              "\"do_lower_case\": {}}}\n",
                                              rules.lower_case)});
  }
  std::map<std::string, std::int32_t> known;
  for (const std::int32_t id : vocabulary.special) known.emplace(vocabulary.tokens[id], id);
  SpecialNames names;
  add_usual_names(names, known);
  const SpecialTokens special = find_special_tokens(names, known);
  return Tokeniser(std::make_shared<const WordPiece>(std::move(vocabulary), rules), special,
                   std::move(files));
}

// --- SentencePiece

Tokeniser load_sentencepiece(const std::string& path) {
  // Under a name by which it will be found again.
  const bool is_spiece = fs::path(path).filename() == kSentencePieceFiles[1];
  std::vector<TokeniserFile> files = files_with(path, kSentencePieceFiles[is_spiece]);
  auto model = std::make_shared<const SentencePiece>(files[0].bytes, path);
  const SpecialTokens special = model->special();
  if (special.eos < 0)
    throw FileError(path, "eos_id", "the model has no token that ends a text",
                    "train it with one (--eos_id)");
  return Tokeniser(std::move(model), special, std::move(files));
}

std::optional<std::string> find_sentencepiece(const std::string& folder) {
  for (const char* name : kSentencePieceFiles)
    if (fs::exists(folder + "/" + name)) return folder + "/" + name;
  return {};
}

Tokeniser load_file(const std::string& path) {
  if (path.ends_with(".json")) return load_json(path);
  if (path.ends_with(".txt")) return load_wordpiece(path);
  if (path.ends_with(".model")) return load_sentencepiece(path);
  throw FileError(path, "", "its name says no kind of tokeniser",
                  "give tokenizer.json, vocab.txt, tokenizer.model, or a folder that holds one");
}

Tokeniser load_folder(const std::string& path) {
  const std::string json = path + "/" + kJsonFile;
  const std::optional<std::string> model = find_sentencepiece(path);
  if (fs::exists(json)) {
    if (!model) return load_json(json);
    // The same tokeniser twice: tokenizer.json was made from the model.
    try {
      return load_json(json);
    } catch (const FileError&) {
      return load_sentencepiece(*model);
    }
  }
  if (model) return load_sentencepiece(*model);
  if (const std::string words = path + "/" + kWordPieceFile; fs::exists(words))
    return load_wordpiece(words);
  return Tokeniser(read_bpe(find_bpe_files(path)));
}

}  // namespace

Tokeniser load_tokeniser(const std::string& path) {
  if (path == "bytes") return Tokeniser();
  if (fs::is_regular_file(path)) return load_file(path);
  const std::string kind = saved_kind(path);
  if (kind == "bytes") return Tokeniser();
  Tokeniser tokeniser = load_folder(path);
  if (!kind.empty() && kind != to_text(tokeniser.kind()))
    throw FileError(path + kTokeniserMarker, "kind",
                    fmt::format("\"{}\", but the files beside it are of kind {}", kind,
                                to_text(tokeniser.kind())),
                    "files of two tokenisers are mixed: prepare the data again");
  return tokeniser;
}

bool has_tokeniser(const std::string& folder) {
  return fs::exists(folder + kTokeniserMarker) || find_sentencepiece(folder) ||
         std::ranges::any_of(
             std::array{"/vocab.json", "/encoder.json", "/tokenizer.json", "/vocab.txt"},
             [&](const char* name) { return fs::exists(folder + name); });
}

std::string tokeniser_folder_of(const std::string& prefix) {
  const std::string own = prefix + kTokeniserEnding;
  if (fs::exists(own) || !prefix.ends_with(kValidEnding)) return own;
  return prefix.substr(0, prefix.size() - std::string_view(kValidEnding).size()) + kTokeniserEnding;
}

}  // namespace laconic
