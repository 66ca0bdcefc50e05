#include "laconic/report/table.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(Table, NumbersStandUnderEachOther) {
  Table table({{"class", Align::left}, {"bytes"}, {"note", Align::left}});
  table.add({"gradient", "1.2 GB", "31.8×"});
  table.add({"µ", "0 B", ""});
  EXPECT_EQ(to_text(table),
            "class      bytes  note\n"
            "--------  ------  -----\n"
            "gradient  1.2 GB  31.8×\n"
            "µ            0 B\n");
}

TEST(Table, WithoutRowsHasOnlyItsHead) {
  EXPECT_EQ(to_text(Table({{"a"}, {"b"}})), "a  b\n-  -\n");
}

TEST(Table, ARowOfTheWrongLengthIsABug) {
  Table table({{"a"}});
  EXPECT_THROW(table.add({}), std::logic_error);
}

TEST(Column, LettersAreNeverSplit) {
  EXPECT_EQ(columns_of("31.8×"), 5u);
  EXPECT_EQ(clipped("µs×", 2), "µs");
  EXPECT_EQ(clipped("µs×", 0), "");
  EXPECT_EQ(clipped("µs×", 9), "µs×");
  EXPECT_EQ(padded("µ", 3, Align::right), "  µ");
  EXPECT_EQ(padded("long", 3, Align::left), "long");
}

}  // namespace
}  // namespace laconic
