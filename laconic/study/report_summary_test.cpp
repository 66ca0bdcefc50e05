// The contents of a report's folder, its commands, and the page people read.
#include <gtest/gtest.h>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;

TEST(StudyPages, CommandsCanBeTypedAgain) {
  Outcome outcome = invented({});
  outcome.command = {"laconic",  "train",  "my file.toml",       "--set",
                     "a.b=it's", "--json", "my out/run/lab.json"};
  outcome.failure = "refused";
  const std::string text = commands_text({outcome}, {.command = "laconic study"});
  EXPECT_TRUE(contains(text, "#   laconic study\n"));
  EXPECT_TRUE(contains(text,
                       "\nmkdir -p 'my out/run'\n\n"
                       "# bandwidth, 100mbit, fp32, round 1: failed\n"
                       "laconic train 'my file.toml' --set 'a.b=it'\\''s' --json "
                       "'my out/run/lab.json'\n\n"))
      << text;
}

TEST(StudyPages, FailuresAreListedWithTheirReasons) {
  Outcome failed = invented({.round = 2});
  failed.failure = "exit code 3: rank 2 is lost";
  failed.commit = "fff0000";
  const ReportFacts facts = {"2026-11-15", "a machine", "abc1234", "laconic study", "short", 4};
  Outcome skipped = invented({.round = 3});
  skipped.failure = "skipped: no PyTorch";
  const std::string page = contents_page({invented({}), failed, skipped}, facts);
  EXPECT_TRUE(contains(page, "- 3 of 4 trials; 1 failed; 1 skipped\n"));
  EXPECT_TRUE(contains(page, "- bandwidth, 100mbit, fp32, round 2: exit code 3: rank 2 is lost\n"));
  EXPECT_TRUE(contains(page, "- of commit fff0000: 1 of 3 runs\n"));
  EXPECT_TRUE(contains(contents_page({invented({})}, facts), "## Runs that failed\n\nNone.\n"));
}

}  // namespace
}  // namespace laconic
