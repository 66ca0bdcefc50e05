#include "laconic/data/piece.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/byte_symbol.hpp"

namespace laconic {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  PieceSplitter splitter;
  Pieces pieces;
  splitter.start(text);
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next())
    pieces.emplace_back(piece);
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

// Over an alphabet that reaches every branch of the pattern, and broken UTF-8.
const std::vector<std::string> kAtoms = {
    "a", "s",    "re",       "'",        " ",  "\n", "\t",   "7",        "!",
    "é", "\xa0", "\xc2\xa0", "\xcc\x81", "中", "😀",  "\xff", "\xe2\x82", "\xe1\xa0\x8e"};

std::string random_text(std::uint64_t seed, std::size_t atoms) {
  std::string text;
  for (std::size_t i = 0; i < atoms; ++i) text += kAtoms[word_at(key_of(seed), i) % kAtoms.size()];
  return text;
}

TEST(Piece, SplitsAsGpt2Does) {
  const std::vector<std::pair<std::string, Pieces>> table = {
      {"", {}},
      {"Hello world", {"Hello", " world"}},
      {"I'm you're DON'T", {"I", "'m", " you", "'re", " DON", "'", "T"}},
      {"a  b", {"a", " ", " b"}},
      {"a   ", {"a", "   "}},
      {"a \n b", {"a", " \n", " b"}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"x\r\ny", {"x", "\r", "\n", "y"}},
      {"abc123!? 4", {"abc", "123", "!?", " 4"}},
      {"a\u00a0b", {"a", "\u00a0", "b"}},
      {"a\u180eb", {"a", "\u180e", "b"}},
      {"a \u180e b", {"a", " \u180e", " b"}},
      {"x² ½", {"x", "²", " ½"}},
      {"e\u0301 中文", {"e", "\u0301", " 中文"}},
      {"'sand", {"'s", "and"}},
  };
  for (const auto& [text, pieces] : table) EXPECT_EQ(pieces_of(text), pieces) << text;
}

TEST(Piece, BrokenUtf8IsAPieceOfItsOwn) {
  EXPECT_EQ(pieces_of("ab\xff\xfe cd"), (Pieces{"ab", "\xff\xfe", " cd"}));
  EXPECT_EQ(pieces_of("\xe2\x82"), (Pieces{"\xe2\x82"}));
  EXPECT_EQ(pieces_of("a\xe2\x82"), (Pieces{"a", "\xe2\x82"}));
}

TEST(Piece, PiecesOfEveryStringOfTwoBytesAreTheString) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      ASSERT_EQ(joined(pieces_of(text)), text) << first << ' ' << second;
    }
  }
}

TEST(Piece, CutsChangeNoPiece) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_text(seed, 40);
    const Pieces whole = pieces_of(text);
    ASSERT_EQ(joined(whole), text) << seed;
    for (std::size_t from = 0; from < text.size(); from += 7) {
      const std::size_t cut = next_cut(text, from, SafeCut::before_newline);
      ASSERT_GE(cut, from);
      Pieces halves = pieces_of(text.substr(0, cut));
      for (const std::string& piece : pieces_of(text.substr(cut))) halves.push_back(piece);
      ASSERT_EQ(halves, whole) << "seed " << seed << " cut " << cut;
    }
  }
}

TEST(Piece, AMegabyteOfOneKindTakesNoQuadraticTimeAndNoDeepStack) {
  for (const char* atom : {"a", " ", "\n", "!", "7", "\xff", "é", "\u3000", "'", "a\xff"}) {
    std::string text;
    while (text.size() < 1'000'000) text += atom;
    for (const char* end : {"", "x", " "}) {
      const Stopwatch watch;
      EXPECT_EQ(joined(pieces_of(text + end)), text + end) << atom;
      EXPECT_LT(watch.seconds(), 20) << atom;  // milliseconds; minutes if it were quadratic
    }
  }
}

TEST(ByteSymbol, SymbolsOfEveryByteAreReadBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(parse_symbols(to_symbols(all)), all);
  EXPECT_EQ(to_symbols(" \n!a"), "ĠĊ!a");
  EXPECT_EQ(to_symbols("\xad\xff\x7f"), "Ńÿġ");
}

TEST(ByteSymbol, OrderIsThatOfGpt2) {
  const auto& order = bytes_in_symbol_order();
  EXPECT_EQ(order[0], '!');
  EXPECT_EQ(order[93], '~');
  EXPECT_EQ(order[94], 0xa1);
  EXPECT_EQ(order[188], 0x00);
  EXPECT_EQ(order[220], ' ');  // GPT-2's id of a space
  EXPECT_EQ(order[255], 0xad);
}

TEST(ByteSymbol, RefusesWhatStandsForNoByte) {
  for (const char* text : {" ", "\n", "\u0144", "中", "\xc3", "\xff", "a\u00a0"})
    EXPECT_FALSE(parse_symbols(text).has_value()) << text;
}

}  // namespace
}  // namespace laconic
