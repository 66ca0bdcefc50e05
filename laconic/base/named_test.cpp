#include "laconic/base/named.hpp"

#include <gtest/gtest.h>

#include "laconic/base/dtype.hpp"

namespace laconic {
namespace {

enum class Fruit : std::uint8_t { apple, pear, quince };
constexpr auto kFruitNames =
    std::to_array<Named<Fruit>>({{Fruit::pear, "a pear"}, {Fruit::apple, "an apple"}});

TEST(Named, NamesAndValuesAreInverseWhereTheTableHasThem) {
  for (const Named<Fruit>& row : kFruitNames) {
    EXPECT_EQ(name_in(kFruitNames, row.value), row.name);
    EXPECT_EQ(value_in(kFruitNames, row.name), row.value);
  }
  EXPECT_EQ(name_in(kFruitNames, Fruit::quince), "");
  EXPECT_EQ(value_in(kFruitNames, "pear"), std::nullopt);
  EXPECT_EQ(value_in(kFruitNames, ""), std::nullopt);
}

TEST(Named, ATableKeepsItsOrderAndPartsOfItTheirs) {
  EXPECT_EQ(names_in(kFruitNames), (std::vector<std::string>{"a pear", "an apple"}));
  constexpr auto kBoth = rows_of(kFruitNames, {Fruit::apple, Fruit::pear});
  EXPECT_EQ(names_in(kBoth), (std::vector<std::string>{"an apple", "a pear"}));
  constexpr auto kOne = rows_of(kFruitNames, {Fruit::apple});
  EXPECT_EQ(value_in(kOne, "a pear"), std::nullopt);
}

TEST(Named, LongNamesOfDtypesAreThoseOfPyTorch) {
  for (const Named<Dtype>& row : kDtypeLongNames) EXPECT_TRUE(is_float(row.value)) << row.name;
  EXPECT_EQ(names_in(kDtypeLongNames),
            (std::vector<std::string>{"float32", "float64", "float16", "bfloat16"}));
}

}  // namespace
}  // namespace laconic
