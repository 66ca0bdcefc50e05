#include "laconic/study/report_markdown.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::invented;
using testing::invented_peer;

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

TEST(StudyPages, TheSettingIsWhatIsKnownOfIt) {
  const std::string end =
      "; ranks have one thread each, in network namespaces of one machine, whose cores they share; "
      "links have no latency but that of queues.\n\n";
  const std::string pipeline =
      "8 layers of width 256, 4 heads, a context of 128 tokens, a vocabulary of 2048, ";
  const std::string replicas =
      "6 layers of width 384, 6 heads, a context of 128 tokens, a vocabulary of 8192, a batch of 8 "
      "on 4 ranks (a rank's share of the batch is 2 samples)";
  Outcome stages = invented({}), both = invented({.part = "end-to-end", .dp = 2});
  stages.trial.model = both.trial.model = "pipeline";
  stages.model_about = both.model_about =
      "8 layers of width 256, 4 heads, a context of 128 tokens, a vocabulary of 2048";
  Outcome peer = invented_peer({.part = "data-parallel", .method = "DDP"});
  peer.trial.model = "replicas";
  peer.model_about =
      "6 layers of width 384, 6 heads, a context of 128 tokens, a vocabulary of 8192";
  peer.trial.set["batch"] = "8";
  const std::vector<Outcome> all = {stages, stages, both, peer};
  EXPECT_EQ(setting_text(all, {"bandwidth"}),
            "Setting: " + pipeline + "a batch of 32 in microbatches of 4 on 4 ranks" + end);
  EXPECT_EQ(setting_text(all),
            "Setting: " + pipeline +
                "a batch of 32 in microbatches of 4 on 4 ranks or a batch of 64 in microbatches of "
                "4 on 8 ranks; " +
                replicas + end);
  EXPECT_EQ(setting_text(all, {"loss"}), "");
  Outcome bare = invented({.method = "mine"}), failed = stages;
  bare.command.clear();
  failed.failure = "lost";
  EXPECT_EQ(setting_text({bare, failed, invented({.rate = "none"})}), "Setting: 4 ranks" + end);
}

}  // namespace
}  // namespace laconic
