#include "laconic/data/tokenizer_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/piece.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/data/tokeniser.hpp"

namespace laconic {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

// Ids 0 ... 255 are the bytes; then "ab" = 256, "abc" = 257, "xyz" = 258 (no merge), and <end> =
// 259.
Json small_json() {
  Json vocabulary = Json::object();
  for (const std::uint8_t byte : bytes_in_symbol_order())
    vocabulary[to_symbols({reinterpret_cast<const char*>(&byte), 1})] = vocabulary.size();
  for (const char* word : {"ab", "abc", "xyz"}) vocabulary[word] = vocabulary.size();
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"added_tokens", Json::array({{{"id", 259}, {"content", "</s>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array({"a b", "ab c"})}}}};
}

Json word_json() {
  return {{"added_tokens", Json::array({{{"id", 1}, {"content", "[SEP]"}, {"special", true}}})},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 5},
            {"vocab", {{"[UNK]", 0}, {"[SEP]", 1}, {"a", 2}, {"##b", 3}, {".", 4}}}}}};
}

Tokeniser loaded(const Json& json, const Json& config = nullptr) {
  const TemporaryFolder folder;
  spill(folder / "tokenizer.json", json.dump());
  if (!config.is_null()) spill(folder / "tokenizer_config.json", config.dump());
  return load_tokeniser(folder.path());
}

std::string refusal(const Json& json) {
  return message_of<FileError>([&] { parse_tokenizer_json(json.dump(), "tokenizer.json"); });
}

TEST(TokenizerJson, BytesMergeByRank) {
  const Tokeniser tokeniser = loaded(small_json());
  EXPECT_EQ(tokeniser.kind(), TokeniserKind::bpe);
  EXPECT_EQ(tokeniser.vocabulary_size(), 260);
  EXPECT_EQ(tokeniser.end_of_document(), 259);
  EXPECT_EQ(tokeniser.encode("abcab"), (Tokens{257, 256}));
  EXPECT_EQ(tokeniser.encode("xyz").size(), 3u);
  EXPECT_EQ(tokeniser.encode("</s>").size(), 4u);  // text, not the special token
  EXPECT_EQ(tokeniser.decode(Tokens{257, 259}), "abc</s>");
}

TEST(TokenizerJson, MergesMayBeLists) {
  Json json = small_json();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
  EXPECT_EQ(loaded(json).encode("abcab"), (Tokens{257, 256}));
}

TEST(TokenizerJson, IgnoringMergesTakesPiecesThatAreTokensAndNeverSpecialOnes) {
  Json json = small_json();
  json["model"]["ignore_merges"] = true;
  json["pre_tokenizer"]["use_regex"] = false;
  json["model"]["vocab"]["</s>"] = 259;
  const Tokeniser tokeniser = loaded(json);
  EXPECT_EQ(tokeniser.encode("xyz"), (Tokens{258}));
  EXPECT_EQ(tokeniser.encode("xyza").size(), 4u);
  EXPECT_EQ(tokeniser.encode("</s>").size(), 4u);
}

TEST(TokenizerJson, AddedTokensAreFoundLeftmostAndLongest) {
  Json json = small_json();
  const char* const kTexts[] = {"<x>", "<x>>", "éo"};
  for (int i = 0; i < 3; ++i)
    json["added_tokens"].push_back(
        {{"id", 260 + i}, {"content", kTexts[i]}, {"special", false}, {"normalized", i == 2}});
  json["normalizer"] = {{"type", "NFC"}};
  const Tokeniser tokeniser = loaded(json);
  EXPECT_FALSE(tokeniser.is_lossless());
  EXPECT_EQ(tokeniser.encode("<<x>>a"),
            (Tokens{tokeniser.encode("<")[0], 261, tokeniser.encode("a")[0]}));
  EXPECT_EQ(tokeniser.encode("<x>éo"), (Tokens{260, 262}));
  EXPECT_EQ(tokeniser.encode("e\u0301o"), (Tokens{262}));  // composed first
  EXPECT_EQ(tokeniser.decode(tokeniser.encode("o\u0308\xff\xcc\x81 n\u0303")), "ö\xff\u0301 ñ");
}

TEST(TokenizerJson, ConfigurationsNameSpecialTokens) {
  Json json = small_json();
  json["added_tokens"].push_back({{"id", 260}, {"content", "<stop>"}, {"special", false}});
  const Json config = {
      {"eos_token", {{"content", "<stop>"}}}, {"pad_token", "</s>"}, {"bos_token", nullptr}};
  const Tokeniser tokeniser = loaded(json, config);
  EXPECT_EQ(tokeniser.special(), (SpecialTokens{.pad = 259, .eos = 260}));
  // Named as special, it is no longer found in text.
  EXPECT_EQ(tokeniser.encode("<stop>").size(), 6u);
  json["added_tokens"] = Json::array();
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { loaded(json); }), "eos_token");
}

TEST(TokenizerJson, EverythingUnsupportedIsNamedAtOnce) {
  Json json = small_json();
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}},
        {{"type", "Split"}, {"pattern", {{"Regex", "a+"}}}, {"behavior", "Removed"}},
        {{"type", "Metaspace"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", true}},
        {{"type", "Digits"}}}}};
  json["decoder"] = {{"type", "Fuse"}};
  json["model"]["byte_fallback"] = true;
  json["model"]["dropout"] = 0.1;
  json["model"]["end_of_word_suffix"] = "</w>";
  json["added_tokens"].push_back(
      {{"id", 260}, {"content", "<x>"}, {"special", false}, {"lstrip", true}});
  const std::string message = refusal(json);
  for (const char* part :
       {"tokenizer.json: not supported: ", "lstrip of added token \"<x>\"", "model.dropout 0.1",
        "model.end_of_word_suffix \"</w>\"", "model.byte_fallback", "normalizer Lowercase",
        "\\w in the pattern", "Split.behavior Removed", "pre_tokenizer Metaspace",
        "ByteLevel.add_prefix_space", "pre_tokenizer Digits behind ByteLevel", "decoder Fuse"})
    LACONIC_EXPECT_MENTIONS(message, part);
  json = small_json();
  json["model"]["type"] = "Unigram";
  LACONIC_EXPECT_MENTIONS(refusal(json), "not supported: model Unigram");
  json = small_json();
  json["pre_tokenizer"] = nullptr;
  LACONIC_EXPECT_MENTIONS(refusal(json), "without ByteLevel");
}

TEST(TokenizerJson, DamagedVocabulariesAreRefused) {
  const auto changed = [](auto change) {
    Json json = small_json();
    change(json);
    return refusal(json);
  };
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["vocab"].erase("a"); }),
                          "with 259 tokens");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["vocab"]["ab"] = 257; }),
                          "is also that of");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["vocab"]["ab"] = -1; }),
                          "not a whole number");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["vocab"]["\u20ac"] = 260; }),
                          "byte symbols");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["merges"].push_back("b q"); }),
                          "merge 2: \"bq\" is no token");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["merges"].push_back("a b"); }),
                          "is merge 0, too");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["merges"].push_back("a b c"); }),
                          "not two tokens");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["model"]["merges"] = nullptr; }), "model.merges");
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j["added_tokens"][0]["content"] = "ab"; }),
                          "its id is 256 in the vocabulary, but 259");
  LACONIC_EXPECT_MENTIONS(
      changed([](Json& j) {
        j["added_tokens"][0] = {{"id", 256}, {"content", "ab"}, {"special", true}};
      }),
      "makes \"ab\", an added token, of text");
  const std::string missing = "token \"a\": missing; it stands for byte 0x61";
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) {
                            Json& vocabulary = j["model"]["vocab"];
                            vocabulary["zz"] = vocabulary["a"];
                            vocabulary.erase("a");
                          }),
                          missing);
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) {
                            const Json id = j["model"]["vocab"]["a"];
                            j["added_tokens"].push_back({{"id", id}, {"content", "a"}});
                          }),
                          missing);
  LACONIC_EXPECT_MENTIONS(changed([](Json& j) { j = Json::array(); }), "not an object");
}

TEST(TokenizerJson, ReadsWordPieceToo) {
  const Tokeniser tokeniser = loaded(word_json());
  EXPECT_EQ(tokeniser.kind(), TokeniserKind::wordpiece);
  EXPECT_EQ(tokeniser.encode("AB ab. abbbbb"), (Tokens{2, 3, 2, 3, 4, 0}));
  EXPECT_EQ(tokeniser.decode(Tokens{2, 3, 4}), "ab .");  // cleanup is off
  EXPECT_EQ(tokeniser.special(), (SpecialTokens{.sep = 1}));
  Json json = word_json();
  json["normalizer"] = {{"type", "NFD"}};
  json["pre_tokenizer"] = {{"type", "Whitespace"}};
  json["added_tokens"].push_back({{"id", 4}, {"content", "."}, {"special", false}});
  const std::string message = refusal(json);
  for (const char* part :
       {"normalizer NFD", "pre_tokenizer Whitespace", "added token \".\" that is not special"})
    LACONIC_EXPECT_MENTIONS(message, part);
}

TEST(TokenizerJson, FoldersAreSavedAsHuggingFaceReadsThem) {
  const TemporaryFolder folder;
  const Json config = {{"eos_token", "</s>"}, {"model_max_length", 7}};
  loaded(small_json(), config).save(folder / "a");
  EXPECT_EQ(Json::parse(slurp(folder / "a/tokenizer.json")), small_json());
  EXPECT_EQ(Json::parse(slurp(folder / "a/tokenizer_config.json")), config);
  EXPECT_EQ(load_tokeniser(folder / "a").encode("abcab"), (Tokens{257, 256}));
  EXPECT_EQ(load_tokeniser(folder / "a/tokenizer.json").encode("abcab"), (Tokens{257, 256}));
  EXPECT_TRUE(has_tokeniser(folder / "a"));
  spill(folder / "a/laconic_tokeniser.json", R"({"kind": "wordpiece"})");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { load_tokeniser(folder / "a"); }),
                          "of kind bpe");
}

TEST(TokenizerJson, TheTokensOfPartsAreThoseOfTheWhole) {
  const auto split = [](std::string_view pattern) {
    return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  };
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json words = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Json orders[] = {
      {digits, words}, {digits, bytes}, {split(kLlama3Split), bytes}, {split("b c"), words}};
  const std::string text = "ab 1 abc\n12abc!\n ab ab c ab  c3 4\nabc";
  for (const Json& order : orders) {
    Json json = small_json();
    json["model"]["vocab"]["Ġab"] = 259;
    json["model"]["vocab"]["bĠ"] = 260;
    json["added_tokens"][0]["id"] = 261;
    json["model"]["merges"] = {"b Ġ", "a b", "ab c", "Ġ ab"};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", order}};
    const Tokeniser tokeniser = loaded(json);
    Tokens parts;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t cut = tokeniser.next_cut(rest, 0);
      tokeniser.encode(rest.substr(0, cut), parts);
      rest.remove_prefix(cut);
    }
    EXPECT_EQ(parts, tokeniser.encode(text)) << order;
    EXPECT_EQ(tokeniser.decode(parts), text);
  }
}

TEST(VocabTxt, CaseComesFromTheConfigurationOrElseFromTheVocabulary) {
  const TemporaryFolder folder;
  const std::string uncased = "[UNK]\n[SEP]\na\n", cased = uncased + "A\n";
  spill(folder / "u/vocab.txt", uncased);
  EXPECT_EQ(load_tokeniser(folder / "u").encode("A"), (Tokens{2}));
  spill(folder / "c/vocab.txt", cased);
  EXPECT_EQ(load_tokeniser(folder / "c").encode("A"), (Tokens{3}));
  load_tokeniser(folder / "c").save(folder / "saved");
  EXPECT_EQ(Json::parse(slurp(folder / "saved/tokenizer_config.json"))["do_lower_case"], false);
  EXPECT_EQ(load_tokeniser(folder / "saved").encode("A"), (Tokens{3}));
  spill(folder / "c/tokenizer_config.json",
        R"({"do_lower_case": true, "tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(load_tokeniser(folder / "c").encode("A"), (Tokens{2}));
  spill(
      folder / "c/tokenizer_config.json",
      R"({"do_basic_tokenize": false, "never_split": ["x"], "tokenizer_class": "BertJapaneseTokenizer"})");
  const std::string message = message_of<FileError>([&] { load_tokeniser(folder / "c"); });
  for (const char* part :
       {"do_basic_tokenize false", "never_split", "tokenizer_class BertJapaneseTokenizer"})
    LACONIC_EXPECT_MENTIONS(message, part);
}

TEST(SplitPattern, WhatOnigurumaAndPcre2ReadDifferentlyIsTranslatedOrRefused) {
  const auto pieces_of = [](const char* pattern, std::string_view text) {
    PieceSplitter splitter{SplitPattern(pattern)};
    std::vector<std::string> pieces;
    splitter.start(text);
    for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next())
      pieces.emplace_back(piece);
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("\\s", "a\u180e b"), (Pieces{"a\u180e", " ", "b"}));
  EXPECT_EQ(pieces_of("[^\\s]", "a b"), (Pieces{"a", " ", "b"}));
  EXPECT_EQ(pieces_of("\\p{Han}+", "a中文b"), (Pieces{"a", "中文", "b"}));
  EXPECT_EQ(pieces_of("[\\u4e00-\\u9fff]", "a中文"), (Pieces{"a", "中", "文"}));
  EXPECT_EQ(pieces_of("x", "a\xffxb"), (Pieces{"a\xff", "x", "b"}));
  EXPECT_EQ(pieces_of("(?=b)", "abab"), (Pieces{"a", "ba", "b"}));  // an empty match only cuts
  EXPECT_EQ(pieces_of("^.", "ab\ncd"), (Pieces{"a", "b\n", "c", "d"}));
  for (const char* pattern :
       {"\\w",   "\\b",     "\\h",   "\\1",   "[\\S]",  "[a&&b]", "[[:alpha:]]",
        "(?i)a", "(?<n>a)", "a{2}+", "a{,2}", "(*UTF)", "\\xe9",  "[]",
        "[a",    "\\",      "\\p{L", "\\R",   "\\K",    "\xff"})
    EXPECT_THROW(SplitPattern{pattern}, ConfigError) << pattern;
  EXPECT_THROW(SplitPattern{"a)"}, ConfigError);
}

TEST(SplitPattern, CopiesShareTheirCodeAndEqualTextsAreEqual) {
  const SplitPattern pattern("a+");
  const SplitPattern copy = pattern;
  EXPECT_EQ(copy.code(), pattern.code());
  EXPECT_EQ(copy, SplitPattern("a+"));
  EXPECT_NE(copy, SplitPattern("b+"));
}

TEST(SplitPattern, KnownPatternsMayBeCutWhereTheySayTheyMay) {
  const std::string_view kAtoms[] = {"a",  "S", "'", "'s", " ", " ",    "\n", "\r",
                                     "\t", "7", "!", ".",  "é", "\xff", "中", "\u3000"};
  for (const std::string_view pattern : {kGpt2Split, kLlama3Split, kQwen2Split}) {
    const SplitPattern compiled(pattern);
    EXPECT_NE(compiled.safe_cut(), SafeCut::nowhere);
    PieceSplitter splitter(compiled);
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      std::string text;
      for (std::size_t i = 0; i < 12; ++i)
        text += kAtoms[word_at(key_of(seed), i) % std::size(kAtoms)];
      std::vector<std::size_t> whole, parts;  // where pieces end
      const auto collect = [&](std::string_view part, std::vector<std::size_t>& ends) {
        splitter.start(part);
        for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next())
          ends.push_back(static_cast<std::size_t>(piece.data() + piece.size() - text.data()));
      };
      collect(text, whole);
      for (std::string_view rest = text; !rest.empty();) {
        const std::size_t cut = next_cut(rest, 0, compiled.safe_cut());
        collect(rest.substr(0, cut), parts);
        rest.remove_prefix(cut);
      }
      ASSERT_EQ(parts, whole) << pattern << ": " << text;
    }
  }
}

}  // namespace
}  // namespace laconic
