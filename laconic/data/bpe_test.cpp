#include "laconic/data/bpe.hpp"

#include <gtest/gtest.h>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/bpe_file.hpp"
#include "laconic/data/bpe_train.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/test_bpe.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

BpeVocabulary train(std::string_view text, std::int32_t size) {
  return train_bpe_on(text, size).vocabulary;
}

std::vector<std::string> learned(const BpeVocabulary& vocabulary) {
  std::vector<std::string> products;
  for (const BpeMerge& merge : vocabulary.merges)
    products.push_back(vocabulary.tokens[merge.product]);
  return products;
}

TEST(BpeTrain, TheMostFrequentPairComesFirstAndTiesGoToLowerIds) {
  EXPECT_EQ(learned(train("ab ab ab cd cd", 260)), (std::vector<std::string>{"ab", "cd", " ab"}));
  // (a,b) and (c,d) both occur twice: a's id is lower.
  EXPECT_EQ(learned(train("cd\nab\ncd\nab", 258)), (std::vector<std::string>{"ab"}));
}

TEST(BpeTrain, RunsOfOneByteAreCountedAsHuggingFaceCountsThem) {
  EXPECT_EQ(learned(train("aaaa aaaa", 300)), (std::vector<std::string>{"aa", "aaaa"}));
}

TEST(BpeTrain, StopsWithANoteWhenNoPairOccursTwice) {
  const BpeTraining result = train_bpe_on("abab", 1000);
  EXPECT_EQ(result.vocabulary.tokens.size(), 258u);
  LACONIC_EXPECT_MENTIONS(result.note, "258 tokens, not 1000");
  EXPECT_TRUE(train_bpe_on("abab", 258).note.empty());
}

TEST(BpeTrain, IdsAreBytesThenMergesThenTheEndOfText) {
  const BpeVocabulary v = train("the cat the hat the bat the", 261);
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_EQ(static_cast<unsigned char>(v.tokens[i][0]), bytes_in_symbol_order()[i]);
  EXPECT_EQ(v.tokens.size(), 261u);
  EXPECT_EQ(v.end_of_text, 260);
  EXPECT_EQ(v.tokens.back(), kEndOfText);
}

TEST(BpeTrain, RefusesAVocabularyWithoutRoomForTheBytes) {
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>([] { train("x", 256); }), "256");
}

TEST(BpeTrain, EncodingTheCorpusUsesTheLastTokenLearned) {
  const BpeVocabulary v = train("low low low lower lower newest newest newest widest widest", 280);
  const Bpe bpe(v);
  std::vector<std::int32_t> tokens;
  bpe.encode(" lower", tokens);
  EXPECT_EQ(tokens.size(), 1u);
}

// Merges of all ranks and overlaps, over an alphabet of three letters.
TEST(Bpe, LongAndShortPiecesMergeAlike) {
  std::string corpus;
  for (std::uint64_t i = 0; i < 4000; ++i) corpus += "abc "[word_at(key_of(7), i) % 4];
  const BpeVocabulary v = train(corpus, 400);
  ASSERT_GT(v.merges.size(), 100u);
  const BpeMergeTable table(v.merges);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::vector<std::int32_t> shorter;
    for (std::uint64_t i = 0; i < seed % 90; ++i)
      shorter.push_back(64 + static_cast<std::int32_t>(word_at(key_of(seed), i) % 3));
    std::vector<std::int32_t> longer = shorter;
    merge_short_piece(table, shorter);
    merge_long_piece(table, longer);
    ASSERT_EQ(shorter, longer) << "seed " << seed;
  }
}

// The rule as one would write it on a napkin.
std::vector<std::int32_t> merge_naively(const BpeVocabulary& v, std::vector<std::int32_t> tokens) {
  for (;;) {
    for (const BpeMerge& merge : v.merges) {
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != merge.left || tokens[i + 1] != merge.right) continue;
        tokens[i] = merge.product;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        goto again;
      }
    }
    return tokens;
  again:;
  }
}

TEST(Bpe, EveryShortStringMergesByRankThenFromTheLeft) {
  const BpeVocabulary v = train("aab abb aab bab abab aabb aaaa bbbb baab baab abba abba", 275);
  const BpeMergeTable table(v.merges);
  for (unsigned size = 0; size <= 10; ++size) {
    for (unsigned bits = 0; bits < 1u << size; ++bits) {
      std::vector<std::int32_t> tokens;
      for (unsigned i = 0; i < size; ++i) tokens.push_back(64 + (bits >> i & 1));
      const auto expected = merge_naively(v, tokens);
      auto longer = tokens;
      merge_short_piece(table, tokens);
      merge_long_piece(table, longer);
      ASSERT_EQ(tokens, expected) << size << ' ' << bits;
      ASSERT_EQ(longer, expected) << size << ' ' << bits;
    }
  }
}

TEST(Bpe, AMegabyteWithoutASpaceIsNotQuadratic) {
  const Bpe bpe(train("aaaa aaaaaaaa aaaaaaaaaaaaaaaa aaaaaaaaaaaaaaaaaaaaaaaaaaaa aaaa", 300));
  const Stopwatch watch;
  std::vector<std::int32_t> tokens;
  bpe.encode(std::string(1'000'000, 'a'), tokens);
  EXPECT_LT(watch.seconds(), 20);
  EXPECT_LT(tokens.size(), 300'000u);
}

BpePaths names() {
  return {"vocab.json", "merges.txt"};
}

// A vocabulary of the bytes, "ab" and the end of text, as JSON, changed by `edit`.
std::string tokens_json(const std::string& from = "", const std::string& to = "") {
  const TemporaryFolder folder;
  write_bpe(train("ab ab\nab", 258), folder.path());
  std::string text = slurp(folder / "vocab.json");
  if (const std::size_t at = text.find(from); !from.empty() && at != std::string::npos)
    text.replace(at, from.size(), to);
  return text;
}

TEST(BpeFile, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const BpeVocabulary v =
      train("héllo wörld \"quoted\" \\ \t\t \x01\x01 héllo wörld \"quoted\"", 300);
  write_bpe(v, folder.path());
  EXPECT_EQ(read_bpe(find_bpe_files(folder.path())), v);
}

TEST(BpeFile, EveryDefectIsNamed) {
  const std::string merges = "#version: 0.2\na b\n";
  struct Case {
    std::string tokens, merges, expected;
  };
  const Case cases[] = {
      {tokens_json().substr(0, 1000), merges, "vocab.json: is not JSON at byte"},
      {"", merges, "vocab.json: is not JSON"},
      {"[1, 2]", merges, "vocab.json: not an object"},
      {"7", merges, "vocab.json: not an object"},
      {tokens_json("\"ab\":256", "\"ab\":255"), merges, "id 255 is also that of"},
      {tokens_json("\"ab\":256", "\"ab\":900"), merges, "\"ab\": id 900 with 258 tokens"},
      {tokens_json("\"ab\":256", "\"a\":256"), merges, "vocab.json: a: the key is there twice"},
      {tokens_json("\"ab\":256", "\"ab\":-1"), merges, "\"ab\": its id -1 is not a whole number"},
      {tokens_json("\"ab\":256", "\"ab\":\"x\""), merges, "\"ab\": its id \"x\" is not a whole"},
      {tokens_json("\"ab\":256", "\"ab\":{}"), merges, "\"ab\": its id {} is not a whole"},
      {tokens_json("\"ab\":256", "\"ab\":1e3"), merges, "\"ab\": its id 1000.0 is not a whole"},
      {tokens_json("\"ab\":256", "\"ab\":9999999999"), merges, "its id 9999999999 is not a whole"},
      {tokens_json("\"ab\":256", "\"a b\":256"), merges, "not written in GPT-2's byte symbols"},
      {tokens_json("\"Q\":", "\"Qu\":"), merges, "token \"Q\": missing; it stands for byte 0x51"},
      {tokens_json("<|endoftext|>", "<|end|>"), merges, "\"<|endoftext|>\": missing"},
      {tokens_json(), "#version: 0.2\nab\n", "merges.txt: line 2: \"ab\" is not two tokens"},
      {tokens_json(), "a b c\n", "merges.txt: line 1: \"a b c\" is not two tokens"},
      {tokens_json(), " a\n", "is not two tokens"},
      {tokens_json(), "a b\na b\n", "line 2: \"a b\" is line 1, too"},
      {tokens_json(), "a b\nxy z\n", "line 2: \"xy\" is no token of vocab.json"},
      {tokens_json(), "a b\nb a\n", "line 2: \"ba\" is no token of vocab.json"},
  };
  for (const Case& c : cases) {
    const auto act = [&] { parse_bpe(c.tokens, c.merges, names()); };
    LACONIC_EXPECT_MENTIONS(message_of<FileError>(act), c.expected);
  }
  EXPECT_EQ(parse_bpe(tokens_json(), "a b\r\n\n", names()).merges.size(), 1u);
}

TEST(BpeFile, EveryTruncationIsRefusedOrComplete) {
  const std::string whole = tokens_json();
  for (std::size_t size = 0; size + 2 < whole.size(); size += 7)
    EXPECT_THROW(parse_bpe(whole.substr(0, size), "a b\n", names()), FileError) << size;
}

TEST(BpeFile, AMissingHalfIsNamed) {
  const TemporaryFolder folder;
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { find_bpe_files(folder.path()); }), "neither");
  spill(folder / "vocab.json", "{}");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { find_bpe_files(folder.path()); }),
                          "merges.txt: missing, but vocab.json is there");
  spill(folder / "gpt2-encoder.json", "{}");
  spill(folder / "gpt2-vocab.bpe", "");
  EXPECT_EQ(find_bpe_files(folder / "gpt2-").merges, folder / "gpt2-vocab.bpe");
}

}  // namespace
}  // namespace laconic
