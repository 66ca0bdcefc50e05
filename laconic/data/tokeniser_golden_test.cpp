// Against Hugging Face's tokenizers and sentencepiece (tests/golden/tokeniser), and against the
// real vocabularies of GPT-2 and BERT where they are at hand.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "laconic/base/plugin.hpp"
#include "laconic/data/bpe_file.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/sentencepiece.hpp"
#include "laconic/data/sentencepiece_engine.hpp"
#include "laconic/data/test_bpe.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/unicode.hpp"
#include "laconic/data/wordpiece.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {
namespace {

using Tokens = std::vector<std::int32_t>;

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    const std::string tokens = real_data("gpt2-bpe/encoder.json");
    const std::string merges = real_data("gpt2-bpe/vocab.bpe");
    if (tokens.empty() || merges.empty())
      GTEST_SKIP() << "GPT-2's vocabulary (or xz) is not here; set LACONIC_DATA";
    gpt2 = Tokeniser(parse_bpe(tokens, merges, {"encoder.json", "vocab.bpe"}));
  }
  Tokeniser gpt2;
};

std::string base64_decoded(const std::string& text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(c));
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

std::string golden_path(const std::string& name) {
  return source_root() + "/tests/golden/tokeniser/" + name;
}

// Throws when the file is missing: tools/make_tokeniser_golden.py makes it.
nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(slurp(golden_path(name)));
}

void expect_vectors(const Tokeniser& tokeniser, const nlohmann::json& row) {
  ASSERT_GE(row.at("vectors").size(), 70u);
  for (const auto& vector : row["vectors"]) {
    const std::string text = base64_decoded(vector["text"]);
    const Tokens ids = vector["ids"];
    EXPECT_EQ(tokeniser.encode(text), ids) << row["name"] << ": " << vector["name"];
    if (!vector.contains("decoded") && !tokeniser.is_lossless()) continue;
    const std::string decoded =
        vector.contains("decoded") ? base64_decoded(vector["decoded"]) : text;
    EXPECT_EQ(tokeniser.decode(ids), decoded) << row["name"] << ": " << vector["name"];
  }
}

Tokeniser tokeniser_in(const std::string& file_name, const std::string& bytes) {
  const TemporaryFolder folder;
  spill(folder / file_name, bytes);
  return load_tokeniser(folder.path());
}

TEST(WordPieceGolden, TextsHaveTheTokensThatHuggingFaceMakes) {
  const nlohmann::json file = golden("wordpiece.json");
  ASSERT_EQ(file.at("tokenisers").size(), 2u);
  for (const auto& row : file["tokenisers"]) {
    const Tokeniser words = tokeniser_in("vocab.txt", base64_decoded(row["vocabulary"]));
    expect_vectors(words, row);
    // The library writes no special tokens into it: they are added later.
    nlohmann::json json = nlohmann::json::parse(base64_decoded(row["tokenizer_json"]));
    json["added_tokens"] =
        nlohmann::json::array({{{"id", 3}, {"content", "[SEP]"}, {"special", true}}});
    expect_vectors(tokeniser_in("tokenizer.json", json.dump()), row);
  }
}

// Every character of Unicode between two letters, by check sums of blocks.
TEST(WordPieceGolden, EveryCharacterIsCleanedAsHuggingFaceDoes) {
  const nlohmann::json file = golden("wordpiece.json");
  for (const auto& row : file.at("tokenisers")) {
    const bool is_uncased = row["name"] == "uncased";
    const WordPieceRules rules{.strip_accents = is_uncased, .lower_case = is_uncased};
    const char32_t block = row["block"].get<std::uint32_t>();
    const auto is_unsettled =
        [&, ranges = row["unsettled"].get<std::vector<std::vector<char32_t>>>()](char32_t code) {
          return std::ranges::any_of(
              ranges, [&](const auto& range) { return code >= range[0] && code <= range[1]; });
        };
    ASSERT_EQ(row["sums"].size() * block, 0x110000u);
    for (std::size_t i = 0; i < row["sums"].size(); ++i) {
      std::string text;
      for (char32_t code = static_cast<char32_t>(i) * block; code < (i + 1) * block; ++code) {
        if ((code >= 0xd800 && code <= 0xdfff) || is_unsettled(code)) continue;
        if (!text.empty()) text += ' ';
        text += 'a';
        append_utf8(text, code);
        text += 'B';
      }
      const std::string words = fmt::format("{}", fmt::join(wordpiece_words(text, rules), "\n"));
      EXPECT_EQ(::crc32(0, reinterpret_cast<const Bytef*>(words.data()), words.size()),
                row["sums"][i])
          << row["name"] << fmt::format(" U+{:04X}", i * block);
    }
  }
}

TEST(ByteLevelGolden, TextsHaveTheTokensThatHuggingFaceMakes) {
  const nlohmann::json file = golden("byte_level.json");
  ASSERT_GE(file.at("tokenisers").size(), 7u);
  for (const auto& row : file["tokenisers"])
    expect_vectors(tokeniser_in("tokenizer.json", base64_decoded(row["tokenizer_json"])), row);
}

TEST(SentencePieceGolden, TextsHaveTheTokensThatTheLibraryMakes) {
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece";
  const nlohmann::json file = golden("sentencepiece.json");
  ASSERT_EQ(file.at("tokenisers").size(), 2u);
  for (const auto& row : file["tokenisers"]) {
    const std::string model =
        golden_path(fmt::format("sentencepiece-{}.model", row["name"].get<std::string>()));
    const Tokeniser tokeniser = load_tokeniser(model);
    expect_vectors(tokeniser, row);
    EXPECT_EQ(tokeniser.vocabulary_size(), row["size"]);
    const SpecialTokens special{
        .pad = row["pad"], .bos = row["bos"], .eos = row["eos"], .unk = row["unk"]};
    EXPECT_EQ(tokeniser.special(), special);
    EXPECT_EQ(tokeniser.end_of_document(), row["eos"]);
  }
}

TEST(SentencePieceGolden, LongTextsHaveTheTokensOfTheirParts) {
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece";
  for (const char* name : {"unigram", "bpe"}) {
    const Tokeniser tokeniser =
        load_tokeniser(golden_path(fmt::format("sentencepiece-{}.model", name)));
    std::string text = "it was";
    Tokens tokens = tokeniser.encode(text);
    for (int i = 0; i < 3000; ++i) {
      const std::string more = fmt::format("the age of\nwisdom {} \U0001f600 é", i * 7919);
      text += " " + more;
      const Tokens behind = tokeniser.encode(more);
      tokens.insert(tokens.end(), behind.begin(), behind.end());
    }
    EXPECT_EQ(tokeniser.encode(text), tokens) << name;
  }
}

TEST(SentencePieceGolden, TextThatAppearsTokenByTokenIsTheText) {
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece";
  const Tokeniser tokeniser = load_tokeniser(golden_path("sentencepiece-bpe.model"));
  std::string text;
  for (const std::int32_t token : tokeniser.encode("the age of wisdom \U0001f92f, it was"))
    text += tokeniser.text_behind(token);
  EXPECT_EQ(text, " the age of wisdom \U0001f92f, it was");  // the first of a text drops its space
}

// No exception crosses the boundary of a module: what the library says comes as text.
TEST(SentencePieceModule, ComplainsInText) {
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece";
  const auto make = reinterpret_cast<MakeSentencePieceEngine>(
      open_plugin({kSentencePieceModule, kSentencePieceInterface, ""}));
  std::string error, text;
  EXPECT_EQ(make("no model", error), nullptr);
  EXPECT_NE(error, "");
  const MappedFile model(golden_path("sentencepiece-bpe.model"));
  const std::unique_ptr<SentencePieceEngine> engine(make(model.text(), error));
  ASSERT_NE(engine, nullptr) << error;
  EXPECT_EQ(error, "");
  PieceFacts piece;
  EXPECT_EQ(engine->describe(engine->facts().unk, piece), "");
  EXPECT_TRUE(piece.is_unknown);
  EXPECT_NE(engine->describe(engine->facts().size, piece), "") << "the protobuf inside throws";
  EXPECT_EQ(engine->decode({engine->facts().size}, text),
            "Out of range: Invalid id: " + std::to_string(engine->facts().size));
}

TEST(BertGolden, KnownTextsHaveTheirKnownIds) {
  const std::string vocabulary = real_data("bert-vocab/bert-base-uncased-vocab.txt");
  if (vocabulary.empty()) GTEST_SKIP() << "BERT's vocabulary (or xz) is not here; set LACONIC_DATA";
  const Tokeniser bert = tokeniser_in("vocab.txt", vocabulary);
  EXPECT_EQ(bert.vocabulary_size(), 30522);
  const SpecialTokens special{.pad = 0, .cls = 101, .sep = 102, .mask = 103, .unk = 100};
  EXPECT_EQ(bert.special(), special);
  EXPECT_EQ(bert.end_of_document(), 102);
  EXPECT_EQ(bert.encode("Hello, world!"), (Tokens{7592, 1010, 2088, 999}));
  EXPECT_EQ(bert.encode("The quick brown fox jumps over the lazy dog"),
            (Tokens{1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899}));
  EXPECT_EQ(bert.decode(bert.encode("Hello, World! Isn't it?")), "hello, world! isn ' t it?");
}

TEST_F(Gpt2, KnownTextsHaveTheirKnownIds) {
  EXPECT_EQ(gpt2.vocabulary_size(), 50257);
  EXPECT_EQ(gpt2.end_of_document(), 50256);
  const std::vector<std::pair<std::string, Tokens>> table = {
      {"Hello world", {15496, 995}},
      {" hello", {23748}},
      {"Hello, I'm a language model,", {15496, 11, 314, 1101, 257, 3303, 2746, 11}},
      {"\n\n", {628}},
      {" ", {220}},
      {"!", {0}},
      {"The quick brown fox jumps over the lazy dog",
       {464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290}},
  };
  for (const auto& [text, ids] : table) EXPECT_EQ(gpt2.encode(text), ids) << text;
}

TEST_F(Gpt2, SavingAndLoadingChangesNothing) {
  const TemporaryFolder folder;
  gpt2.save(folder.path());
  const Tokeniser loaded = load_tokeniser(folder.path());
  const std::string text = "Hello, wörld! 中文 \xff\xfe <|endoftext|>";
  EXPECT_EQ(loaded.encode(text), gpt2.encode(text));
  EXPECT_EQ(loaded.end_of_document(), 50256);
}

TEST_F(Gpt2, WikitextRoundTripsWithTheKnownNumberOfTokens) {
  const std::string text = real_data("wikitext-2/test.txt");
  if (text.empty()) GTEST_SKIP() << "wikitext-2 is not here; set LACONIC_DATA";
  const Tokens tokens = gpt2.encode(text);
  EXPECT_EQ(gpt2.decode(tokens), text);
  EXPECT_EQ(tokens.size(), 295877u);
}

TEST_F(Gpt2, TrickyTextsMatchHuggingFace) {
  const nlohmann::json file = golden("texts.json");
  for (const auto& vector : file["vectors"]) {
    const std::string text = base64_decoded(vector["text"]);
    EXPECT_EQ(gpt2.encode(text), vector["ids"].get<Tokens>()) << vector["name"];
    EXPECT_EQ(gpt2.decode(gpt2.encode(text)), text) << vector["name"];
  }
}

TEST(BpeTrainGolden, MergesMatchHuggingFace) {
  for (const char* name : {"train-300.json", "train-512.json"}) {
    const nlohmann::json file = golden(name);
    const std::string text = base64_decoded(file["text"]);
    const BpeVocabulary v = train_bpe_on(text, file["vocabulary"]).vocabulary;
    nlohmann::json merges = nlohmann::json::array();
    for (const BpeMerge& merge : v.merges)
      merges.push_back({to_symbols(v.tokens[merge.left]), to_symbols(v.tokens[merge.right])});
    EXPECT_EQ(merges, file["merges"]) << name;
  }
}

}  // namespace
}  // namespace laconic
