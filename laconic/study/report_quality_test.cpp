#include <gtest/gtest.h>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic::testing {
namespace {

Outcome evaluated(const std::string& method, int seed, double loss) {
  Outcome outcome =
      invented({.part = "validation loss", .method = method, .rate = "none", .round = seed});
  outcome.trial.model = "wikitext";
  outcome.model_about = "4 layers of width 256";
  outcome.validation_loss = loss;
  return outcome;
}

const ReportFacts kFacts{
    .date = "2026-01-01", .machine = "a machine", .commit = "abc", .size = "quality"};

TEST(QualityPage, ComparesSeedBySeed) {
  // Seeds differ by far more than methods do.
  const std::string page =
      quality_page({evaluated("uncompressed", 1, 3.0), evaluated("rotated", 1, 3.25),
                    evaluated("uncompressed", 2, 5.0), evaluated("rotated", 2, 5.5),
                    evaluated("uncompressed", 3, 4.0), evaluated("rotated", 3, 4.375)},
                   kFacts);
  EXPECT_TRUE(contains(page, "4.0000 (3.0000–5.0000, n 3)")) << page;
  EXPECT_TRUE(contains(page, "0.3750 (0.2500–0.5000, n 3)")) << page;
  EXPECT_TRUE(contains(page, "4 layers of width 256")) << page;
  EXPECT_TRUE(contains(page, "low-rank validation loss"));
}

TEST(QualityPage, HasASentenceForWhatIsMissing) {
  const std::string page = quality_page({evaluated("rotated", 1, 3.25)}, kFacts);
  EXPECT_TRUE(contains(page, "3.2500"));
  EXPECT_TRUE(contains(page, "–"));  // nothing to compare with
  Outcome failed = evaluated("uncompressed", 1, 0);
  failed.failure = "exit code 1: no";
  EXPECT_FALSE(quality_page({failed}, kFacts).empty());
}

TEST(QualityPage, AnOutcomeKeepsItsValidationLoss) {
  const Outcome outcome = evaluated("rotated", 1, 3.25);
  EXPECT_EQ(parse_outcome(to_json(outcome)), outcome);
  Outcome without = outcome;
  without.validation_loss = 0;
  EXPECT_FALSE(contains(to_json(without), "validation_loss"));  // old files have none
  EXPECT_EQ(parse_outcome(to_json(without)), without);
}

}  // namespace
}  // namespace laconic::testing
