#include "laconic/data/wordpiece.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/split_pattern.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

using Words = std::vector<std::string>;

constexpr WordPieceRules kUncased;
constexpr WordPieceRules kCased{.strip_accents = false, .lower_case = false};

WordPiece small(const WordPieceRules& rules = kUncased) {
  return WordPiece(
      parse_wordpiece(
          "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n##a\nthe\n,\n.\n'\ns\nit\n"
          "[\n]\ncls\n",
          "vocab.txt"),
      rules);
}

std::vector<std::int32_t> encoded(const WordPiece& words, std::string_view text) {
  std::vector<std::int32_t> ids;
  words.encode(text, ids);
  return ids;
}

TEST(WordPiece, WordsAreCleanedAndSplit) {
  const std::vector<std::tuple<std::string, Words, Words>> table = {
      {"", {}, {}},
      {" \t\r\n\u3000", {}, {}},
      {"Héllo, World!", {"hello", ",", "world", "!"}, {"Héllo", ",", "World", "!"}},
      {"a\x01\u200b\ufffd\u00ad\ue000z", {"az"}, {"az"}},
      {"a\x80z\xff", {"az"}, {"az"}},  // no UTF-8
      {"x中文y", {"x", "中", "文", "y"}, {"x", "中", "文", "y"}},
      {"İI\u0307", {"ii"}, {"İI\u0307"}},
      {"한", {"\u1112\u1161\u11ab"}, {"한"}},
      {"don't", {"don", "'", "t"}, {"don", "'", "t"}},
      {"a\u037e", {"a", ";"}, {"a", "\u037e"}},  // the Greek question mark is a semicolon
      {"≮", {"<"}, {"≮"}},
      {"€5 $5", {"€5", "$", "5"}, {"€5", "$", "5"}},
      // Marks that stay are put in order: U+302E (224) behind U+1D165 (216).
      {"a\u302e\u0301\U0001d165", {"a\U0001d165\u302e"}, {"a\u302e\u0301\U0001d165"}},
      // U+034F has class 0 and ends a run of marks, although it goes.
      {"a\u302e\u034f\U0001d165", {"a\u302e\U0001d165"}, {"a\u302e\u034f\U0001d165"}},
  };
  for (const auto& [text, uncased, cased] : table) {
    EXPECT_EQ(wordpiece_words(text, kUncased), uncased) << text;
    EXPECT_EQ(wordpiece_words(text, kCased), cased) << text;
  }
}

TEST(WordPiece, EachRuleCanBeTurnedOff) {
  EXPECT_EQ(wordpiece_words("É", {.strip_accents = false}), Words{"é"});
  EXPECT_EQ(wordpiece_words("İ", {.strip_accents = false}), Words{"i\u0307"});
  EXPECT_EQ(wordpiece_words("É", {.lower_case = false}), Words{"E"});
  EXPECT_EQ(wordpiece_words("x中y", {.space_cjk = false}), Words{"x中y"});
  EXPECT_EQ(wordpiece_words("a\x01 b\u2003c", {.clean = false}), (Words{"a\x01", "b", "c"}));
}

TEST(WordPiece, TheLongestBeginningIsTakenAndAWordIsKnownWholeOrNotAtAll) {
  const WordPiece words = small();
  EXPECT_EQ(encoded(words, "unaffable"), (std::vector<std::int32_t>{5, 6, 7}));
  EXPECT_EQ(encoded(words, "unaffa"), (std::vector<std::int32_t>{5, 6, 8}));
  EXPECT_EQ(encoded(words, "unaffx the"), (std::vector<std::int32_t>{1, 9}));
  EXPECT_EQ(encoded(words, "affable"), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(encoded(words, "un" + std::string(98, 'a')).size(), 99u);
  EXPECT_EQ(encoded(words, "un" + std::string(99, 'a')), (std::vector<std::int32_t>{1}));
}

TEST(WordPiece, SpecialTokensInATextAreText) {
  EXPECT_EQ(encoded(small(), "[CLS]"), (std::vector<std::int32_t>{15, 17, 16}));
  for (const std::int32_t id : encoded(small(), "[PAD] [CLS] [SEP] [MASK]"))
    EXPECT_TRUE(id == 1 || id >= 5) << id;
}

TEST(WordPiece, DecodingJoinsWordsAsHuggingFaceDoes) {
  const WordPiece words = small();
  const std::vector<std::int32_t> ids = {2, 9, 5, 6, 7, 10, 14, 12, 13, 11, 3};
  EXPECT_EQ(words.decode(ids), "[CLS] the unaffable, it ' s. [SEP]");
  EXPECT_EQ(words.decode({}), "");
  EXPECT_EQ(words.text_behind(9), " the");
  EXPECT_EQ(words.text_behind(7), "able");
}

TEST(WordPiece, FilesAreReadAsTheyAreWritten) {
  const WordPieceVocabulary vocabulary = small().vocabulary();
  EXPECT_EQ(parse_wordpiece(wordpiece_text(vocabulary), "vocab.txt"), vocabulary);
  EXPECT_EQ(parse_wordpiece("[SEP]\r\n[UNK]\r\na \r\n", "v").tokens,
            (Words{"[SEP]", "[UNK]", "a"}));
  // The last byte of a letter is no blank.
  EXPECT_EQ(parse_wordpiece("[SEP]\n[UNK]\nà\n𫠠\n", "v").tokens[3], "𫠠");
}

TEST(WordPiece, DamagedFilesAreRefused) {
  const auto refused = [](std::string_view text) {
    return message_of<FileError>([&] { parse_wordpiece(text, "vocab.txt"); });
  };
  LACONIC_EXPECT_MENTIONS(refused(""), "vocab.txt: [UNK]: missing among 0 tokens");
  LACONIC_EXPECT_MENTIONS(refused("[UNK]\na\n"), "[SEP]: missing among 2 tokens");
  LACONIC_EXPECT_MENTIONS(refused("[UNK]\n\xff\n"), "line 2: not UTF-8");
}

TEST(WordPiece, TheTokensOfPartsAreThoseOfTheWhole) {
  const char* const kAtoms[] = {"un",     "aff",    "able", "the", ",",        ".",
                                " ",      "\n",     "É",    "中",  "\xff",     "\u0301",
                                "\u302e", "\u200b", "[",    "'s",  "\xe4\xb8", "X"};
  const WordPiece words = small();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::string text;
    for (std::size_t i = 0; i < 60; ++i)
      text += kAtoms[word_at(key_of(seed), i) % std::size(kAtoms)];
    const std::vector<std::int32_t> whole = encoded(words, text);
    std::vector<std::int32_t> parts;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t cut = next_cut(rest, 0, SafeCut::before_newline);
      words.encode(rest.substr(0, cut), parts);
      rest.remove_prefix(cut);
    }
    ASSERT_EQ(parts, whole) << seed;
  }
}

}  // namespace
}  // namespace laconic
