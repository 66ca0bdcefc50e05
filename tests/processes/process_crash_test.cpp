// Runs that are interrupted, killed, or out of disk: what they leave, and how they go on.
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/philox.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/file/checksum.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndless = "train.steps=1000000";

class Crash : public Workplace {
 protected:
  Crash() { prepare(); }

  // Into runs/a unless another is given; the schedule does not depend on train.steps.
  static Words train(const std::string& steps, const Words& more = {}) {
    Words words = {"train", "run.toml", "--set", steps};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // All that carry the final name hold what their state.json says.
  void expect_whole_checkpoints() const {
    for (const std::int64_t step : steps_saved("runs/a")) {
      const std::string folder = folder_ / checkpoint("runs/a", step);
      const nlohmann::json state = nlohmann::json::parse(read_text(folder + "/state.json"));
      EXPECT_EQ(state["step"], step);
      for (const auto& [name, file] : state["files"].items())
        EXPECT_EQ(file["xxh3"], checksum_of_file(folder + "/" + name)) << folder << name;
    }
  }

  // Finishes runs/a some steps later, and compares it with a run that was never disturbed.
  void expect_as_if_undisturbed() const {
    ASSERT_FALSE(steps_saved("runs/a").empty());
    const std::int64_t end = steps_saved("runs/a").back() + 5;
    const std::string steps = fmt::format("train.steps={}", end);
    expect_exit(0, train(steps, {"--resume", "auto"}));
    expect_exit(0, train(steps, {"--set", "run.folder=runs/undisturbed"}));
    expect_same_end("runs/a", "runs/undisturbed", end);
  }
};

TEST_F(Crash, AnInterruptedRunSavesAndGoesOnAsIfNothingHadHappened) {
  std::int64_t seen = 0;
  for (const int signal : {SIGINT, SIGTERM}) {
    Process process(spec(train(kEndless, {"--resume", "auto", "--set", "checkpoint.every=0"})));
    ASSERT_TRUE(wait_for_step(process, "runs/a", seen += 20));
    process.send(signal);
    const ProcessResult outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, 128 + signal) << to_text(outcome);
    EXPECT_NE(outcome.out.find("continue with --resume auto"), std::string::npos) << outcome.out;
    ASSERT_FALSE(steps_saved("runs/a").empty());
    EXPECT_EQ(outcome.err,
              fmt::format("laconic: {}: finishing step {}, then saving; again to end at once\n",
                          signal == SIGINT ? "SIGINT" : "SIGTERM", steps_saved("runs/a").back()));
    EXPECT_EQ(steps_saved("runs/a").back(), losses("runs/a").rbegin()->first);
    seen = steps_saved("runs/a").back();
  }
  expect_as_if_undisturbed();
}

TEST_F(Crash, WhenNobodyReadsAnyMoreARunSavesAndEnds) {
  ProcessSpec piped = spec(train(kEndless, {"--set", "checkpoint.every=0"}));
  piped.words.insert(piped.words.begin(),
                     {"/bin/bash", "-c", "\"$@\" | head -n 3; exit ${PIPESTATUS[0]}", "bash"});
  const ProcessResult outcome = Process(piped).wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE) << to_text(outcome);
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3) << outcome.out;
  EXPECT_NE(outcome.err.find("nobody reads standard output any more: finishing step "),
            std::string::npos)
      << outcome.err;
  ASSERT_FALSE(steps_saved("runs/a").empty());
  EXPECT_EQ(steps_saved("runs/a").back(), losses("runs/a").rbegin()->first);
  expect_as_if_undisturbed();
}

TEST_F(Crash, ASecondRunInTheFolderIsRefusedAndDisturbsNothing) {
  Process first(spec(train(kEndless)));
  ASSERT_TRUE(wait_for_step(first, "runs/a", 4));
  fs::create_directory(folder_ / "second");
  for (const Words& more : {Words{}, Words{"--resume", "auto"}, Words{"--overwrite"}}) {
    ProcessSpec second = spec(train("run.folder=../runs/a", more));
    second.folder = folder_ / "second";
    second.words[2] = "../run.toml";
    second.words.insert(second.words.end(),
                        {"--set", "data.train=../data", "--set", "data.valid=../data-valid"});
    const ProcessResult outcome = Process(second).wait();
    EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
    EXPECT_NE(outcome.err.find(fmt::format("../runs/a: process {} on ", first.pid())),
              std::string::npos)
        << outcome.err;
  }
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGTERM);
  EXPECT_FALSE(fs::exists(folder_ / "runs/a/run.lock"));
  expect_as_if_undisturbed();
}

TEST_F(Crash, OfTwoThatStartAtTheSameInstantOneTrains) {
  const int rounds = is_thorough() ? 3 : 1;
  for (int round = 0; round < rounds; ++round) {
    const std::string run = fmt::format("runs/{}", round);
    std::vector<std::unique_ptr<Process>> both;
    for (const char* name : {"one", "two"}) {
      ProcessSpec one = spec(train("run.folder=../" + run, {"--set", "train.steps=40"}));
      one.folder = folder_ / name;
      one.words[2] = "../run.toml";
      one.words.insert(one.words.end(),
                       {"--set", "data.train=../data", "--set", "data.valid=../data-valid"});
      fs::create_directories(one.folder);
      both.push_back(std::make_unique<Process>(one));
    }
    std::multiset<int> codes;
    for (const auto& process : both) codes.insert(process->wait().exit_code);
    EXPECT_EQ(codes, (std::multiset<int>{0, 2})) << round;
    EXPECT_EQ(losses(run).size(), 40u);  // and no step is there twice
  }
}

TEST_F(Crash, ALockThatAKilledRunLeftIsTakenOverWithALine) {
  {
    Process first(spec(train(kEndless)));
    ASSERT_TRUE(wait_for_step(first, "runs/a", 4));
    first.send(SIGKILL);
    first.wait();
    ASSERT_TRUE(fs::exists(folder_ / "runs/a/run.lock"));
    const ProcessResult outcome =
        expect_exit(0, train(fmt::format("train.steps={}", steps_saved("runs/a").back() + 1),
                             {"--resume", "auto"}));
    EXPECT_NE(outcome.err.find(fmt::format("taking over the lock of process {} on ", first.pid())),
              std::string::npos)
        << outcome.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "runs/a/run.lock"));
}

TEST_F(Crash, ASecondSignalOfEitherKindEndsAtOnce) {
  Process process(spec(train(kEndless, {"--set", "train.batch=1000000", "--set",
                                        "train.microbatch=1"})));  // a step of many minutes
  ASSERT_TRUE(wait_until(process, [&] { return fs::exists(folder_ / "runs/a/log.jsonl"); }));
  process.send(SIGINT);
  ::usleep(200'000);
  ASSERT_FALSE(process.has_ended());
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(10).signal, SIGTERM);
  EXPECT_TRUE(steps_saved("runs/a").empty());
}

TEST_F(Crash, ARunKilledAgainAndAgainEndsAsOneLeftAlone) {
  std::int64_t seen = 0;
  const std::uint64_t lives = is_thorough() ? 6 : 4;
  for (std::uint64_t life = 0; life < lives; ++life) {
    Process process(spec(train(kEndless, {"--resume", "auto", "--set", "checkpoint.every=1",
                                          "--set", "checkpoint.keep=2"})));
    if (life == 3) {
      ::usleep(150'000);  // most likely before it has read anything
    } else {
      ASSERT_TRUE(wait_until(process, [&] {
        const std::vector<std::int64_t> saved = steps_saved("runs/a");
        return !saved.empty() && saved.back() > seen;
      }));
      // Anywhere in the next steps and saves.
      ::usleep(static_cast<useconds_t>(30'000 * uniform_at(key_of(::getpid()), life)));
    }
    process.send(SIGKILL);
    EXPECT_EQ(process.wait().signal, SIGKILL);
    expect_whole_checkpoints();
    if (!steps_saved("runs/a").empty()) seen = steps_saved("runs/a").back();
  }
  expect_as_if_undisturbed();
}

TEST_F(Crash, ADiskThatFillsUpWhileSavingLeavesTheCheckpointBefore) {
  expect_exit(0, train("train.steps=2"));
  const auto before = snapshot(folder_ / checkpoint("runs/a", 2));
  ProcessSpec limited = spec(train("train.steps=4", {"--resume", "auto"}));
  limited.largest_file_bytes = 28'000;  // config.toml has less, model.safetensors more
  const ProcessResult outcome = Process(limited).wait();
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_NE(outcome.err.find("model.safetensors.tmp: cannot write: File too large"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(snapshot(folder_ / checkpoint("runs/a", 2)), before);
  EXPECT_EQ(steps_saved("runs/a"), std::vector<std::int64_t>{2});
  EXPECT_FALSE(fs::exists(folder_ / (checkpoint("runs/a", 4) + ".writing")));
  expect_as_if_undisturbed();
}

TEST_F(Crash, PrepareOnAFullDiskLeavesNothingBehind) {
  const auto before = snapshot(folder_.path());
  ProcessSpec limited = spec({"prepare", "text.txt", "--out", "more"});
  limited.largest_file_bytes = 4'000;
  const ProcessResult outcome = Process(limited).wait();
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_NE(outcome.err.find("more.bin"), std::string::npos) << outcome.err;
  auto after = snapshot(folder_.path());
  for (const char* output : {"process.out", "process.err"}) after[output] = before.at(output);
  EXPECT_EQ(after, before);
}

TEST_F(Crash, AFileSystemWithoutSpaceIsNamed) {
  fs::create_directory(folder_ / "small");
  const std::string path = folder_ / "small";
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=200k") != 0)
    GTEST_SKIP() << "may not mount here";
  const Words into = {"--set", "run.folder=small/run", "--set", "report.tensorboard=false"};
  const ProcessResult outcome = expect_exit(1, train("train.steps=8", into));
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
  const std::vector<std::int64_t> saved = steps_saved("small/run");
  EXPECT_FALSE(saved.empty());
  if (!saved.empty())
    expect_exit(0, {"evaluate", checkpoint("small/run", saved.back()), "--data", "data-valid"});
  EXPECT_EQ(::umount2(path.c_str(), MNT_DETACH), 0);
}

TEST_F(Crash, AFolderThatCannotBeWrittenIsNamedAndLeftAlone) {
  fs::create_directory(folder_ / "locked");
  fs::permissions(folder_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  const std::string before = text("text.txt");
  for (const std::string name : {"locked/run", "text.txt", "text.txt/run", "/proc/run"}) {
    const ProcessResult outcome =
        expect_exit(1, train("train.steps=2", {"--set", "run.folder=" + name}));
    EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "locked"));
  EXPECT_EQ(text("text.txt"), before);
}

}  // namespace
}  // namespace laconic
