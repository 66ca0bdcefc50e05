// Against scikit-learn and SciPy (tests/golden/metric), and what they cannot say.
#include "laconic/metric/metric.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "laconic/metric/test_golden.hpp"

namespace laconic {
namespace {

TEST(Metric, LabelsAgreeWithScikitLearn) {
  const nlohmann::json file = metric_golden("labels.json");
  ASSERT_GE(file.at("cases").size(), 13u);
  int binary = 0;
  for (const auto& row : file["cases"]) {
    const std::vector<std::int32_t> predicted = row["predicted"], actual = row["actual"];
    EXPECT_NEAR(accuracy(predicted, actual), row["accuracy"], 1e-12) << row["name"];
    EXPECT_NEAR(matthews(predicted, actual), row["matthews"], 1e-12) << row["name"];
    if (!row.contains("f1")) continue;
    EXPECT_NEAR(f1(predicted, actual), row["f1"], 1e-12) << row["name"];
    ++binary;
  }
  EXPECT_GE(binary, 11);
}

TEST(Metric, ValuesAgreeWithSciPy) {
  const nlohmann::json file = metric_golden("values.json");
  ASSERT_GE(file.at("cases").size(), 12u);
  for (const auto& row : file["cases"]) {
    const std::vector<double> predicted = row["predicted"], actual = row["actual"];
    for (const auto& [name, function] : {std::pair{"pearson", &pearson}, {"spearman", &spearman}}) {
      const std::optional<double> value = function(predicted, actual);
      ASSERT_EQ(value.has_value(), !row[name].is_null()) << name << ' ' << row["name"];
      if (!value) continue;
      EXPECT_NEAR(*value, row[name], 1e-12) << name << ' ' << row["name"];
    }
  }
}

TEST(Metric, CorrelationOfWhatIsNotFiniteOrAloneIsAbsent) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> fine = {1, 2, 3};
  for (const double bad : {inf, -inf, std::nan("")}) {
    const std::vector<double> spoiled = {1, bad, 3};
    EXPECT_FALSE(pearson(spoiled, fine) || pearson(fine, spoiled));
    EXPECT_FALSE(spearman(spoiled, fine) || spearman(fine, spoiled));
  }
  const std::vector<double> alone = {1};
  EXPECT_FALSE(pearson(alone, alone) || spearman(alone, alone));
}

TEST(Metric, RefusesSidesOfDifferentSize) {
  const std::vector<std::int32_t> two = {0, 1}, three = {0, 1, 1};
  EXPECT_ANY_THROW(accuracy(two, three));
  EXPECT_ANY_THROW(f1({}, {}));
}

TEST(Majority, IsTheShareOfTheCommonestClass) {
  EXPECT_DOUBLE_EQ(majority(std::vector<std::int32_t>{1, 0, 1, 2}), 0.5);
  EXPECT_DOUBLE_EQ(majority(std::vector<std::int32_t>{3}), 1);
}

}  // namespace
}  // namespace laconic
