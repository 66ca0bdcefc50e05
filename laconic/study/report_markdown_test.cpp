#include "laconic/study/report_markdown.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace laconic {
namespace {

TEST(StudyPages, ATableEscapesPipes) {
  EXPECT_EQ(markdown_table({{"name", Align::left}, {"value"}}, {{"a|b", "1"}, {"c\nd", ""}}),
            "| name | value |\n|---|--:|\n| a\\|b | 1 |\n| c d |  |\n\n");
  EXPECT_THROW(markdown_table({{"name"}}, {{}}), std::logic_error);
}

TEST(StudyPages, AFigureIsALinkOrASentence) {
  const Drawn drawn = {{"speed"}, {"speed", "loss"}, "gnuplot is not installed"};
  EXPECT_EQ(figure_text(drawn, "speed", "Speed", "2026-11-15/"),
            "![Speed](2026-11-15/figures/speed.svg)\n\nSpeed ([PNG](2026-11-15/figures/speed.png), "
            "[data](2026-11-15/figures/speed.dat))\n\n");
  EXPECT_EQ(figure_text(drawn, "loss", "Loss"),
            "Loss: not drawn, since gnuplot is not installed; the [data](figures/loss.dat) are "
            "there.\n\n");
  EXPECT_EQ(figure_text(drawn, "gain", "Gain"),
            "Gain: nothing to draw, the runs that it needs are missing.\n\n");
}

TEST(StudyPages, WordsAgreeWithTheirNumber) {
  EXPECT_EQ(with_count(0, "is", "are"), "0 are");
  EXPECT_EQ(with_count(1, "is", "are"), "1 is");
  EXPECT_EQ(with_count(2, "is", "are"), "2 are");
}

}  // namespace
}  // namespace laconic
