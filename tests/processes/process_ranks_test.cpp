// Runs of several ranks that the launcher has started: they train alike, are killed, stalled, asked
// to end, and started again.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/test_effort.hpp"
#include "tests/processes/ranks.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

TEST_F(Ranks, TrainLikeOneAnotherEveryTime) {
  const ProcessResult outcome = expect_exit(0, on_three("runs/a"));
  expect_exit(0, on_three("runs/b"));
  expect_same_end("runs/a", "runs/b", 12);
  EXPECT_EQ(outcome.err, "");
  EXPECT_FALSE(contains(outcome.out, "\n[1] ")) << outcome.out;  // rank 0 speaks for all
  EXPECT_TRUE(contains(outcome.out, "rank 0 of 3, 0 of 3 on this machine")) << outcome.out;
}

// Threads were compared with one process (tests/equivalence), so processes are too.
TEST_F(Ranks, TrainOverGlooWhatThreadsTrain) {
  for (const char* codec : {"raw", "quantise:bits=4"}) {
    const Words policy = {"--set", fmt::format("dp.gradient.codec={}", codec), "--set",
                          "dp.gradient.algorithm=direct"};
    const std::string name = fmt::format("runs/{}", codec[0]);
    expect_exit(0, on_three(name + "-processes", policy));
    expect_exit(0, on_three(name + "-threads", policy + threads()));
    expect_same_end(name + "-processes", name + "-threads", 12);
  }
}

// Of three: the one that speaks for all, and others.
const std::vector<int> kKilled = {0, 1, 2};

TEST_F(Ranks, WhenOneIsKilledTheOthersStopInTimeAndNameIt) {
  for (const int rank : some_of(kKilled, 2)) {
    const std::string run = fmt::format("runs/{}", rank);
    Process process(spec(on_three(run, endless())));
    ASSERT_TRUE(wait_for_step(process, run, 5)) << to_text(process.wait());
    expect_end_of_killed(process, rank);
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      const std::string log = text(fmt::format("{}/ranks/rank-{}.log", run, other));
      EXPECT_TRUE(contains(log, fmt::format("rank {}", rank))) << other << ": " << log;
    }
    EXPECT_TRUE(
        text(run + "/flight/verdict.txt").starts_with(fmt::format("rank {} left no record", rank)))
        << text(run + "/flight/verdict.txt");
  }
}

// Ranks that still look for each other give up with whomever they were talking to, who need not be
// the one that died; the launcher names that one.
TEST_F(Ranks, WhenOneIsKilledBeforeAllAreConnectedTheLauncherNamesIt) {
  for (const int rank : some_of(kKilled, 3, 1)) {
    Process process(spec(on_three(fmt::format("runs/{}", rank), endless())));
    expect_end_of_killed(process, rank);
  }
}

TEST_F(Ranks, WhenOneIsKilledWhileAllSaveTheCheckpointBeforeStays) {
  const Words residuals = {"--set", "dp.gradient.codec=quantise:bits=4", "--set",
                           "checkpoint.every=1"};
  for (const int rank : some_of(kKilled, 3)) {
    const std::string run = fmt::format("runs/{}", rank);
    Process process(spec(on_three(run, endless() + residuals)));
    ASSERT_TRUE(wait_for_step(process, run, 3)) << to_text(process.wait());
    ASSERT_TRUE(wait_until(process, [&] {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(folder_ / (run + "/checkpoints"), ignored))
        if (entry.path().extension() == ".writing") return true;
      return false;
    }));
    expect_end_of_killed(process, rank);
    const std::int64_t end = steps_saved(run).back() + 2;
    expect_exit(0, on_three(run, residuals + Words{"--set", fmt::format("train.steps={}", end),
                                                   "--resume", "auto"}));
    for (const auto& entry : fs::directory_iterator(folder_ / (run + "/checkpoints")))
      EXPECT_TRUE(entry.path().extension().empty()) << entry.path();
  }
}

TEST_F(Ranks, OneThatHangsIsNamed) {
  const std::string run = "runs/a";
  Process process(spec(on_three(run, endless() + Words{"--set", "network.deadline=2"})));
  ASSERT_TRUE(wait_for_step(process, run, 5)) << to_text(process.wait());
  send_to_rank(process, 1, SIGSTOP);
  const Stopwatch watch;
  const std::string verdict = "rank 1 left no record";
  ASSERT_TRUE(wait_until(process, [&] { return contains(text("process.err"), verdict); }))
      << to_text(process.wait());
  EXPECT_LT(watch.seconds(), 2 + kSlack);
  send_to_rank(process, 1, SIGKILL);  // the launcher would, later
  process.wait(60);
  EXPECT_TRUE(text(run + "/flight/verdict.txt").starts_with(verdict));
}

TEST_F(Ranks, AMessageThatChangedOnTheWayIsNamedAndTheRunStartedAgain) {
  const ProcessResult outcome = laconic(on_three(
      "runs/a", {"--set", "network.faults=flip:rank=1,at=17,bit=300", "--max-restarts", "1"}));
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "from rank 1: ")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "restart 1 of 1")) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_TRUE(contains(verdict.substr(0, verdict.find('\n')), "failed by itself: ")) << verdict;
  EXPECT_TRUE(contains(verdict, ": step 1\n")) << verdict;
}

// The last of the 16 messages that the ring makes of a step's four blocks: whichever block it is
// of, none of the same tag follows that could be taken for it.
TEST_F(Ranks, AMessageThatNeverComesIsNamed) {
  const ProcessResult outcome =
      laconic(on_three("runs/a", {"--set", "network.faults=drop:rank=1,traffic=dp.gradient,at=15",
                                  "--set", "network.deadline=2"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_TRUE(
      contains(verdict.substr(0, verdict.find('\n')), "from rank 1 left but did not reach rank"))
      << verdict;
}

TEST_F(Ranks, AFullDiskIsTheFailureOfWhoMetIt) {
  ProcessSpec limited = spec(on_three("runs/a", {"--max-restarts", "1"}));
  limited.largest_file_bytes = 28'000;  // config.toml has less, model.safetensors more
  const ProcessResult outcome = Process(limited).wait(60);
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "model.safetensors.tmp: cannot write: File too large"));
  EXPECT_TRUE(contains(outcome.err, "restart 1 of 1")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "rank 0   ended with exit code 1 (failed)"))
      << to_text(outcome);
  for (int other : {1, 2})
    EXPECT_TRUE(contains(outcome.err, fmt::format("rank {}   ended with exit code 3", other)));
  EXPECT_TRUE(fs::is_empty(folder_ / "runs/a/checkpoints"));
}

TEST_F(Ranks, ARequestThatCannotBeMetIsRefusedOnceWithEveryReason) {
  const ProcessResult outcome = laconic(
      on_three("runs/a", {"--set", "network.faults=flip:rank=7,at=1,bit=1", "--set",
                          "network.shape=rate=fast", "--set", "dp.gradient.codec=low_rank"}));
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  for (const std::string part : {"network.faults: ", "network.shape: ", "dp.gradient.codec: "}) {
    const std::size_t at = outcome.err.find(part);
    EXPECT_NE(at, std::string::npos) << part << to_text(outcome);
    EXPECT_EQ(at, outcome.err.rfind(part)) << part << to_text(outcome);
  }
}

TEST_F(Ranks, ARunKilledAgainAndAgainEndsAsOneLeftAlone) {
  const Words steps = {"--set", "train.steps=60",
                       "--set", "checkpoint.every=4",
                       "--set", "dp.gradient.algorithm=direct"};
  expect_exit(0, on_three("runs/undisturbed", steps + threads()));
  Process process(spec(on_three("runs/a", steps + Words{"--max-restarts", "5"})));
  const std::vector<int> killed = some_of(kKilled, 2);
  for (std::size_t life = 0; life < killed.size(); ++life) {
    ASSERT_TRUE(wait_for_step(process, "runs/a", 10 + 15 * static_cast<std::int64_t>(life)))
        << to_text(process.wait());
    kill_rank(process, killed[life]);
    ASSERT_TRUE(wait_until(process, [&] {
      return contains(text("process.err"), fmt::format("restart {} of 5", life + 1));
    })) << to_text(process.wait());
  }
  const ProcessResult outcome = process.wait(60);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  expect_same_end("runs/a", "runs/undisturbed", 60);
}

TEST_F(Ranks, AnInterruptedRunSavesAndGoesOnAsIfNothingHadHappened) {
  const Words direct = {"--set", "dp.gradient.algorithm=direct"};
  Process process(spec(on_three("runs/a", direct + Words{"--set", "train.steps=1000000"})));
  ASSERT_TRUE(wait_for_step(process, "runs/a", 9));
  process.send(SIGINT);
  const ProcessResult outcome = process.wait(30);
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT) << to_text(outcome);
  ASSERT_FALSE(steps_saved("runs/a").empty());
  // Another rank may have had the signal a step earlier, or later.
  const std::string said = "[0] laconic: SIGINT: finishing step ";
  ASSERT_TRUE(outcome.err.starts_with(said)) << to_text(outcome);
  EXPECT_NEAR(std::stod(outcome.err.substr(said.size())),
              static_cast<double>(steps_saved("runs/a").back()), 1);
  EXPECT_TRUE(outcome.err.ends_with(", then saving; again to end at once\n")) << outcome.err;
  const std::int64_t end = steps_saved("runs/a").back() + 3;
  const Words steps = direct + Words{"--set", fmt::format("train.steps={}", end)};
  expect_exit(0, on_three("runs/a", steps + Words{"--resume", "auto"}));
  expect_exit(0, on_three("runs/undisturbed", steps + threads()));
  expect_same_end("runs/a", "runs/undisturbed", end);
}

TEST_F(Ranks, WhenNobodyReadsAnyMoreTheySaveAndEnd) {
  ProcessSpec piped = spec(on_three("runs/a", {"--set", "train.steps=1000000"}));
  piped.words.insert(piped.words.begin(),
                     {"/bin/bash", "-c", "\"$@\" | head -n 6; exit ${PIPESTATUS[0]}", "bash"});
  const ProcessResult outcome = Process(piped).wait(60);
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "nobody reads standard output any more")) << to_text(outcome);
  ASSERT_FALSE(steps_saved("runs/a").empty()) << to_text(outcome);
  EXPECT_EQ(steps_saved("runs/a").back(), losses("runs/a").rbegin()->first);
}

// The launcher holds the lock, or else rank 0; a second run hears of it before a rank is started.
TEST_F(Ranks, ASecondRunInTheFolderIsRefusedBeforeItsRanksStart) {
  Process first(spec(on_three("runs/a", endless() + Words{"--max-restarts", "1"})));
  ASSERT_TRUE(wait_for_step(first, "runs/a", 3));
  fs::create_directory(folder_ / "second");
  const auto refused = [&](const Words& more, pid_t owner) {
    ProcessSpec second = spec(on_three("../runs/a", more));
    second.folder = folder_ / "second";
    second.words[2] = "../run.toml";
    second.words.insert(second.words.end(),
                        {"--set", "data.train=../data", "--set", "data.valid=../data-valid"});
    const ProcessResult outcome = Process(second).wait(20);
    EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
    EXPECT_TRUE(contains(outcome.err, fmt::format("../runs/a: process {} on ", owner)))
        << to_text(outcome);
    EXPECT_FALSE(contains(outcome.err, "[0]")) << to_text(outcome);
    EXPECT_EQ(outcome.out, "");
  };
  for (const Words& more :
       {Words{}, Words{"--resume", "auto"}, Words{"--overwrite"}, Words{"--resume", "../runs/a"}})
    refused(more, first.pid());
  kill_rank(first, 1);  // between two attempts the folder is still taken
  ASSERT_TRUE(wait_until(first, [&] { return contains(text("process.err"), "restart 1 of 1"); }));
  refused({"--resume", "auto"}, first.pid());
  const std::int64_t before = losses("runs/a").rbegin()->first;
  ASSERT_TRUE(wait_for_step(first, "runs/a", before + 3));
  first.send(SIGKILL);  // leaves its lock, which is then nobody's
  first.wait(20);
  EXPECT_TRUE(fs::exists(folder_ / "runs/a/run.lock"));
  const std::int64_t end = losses("runs/a").rbegin()->first + 3;
  const ProcessResult outcome = expect_exit(
      0, on_three("runs/a", {"--resume", "auto", "--set", fmt::format("train.steps={}", end)}));
  EXPECT_TRUE(contains(outcome.err, fmt::format("taking over the lock of process {}", first.pid())))
      << to_text(outcome);
  EXPECT_FALSE(fs::exists(folder_ / "runs/a/run.lock"));
  EXPECT_EQ(losses("runs/a").rbegin()->first, end);  // no step is there twice
}

TEST_F(Ranks, AFolderThatIsTakenIsFoundBeforeTheyStart) {
  expect_exit(0, {"train", "run.toml"});
  const ProcessResult outcome = expect_exit(2, on_three("runs/a"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(contains(outcome.err, "laconic: runs/a already holds step-00000006")) << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "runs/a/ranks"));
}

TEST_F(Ranks, ATerminalThatIsClosedCostsNoStep) {
  Process process(spec(on_three("runs/a", {"--set", "train.steps=1000000"})));
  ASSERT_TRUE(wait_for_step(process, "runs/a", 5)) << to_text(process.wait());
  process.send(SIGHUP);
  const ProcessResult outcome = process.wait(30);
  EXPECT_EQ(outcome.exit_code, 128 + SIGHUP) << to_text(outcome);
  ASSERT_FALSE(steps_saved("runs/a").empty());
  EXPECT_EQ(steps_saved("runs/a").back(), losses("runs/a").rbegin()->first);
}

}  // namespace
}  // namespace laconic
