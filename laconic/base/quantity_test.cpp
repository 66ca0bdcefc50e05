#include "laconic/base/quantity.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(Quantity, IsReadWithItsUnit) {
  EXPECT_EQ(parse_quantity("1.5gbit", kBitUnits), 1.5e9);
  EXPECT_EQ(parse_quantity("200us", kTimeUnits), 200 * 1e-6);
  EXPECT_EQ(parse_quantity("2GiB", kByteUnits), 2147483648.0);
}

TEST(Quantity, OfAnotherTableOrFormIsNone) {
  for (const char* text : {"", "12", "gbit", "-1gbit", "1 gbit", "1gbits", "1GB", "infgbit", "nan",
                           "1e3mbit", "-0gbit"})
    EXPECT_FALSE(parse_quantity(text, kBitUnits)) << text;
}

TEST(Quantity, IsPrintedInTheLargestUnitThatItReaches) {
  EXPECT_EQ(quantity_text(1e9, kBitUnits), "1gbit");
  EXPECT_EQ(quantity_text(999e6, kBitUnits), "999mbit");
  EXPECT_EQ(quantity_text(0, kTimeUnits), "0us");
  EXPECT_EQ(quantity_text(4e9, kByteUnits), "4GB");
}

TEST(Quantity, ComesBackToTheLastDigit) {
  for (const double value : {1.0 / 3, 3e-4, 7e-4, 0.123456789012345, 12.5, 1e-9})
    EXPECT_EQ(parse_quantity(quantity_text(value, kTimeUnits), kTimeUnits), value) << value;
}

}  // namespace
}  // namespace laconic
