// Against sacreBLEU (tests/golden/metric).
#include "laconic/metric/bleu.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/metric/test_golden.hpp"

namespace laconic {
namespace {

TEST(Bleu, LinesHaveTheWordsThatSacrebleuFinds) {
  const nlohmann::json file = metric_golden("bleu.json");
  ASSERT_GE(file.at("lines").size(), 25u);
  for (const auto& line : file["lines"])
    EXPECT_EQ(tokenise_13a(line[0].get<std::string>()), line[1].get<std::string>());
}

TEST(Bleu, CorporaHaveTheScoreThatSacrebleuGives) {
  const nlohmann::json file = metric_golden("bleu.json");
  ASSERT_GE(file.at("cases").size(), 17u);
  for (const auto& row : file["cases"]) {
    SCOPED_TRACE(row["name"].get<std::string>());
    const std::vector<std::string> translations = row["translations"];
    const std::vector<std::vector<std::string>> references = row["references"];
    const Bleu made = bleu(translations, references);
    EXPECT_NEAR(made.score, row["score"], 1e-12);
    EXPECT_NEAR(made.brevity_penalty, row["brevity_penalty"], 1e-12);
    EXPECT_EQ(made.length, row["length"]);
    EXPECT_EQ(made.reference_length, row["reference_length"]);
    for (std::size_t i = 0; i < kBleuOrders; ++i) {
      EXPECT_EQ(made.correct[i], row["correct"][i]) << i;
      EXPECT_EQ(made.total[i], row["total"][i]) << i;
      EXPECT_NEAR(made.precisions[i], row["precisions"][i], 1e-12) << i;
    }
    EXPECT_EQ(to_text(made), row["text"].get<std::string>());
    EXPECT_EQ(bleu_signature(references), row["signature"].get<std::string>());
  }
}

TEST(Bleu, RefusesWhatHasNoReference) {
  const std::vector<std::string> two = {"a", "b"};
  const std::vector<std::vector<std::string>> one = {{"a"}}, none = {{"a"}, {}};
  EXPECT_THROW(bleu(two, one), ConfigError);
  try {
    bleu(two, none);
    ADD_FAILURE() << "a missing reference was taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "translation 2 has no reference");
  }
}

}  // namespace
}  // namespace laconic
