#include "laconic/launch/line.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

using Lines = std::vector<std::string>;

Lines cut(const std::vector<std::string_view>& pieces) {
  LineCutter cutter;
  Lines lines;
  for (const std::string_view piece : pieces)
    for (std::string& line : cutter.take(piece)) lines.push_back(std::move(line));
  if (std::string rest = cutter.take_rest(); !rest.empty()) lines.push_back("rest: " + rest);
  EXPECT_EQ(cutter.take_rest(), "");
  return lines;
}

TEST(Line, AnyCuttingOfATextGivesTheSameLines) {
  const std::string text = "one\n\ntwo three\nfour";
  const Lines expected = {"one", "", "two three", "rest: four"};
  for (std::size_t a = 0; a <= text.size(); ++a)
    for (std::size_t b = a; b <= text.size(); ++b) {
      const std::string_view view = text;
      EXPECT_EQ(cut({view.substr(0, a), view.substr(a, b - a), view.substr(b)}), expected);
    }
}

TEST(Line, ALineWithoutEndIsCut) {
  const std::string longest(LineCutter::kLongest, 'x');
  EXPECT_EQ(cut({longest + longest + "y"}), (Lines{longest, longest, "rest: y"}));
  EXPECT_EQ(cut({longest.substr(1), "\n"}), (Lines{longest.substr(1)}));
}

TEST(Line, PrefixesNameTheRank) {
  EXPECT_EQ(line_prefix(0, false), "[0] ");
  EXPECT_EQ(line_prefix(12, false), "[12] ");
  EXPECT_EQ(line_prefix(1, true), "\033[33m[1]\033[0m ");
  EXPECT_NE(line_prefix(2, true).substr(0, 5), line_prefix(3, true).substr(0, 5));
}

}  // namespace
}  // namespace laconic
