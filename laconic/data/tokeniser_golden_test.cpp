// Against GPT-2's real vocabulary and Hugging Face's tokenizers (tests/golden/tokeniser).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/data/bpe_file.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/test_bpe.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/data/tokeniser.hpp"

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

nlohmann::json golden(const std::string& name) {
  const std::string path = source_root() + "/tests/golden/tokeniser/" + name;
  if (!std::filesystem::exists(path)) return nullptr;
  return nlohmann::json::parse(slurp(path));
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
  if (file.is_null()) GTEST_SKIP() << "texts.json is absent: tools/make_tokeniser_golden.py";
  for (const auto& vector : file["vectors"]) {
    const std::string text = base64_decoded(vector["text"]);
    EXPECT_EQ(gpt2.encode(text), vector["ids"].get<Tokens>()) << vector["name"];
    EXPECT_EQ(gpt2.decode(gpt2.encode(text)), text) << vector["name"];
  }
}

TEST(BpeTrainGolden, MergesMatchHuggingFace) {
  for (const char* name : {"train-300.json", "train-512.json"}) {
    const nlohmann::json file = golden(name);
    if (file.is_null()) GTEST_SKIP() << name << " is absent: tools/make_tokeniser_golden.py";
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
