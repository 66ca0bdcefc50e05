// Studies of shells outside any lab: what is run, kept, skipped and ended. Labs and signals:
// tests/processes/process_study_test.cpp.
#include "laconic/study/run.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

class StudyOfShells : public testing::Test {
 protected:
  StudyOfShells() {
    study.out = folder / "out";
    study.environment = current_environment();
    study.commit = "abc";
    study.machine = "here";
    study.command = [this](const Trial&, const std::string& work) {
      return std::vector<std::string>{
          "sh", "-c",
          script + "\nmkdir " + work + "/run; echo '{\"traffic\": []}' > " + work +
              "/summary.json; echo '{\"step\": 1, \"loss\": 3, \"seconds\": 2}' > " + work +
              "/run/log.jsonl",
          more};
    };
    study.samples = [this](const Trial& trial) {  // asked when a trial is run
      ran.push_back(trial.method);
      return 5.0;
    };
    study.obstacle = [](const Trial& trial) { return trial.method == "c" ? "skipped: no c" : ""; };
    study.estimate = [](const Trial&) { return 1.0; };
    for (const char* method : {"a", "b", "c"}) study.trials.push_back(trial_of(method));
  }

  static Trial trial_of(const std::string& method) {
    return {.part = "p", .method = method, .rate = "none", .warmup = 0, .steps = 1};
  }
  StudyEnd run() {
    ran.clear();
    return run_study(study);
  }

  TemporaryFolder folder;
  std::string script, more = "a.b=/here/c";
  std::vector<std::string> ran;
  Study study;
};

TEST_F(StudyOfShells, RunsEachTrialOnceAndSkipsWithAReason) {
  const StudyEnd end = run();
  ASSERT_EQ(end.outcomes.size(), 3u);
  EXPECT_EQ(end.ran, 2u);
  EXPECT_EQ(ran, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(of_a_step(end.outcomes[0], &StepRow::seconds), 2);
  EXPECT_EQ(end.outcomes[0].commit, "abc");
  EXPECT_EQ(end.outcomes[0].machine, "here");
  EXPECT_EQ(end.outcomes[0].samples, 5);
  EXPECT_EQ(end.outcomes[0].command[0], "sh");
  EXPECT_EQ(end.outcomes[2].failure, "skipped: no c");
  EXPECT_FALSE(fs::exists(study.out + "/raw/p_none_c_1.json"));
  const StudyEnd again = run();
  EXPECT_EQ(ran, std::vector<std::string>{});
  EXPECT_EQ(again.outcomes, end.outcomes);
}

TEST_F(StudyOfShells, RunsAgainWhatHasChanged) {
  run();
  study.trials[1].set["key"] = "value";
  study.trials.push_back(trial_of("d"));
  const StudyEnd end = run();
  EXPECT_EQ(ran, (std::vector<std::string>{"b", "d"}));
  EXPECT_EQ(end.outcomes[1].trial, study.trials[1]);
}

TEST_F(StudyOfShells, RunsAgainWhatHasAnotherCommandButForFolders) {
  run();
  more = "a.b=there/c";
  run();
  EXPECT_EQ(ran, std::vector<std::string>{});
  for (const char* other : {"a.b=there/d", "a.c=there/d", "a.b=d", ""}) {
    more = other;
    run();
    EXPECT_EQ(ran, (std::vector<std::string>{"a", "b"})) << other;
  }
}

TEST_F(StudyOfShells, TellsOfOutcomesOfAnotherCommitAndKeepsThem) {
  run();
  study.commit = "def";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run().outcomes[0].commit, "abc");
  EXPECT_NE(::testing::internal::GetCapturedStdout().find(
                "2 outcomes that are there are of another commit than def"),
            std::string::npos);
}

TEST_F(StudyOfShells, EndsATrialWhoseTimeIsUpAndGoesOn) {
  study.deadline_seconds = 0.2;
  script = "[ -e " + folder.path() + "/seen ] || { touch " + folder.path() +
           "/seen; echo waiting; exec sleep 60; }";
  const StudyEnd end = run();
  EXPECT_EQ(end.outcomes[0].failure, "not done after 0.2 s");
  EXPECT_TRUE(fs::exists(study.out + "/logs/p_none_a_1.txt"));
  EXPECT_EQ(end.outcomes[1].failure, "");
  EXPECT_FALSE(fs::exists(study.out + "/logs/p_none_b_1.txt"));
  run();
  EXPECT_EQ(ran, std::vector<std::string>{});
  study.retry = true;
  EXPECT_EQ(run().outcomes[0].failure, "");
  EXPECT_EQ(ran, std::vector<std::string>{"a"});
}

TEST_F(StudyOfShells, LeavesOutcomesOfVeryTheseTrials) {
  study.trials = {trial_of("b"), trial_of("a"), trial_of("x")};
  run();
  write_atomically(study.out + "/raw/p_none_a_1.json", "{");
  Trial changed = trial_of("x");
  changed.steps = 2;
  Outcome outcome;
  EXPECT_FALSE(has_outcome(study.out, trial_of("a"), outcome));
  EXPECT_FALSE(has_outcome(study.out, changed, outcome));
  EXPECT_TRUE(has_outcome(study.out, trial_of("b"), outcome));
  EXPECT_EQ(outcome.trial.method, "b");
  EXPECT_FALSE(has_outcome(folder / "nowhere", trial_of("b"), outcome));
}

TEST_F(StudyOfShells, HasOneLockForEachFolder) {
  const StudyLock first(study.out);
  EXPECT_THROW(StudyLock{study.out}, ConfigError);
  EXPECT_NO_THROW(StudyLock{folder / "other"});
}

}  // namespace
}  // namespace laconic
