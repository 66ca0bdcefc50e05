// The contents of a report's folder, its commands, and the page people read.
#include <gtest/gtest.h>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"
#include "laconic/study/work.hpp"

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

// Where things are is only known from the commands of trials.
TEST(StudyPages, CommandsBeginWithWhatMakesTheirData) {
  Places places = {.laconic = "build/bin/laconic",
                   .python = "/usr/bin/python3",
                   .source = ".",
                   .work = "my out/scratch"};
  const std::vector<Trial> trials = {
      {.rate = "50mbit", .model = "pipeline"},
      {.rate = "50mbit", .program = Program::ddp, .model = "replicas"}};
  StudyFile study;
  apply_study(R"(
[models.pipeline]
set.data.train = "$work/pipeline"
prepare = [{ makes = "$work/a", lines = ["$laconic prepare $source/a --out $work/a"] }]
[models.replicas]
set.data.train = "$work/replicas"
prepare = [{ makes = "$work/b", lines = ["$python $source/b.py $work/b"] }]
)",
              "study.toml", study);
  const auto text_of = [&] {
    Outcomes outcomes;
    for (const Trial& trial : trials)
      outcomes.push_back(
          {.trial = trial, .command = command_of(trial, study, places, "my out/run")});
    return commands_text(outcomes, {.models = study.models});
  };
  const auto preparation = [&] {
    std::string lines;
    for (const std::string& line : preparation_of(places, study.models, trials))
      lines += line + "\n";
    return lines + "mkdir -p 'my out/run'\n\n# ";
  };
  const std::string to_root = "\ncd \"$(git -c 'safe.directory=*' rev-parse --show-toplevel)\"\n";
  const std::string text = text_of();
  EXPECT_TRUE(contains(text, preparation())) << text;
  ASSERT_TRUE(contains(text, to_root)) << text;
  EXPECT_LT(text.find(to_root), text.find("\nmkdir"));
  // Called from somewhere else.
  places.source = "/there";
  places.laconic = "/there/build/bin/laconic";
  EXPECT_TRUE(contains(text_of(), preparation())) << text_of();
  EXPECT_FALSE(contains(text_of(), "\ncd ")) << text_of();
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

TEST(StudyPages, TheSummarySaysWhatIsMissing) {
  const ReportFacts facts = {.size = "full", .trials = 2};
  Outcomes outcomes = {invented({}), invented({.round = 2})};
  const auto line = [&] {
    const std::string page = summary_page(outcomes, facts, {}, "");
    const std::size_t at = page.find("Not all of it was measured: ");
    return at == std::string::npos ? "" : page.substr(at, page.find('\n', at) - at);
  };
  EXPECT_TRUE(is_complete(outcomes, facts));
  EXPECT_EQ(line(), "");
  outcomes[1].failure = "lost";
  EXPECT_FALSE(is_complete(outcomes, facts));
  EXPECT_EQ(line(), "Not all of it was measured: 2 of 2 trials; 1 failed; 0 skipped.");
  outcomes[1].failure = "skipped: no PyTorch";
  EXPECT_EQ(line(), "Not all of it was measured: 2 of 2 trials; 0 failed; 1 skipped.");
  outcomes.pop_back();
  EXPECT_EQ(line(), "Not all of it was measured: 1 of 2 trials; 0 failed; 0 skipped.");
}

TEST(StudyPages, EveryPageWithNumbersSaysItsSetting) {
  const Outcomes outcomes = testing::invented_study();
  for (const std::string& page :
       {bandwidth_page(outcomes, {}), end_to_end_page(outcomes), optimus_page(outcomes),
        data_parallel_page(outcomes, {}), pays_page(outcomes, {}), honesty_page(outcomes),
        targets_page(outcomes), summary_page(outcomes, {}, {}, "")}) {
    const std::size_t at = page.find("\n\nSetting: ");
    ASSERT_NE(at, std::string::npos) << page.substr(0, 60);
    EXPECT_EQ(page.find("\nSetting: ", at + 2), std::string::npos) << page.substr(0, 60);
  }
}

// Our meter agrees with the counters; a step of so many seconds is not the one that was predicted.
TEST(StudyPages, TheSummaryCountsTargets) {
  EXPECT_TRUE(contains(summary_page({invented({.seconds = 100})}, {}, {}, ""),
                       " [targets](targets.md) 1 is met, 1 is not, "));
  const std::string all = std::to_string(targets_of({}).size());
  EXPECT_TRUE(contains(summary_page({}, {}, {}, "there/"),
                       "Of " + all + " [targets](there/targets.md) 0 are met, 0 are not, " + all +
                           " were not measured.\n"));
}

}  // namespace
}  // namespace laconic
