#include "laconic/base/text.hpp"

#include <gtest/gtest.h>

#include "laconic/base/xml.hpp"

namespace laconic {
namespace {

TEST(Xml, IsEscaped) {
  EXPECT_EQ(xml_escaped("a < b & \"c\" > d\x1b\n"), "a &lt; b &amp; &quot;c&quot; &gt; d");
  EXPECT_EQ(xml_escaped("µs"), "µs");
}

TEST(Text, EditDistanceCountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("layers", "layer"), 1);
  EXPECT_EQ(edit_distance("wdith", "width"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Text, NearestFindsMisspellingsAndOnlyThose) {
  const std::vector<std::string> keys = {"layers", "width", "heads", "dropout"};
  EXPECT_EQ(nearest("layer", keys), "layers");
  EXPECT_EQ(nearest("wdith", keys), "width");
  EXPECT_EQ(nearest("drop_out", keys), "dropout");
  EXPECT_EQ(nearest("optimizer", keys), "");
}

TEST(Text, SplitKeepsEmptyPartsAndJoinUndoesIt) {
  for (const char* text : {"", "a", "a,b", ",", "a,,b,"})
    EXPECT_EQ(join(split(text, ','), ","), text);
  EXPECT_EQ(split("a,,b", ',').size(), 3u);
}

TEST(Text, HumanNumbersReadLikeAPersonWroteThem) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(12'345'678), "12.3 MB");
  EXPECT_EQ(human_count(124'400'000), "124.4 M");
  EXPECT_EQ(human_seconds(0.85), "850 ms");
  EXPECT_EQ(human_seconds(245), "4 m 05 s");
  EXPECT_EQ(human_seconds(7800), "2 h 10 m");
  EXPECT_EQ(human_seconds(119.7), "2 m 00 s");
  EXPECT_EQ(human_seconds(3599.6), "1 h 00 m");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(12), "12");
}

TEST(Text, TrimTakesBlanksOffBothEnds) {
  EXPECT_EQ(trim("  a b\t\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Text, PrintableCannotSteerATerminal) {
  EXPECT_EQ(printable("wte.weight"), "wte.weight");
  EXPECT_EQ(printable(std::string("a\0\x1b[2Jb\n", 8)), "a??[2Jb?");
  EXPECT_EQ(printable("aéé", 3), "aé...");
  EXPECT_EQ(printable("aéé", 4), "aé...");
  EXPECT_EQ(printable("aéé", 5), "aéé");
  EXPECT_EQ(printable("abc", 0), "...");
}

}  // namespace
}  // namespace laconic
