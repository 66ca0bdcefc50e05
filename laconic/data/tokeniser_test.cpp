#include "laconic/data/tokeniser.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/test_bpe.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::string_view kText =
    "the cat sat on the mat, the rat sat on the cat; 1234 1234 \n\n  the end — the énd, thé end";

Tokeniser small_bpe() {
  return Tokeniser(train_bpe_on(kText, 300).vocabulary);
}

std::string random_bytes(std::uint64_t seed, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(word_at(key_of(seed), i));
  return text;
}

TEST(Tokeniser, BytesAreTheirOwnIds) {
  const Tokeniser bytes;
  EXPECT_EQ(bytes.encode("A\xff"), (Tokens{65, 255}));
  EXPECT_EQ(bytes.vocabulary_size(), 257);
  EXPECT_EQ(bytes.end_of_document(), 256);
  EXPECT_EQ(bytes.decode(Tokens{104, 105, 256}), "hi");
}

TEST(Tokeniser, DecodeUndoesEncodeForEveryStringOfUpToTwoBytes) {
  for (const Tokeniser& tokeniser : {Tokeniser(), small_bpe()}) {
    for (int first = 0; first < 256; ++first) {
      for (int second = -1; second < 256; ++second) {
        std::string text(1, static_cast<char>(first));
        if (second >= 0) text += static_cast<char>(second);
        ASSERT_EQ(tokeniser.decode(tokeniser.encode(text)), text) << first << ' ' << second;
      }
    }
  }
}

TEST(Tokeniser, DecodeUndoesEncodeForRandomBytes) {
  for (const Tokeniser& tokeniser : {Tokeniser(), small_bpe()}) {
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
      const std::string text = random_bytes(seed, seed);
      ASSERT_EQ(tokeniser.decode(tokeniser.encode(text)), text) << "seed " << seed;
    }
    EXPECT_EQ(tokeniser.decode(tokeniser.encode(kText)), kText);
    EXPECT_TRUE(tokeniser.encode("").empty());
  }
}

TEST(Tokeniser, SpecialTextIsTextAndTheSpecialTokenIsNot) {
  const Tokeniser bpe = small_bpe();
  const Tokens tokens = bpe.encode("a<|endoftext|>b");
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), bpe.end_of_document()), 0);
  EXPECT_EQ(bpe.decode(Tokens{bpe.end_of_document()}), "<|endoftext|>");
}

TEST(Tokeniser, RefusesIdsOutsideTheVocabulary) {
  for (const Tokeniser& tokeniser : {Tokeniser(), small_bpe()}) {
    for (const std::int32_t id : {-1, tokeniser.vocabulary_size()}) {
      const auto act = [&] { tokeniser.decode(Tokens{id}); };
      LACONIC_EXPECT_MENTIONS(message_of<ConfigError>(act), std::to_string(id));
    }
  }
}

TEST(Tokeniser, LoadReadsWhatSaveWrote) {
  const TemporaryFolder folder;
  for (const Tokeniser& tokeniser : {Tokeniser(), small_bpe()}) {
    const std::string path = folder / std::string(to_text(tokeniser.kind()));
    tokeniser.save(path);
    const Tokeniser loaded = load_tokeniser(path);
    EXPECT_EQ(loaded.kind(), tokeniser.kind());
    EXPECT_EQ(loaded.vocabulary_size(), tokeniser.vocabulary_size());
    EXPECT_EQ(loaded.encode(kText), tokeniser.encode(kText));
  }
  EXPECT_EQ(load_tokeniser("bytes").kind(), TokeniserKind::bytes);
}

TEST(Tokeniser, ADamagedOrNewerMarkerIsNamed) {
  const TemporaryFolder folder;
  spill(folder / "laconic_tokeniser.json", "{\"ki");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { load_tokeniser(folder.path()); }),
                          "laconic_tokeniser.json: is not JSON");
  spill(folder / "laconic_tokeniser.json", "{\"kind\": 5}");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { load_tokeniser(folder.path()); }),
                          "kind: missing, or not a text");
  spill(folder / "laconic_tokeniser.json", "{\"kind\": \"unigram\"}");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { load_tokeniser(folder.path()); }), "unigram");
  EXPECT_THROW(load_tokeniser(folder / "nowhere"), FileError);
}

TEST(Tokeniser, AValidationSetSharesTheFolderOfItsTrainingSetUnlessItHasItsOwn) {
  const TemporaryFolder folder;
  EXPECT_EQ(tokeniser_folder_of(folder / "d"), folder / "d.tokeniser");
  EXPECT_EQ(tokeniser_folder_of(folder / "d-valid"), folder / "d.tokeniser");
  EXPECT_FALSE(has_tokeniser(folder / "d.tokeniser"));
  for (const char* own : {"d.tokeniser", "d-valid.tokeniser"}) {
    Tokeniser().save(folder / own);
    EXPECT_EQ(tokeniser_folder_of(folder / "d-valid"), folder / own);
    EXPECT_TRUE(has_tokeniser(folder / own));
  }
}

TEST(Tokeniser, ThreadsMayShareOne) {
  const Tokeniser bpe = small_bpe();
  std::vector<std::string> texts;
  for (std::uint64_t seed = 0; seed < 64; ++seed)
    texts.push_back(std::string(kText) + random_bytes(seed, 100) + std::string(200, 'a'));
  std::vector<Tokens> alone;
  for (const std::string& text : texts) alone.push_back(bpe.encode(text));
  std::vector<int> equal(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < equal.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < texts.size(); ++i) equal[t] += bpe.encode(texts[i]) == alone[i];
      });
    }
  }
  for (const int count : equal) EXPECT_EQ(count, 64);
}

}  // namespace
}  // namespace laconic
