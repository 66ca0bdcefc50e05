// Studies that fail, are interrupted, are killed and go on, with shells in real labs in the place
// of training (stand_in_study.cpp). They need root, and are skipped with the reason elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

// Namespaces of the lab that a process keeps.
int namespaces_of(const std::string& keeper) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/run/netns", none))
    count += contains(entry.path().filename(), "laconic-run-" + keeper + "-") ? 1 : 0;
  return count;
}

class StudyInLabs : public Workplace {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "labs need root";
    const ProcessResult outcome =
        laconic({"lab", "run", "--ephemeral", "--hosts", "1", "--", "true"});
    if (outcome.exit_code != 0) GTEST_SKIP() << "no labs here: " << outcome.err;
  }

  ProcessSpec study(const Words& more = {}) const {
    ProcessSpec process = spec({});
    process.words = {STAND_IN_STUDY, "out", program()};
    process.words.insert(process.words.end(), more.begin(), more.end());
    return process;
  }
  ProcessResult run(const Words& more = {}) const { return Process(study(more)).wait(); }

  nlohmann::json outcome_of(const std::string& trial) const {
    const std::string json = text(fmt::format("out/raw/tiny_100mbit_{}_1.json", trial));
    return json.empty() ? nlohmann::json() : nlohmann::json::parse(json);
  }
  void touch(const std::string& name) const { write_text(*this / name, "\n"); }

  // As far as the third trial, which then waits.
  void start_and_wait(std::unique_ptr<Process>& process) const {
    touch("slow");
    process = std::make_unique<Process>(study());
    ASSERT_TRUE(wait_until(*process, [&] { return contains(text("ran"), "third"); }));
  }
};

TEST_F(StudyInLabs, KeepsWhatWentWellAndWhatFailed) {
  touch("broken");
  const ProcessResult outcome = run();
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_EQ(text("ran"), "first\nsecond\nthird\n");
  EXPECT_TRUE(contains(outcome.out, "first: 0.125 7 \n")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.out, "second: 0 7 exit code 9: [0] it is broken\n"))
      << to_text(outcome);
  const nlohmann::json first = outcome_of("first"), second = outcome_of("second");
  EXPECT_EQ(first["failure"], "");
  EXPECT_EQ(first["steps"].size(), 2u);
  EXPECT_EQ(first["notes"], (nlohmann::json{"bypass: said by first"}));
  EXPECT_TRUE(second["steps"].empty());
  EXPECT_TRUE(contains(text("out/logs/tiny_100mbit_second_1.txt"), "it is broken"));
  EXPECT_FALSE(fs::exists(*this / "out/logs/tiny_100mbit_first_1.txt"));

  EXPECT_EQ(run().exit_code, 0);  // nothing is left to do
  EXPECT_EQ(text("ran"), "first\nsecond\nthird\n");

  fs::remove(*this / "broken");
  EXPECT_EQ(run({"retry"}).exit_code, 0);
  EXPECT_EQ(text("ran"), "first\nsecond\nthird\nsecond\n");
  EXPECT_EQ(outcome_of("second")["failure"], "");
}

// The study of speed at 20 Mbit/s with a tiny model: rounds are counted whole, and rules judged.
TEST_F(StudyInLabs, OfTwentyMegabitsCountsEveryKindOfStep) {
  write_text(*this / "tiny.toml", fmt::format(R"(
extends = "{}/studies/twenty-megabits.toml"
[models.tiny]
set = {{ data.train = "$work/text", model = {{ layers = 2, width = 16, heads = 2, context = 16 }}, train.batch = 4 }}
prepare = [{{ makes = "$work/text.idx", lines = ["$laconic prepare text.txt --overwrite --out $work/text"] }}]
[[part]]
name = "replicas"
model = "tiny"
axes = ["rate", "replicas"]
list = [["unshaped", "exact"], ["unshaped", "replicas-20mbit"], ["20mbit", "replicas-20mbit"]]
set.mesh.dp = 2
warmup = 1
steps = 2
)",
                                              std::getenv("LACONIC_SOURCE")));
  expect_exit(0, {"study", "tiny.toml", "--out", "tiny"});
  const auto trial_of = [&](const std::string& name) {
    return nlohmann::json::parse(text("tiny/raw/replicas_" + name + "_1.json"));
  };
  EXPECT_EQ(trial_of("unshaped_exact")["steps"].size(), 3U);
  const nlohmann::json local = trial_of("20mbit_replicas-20mbit");
  EXPECT_EQ(local["failure"], "");
  EXPECT_EQ(local["steps"].size(), 32U);
  EXPECT_EQ(local["trial"]["kinds"],
            nlohmann::json::parse(R"([{"steps": 4, "share": 1.0}, {"steps": 12, "share": 15.0}])"));
  const std::string page = text("tiny/README.md");
  EXPECT_TRUE(contains(page, "Counted: 4 steps for 1 part of a long run, 12 for 15.")) << page;
  for (const char* rule : {"keep nine tenths of their own unshaped speed",
                           "have nine tenths of the unshaped speed of exact gradients"}) {
    const std::size_t at = page.find(fmt::format("| replicas at 20 Mbit/s {} |", rule));
    ASSERT_NE(at, std::string::npos) << page;
    EXPECT_FALSE(contains(page.substr(at, page.find('\n', at) - at), "judged")) << page;
  }
}

TEST_F(StudyInLabs, GoesOnWhereItWasInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const char* name : {"out", "ran"}) fs::remove_all(*this / name);
    std::unique_ptr<Process> process;
    start_and_wait(process);
    const std::string first = outcome_of("first").dump();
    const std::string keeper = text("keeper").substr(0, text("keeper").find('\n'));
    EXPECT_EQ(namespaces_of(keeper), 2);
    process->send(signal);
    EXPECT_EQ(process->wait(30).exit_code, 128 + signal);
    EXPECT_EQ(namespaces_of(keeper), 0);
    EXPECT_TRUE(outcome_of("third").is_null());
    fs::remove(*this / "slow");
    EXPECT_EQ(run().exit_code, 0);
    EXPECT_EQ(text("ran"), "first\nsecond\nthird\nthird\n");
    EXPECT_EQ(outcome_of("first").dump(), first);
    EXPECT_EQ(outcome_of("third")["failure"], "");
  }
}

TEST_F(StudyInLabs, GoesOnAfterItWasKilledAndRunsAgainWhatIsDamaged) {
  std::unique_ptr<Process> process;
  start_and_wait(process);
  process->send(SIGKILL);
  process->wait(20);
  fs::remove(*this / "slow");
  cut_in_half(*this / "out/raw/tiny_100mbit_second_1.json");
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_EQ(text("ran"), "first\nsecond\nthird\nsecond\nthird\n");
}

TEST_F(StudyInLabs, HasItsFolderToItself) {
  std::unique_ptr<Process> process;
  start_and_wait(process);
  fs::create_directory(*this / "elsewhere");  // where its output is not the other's
  ProcessSpec second = study();
  second.words[1] = *this / "out";
  second.folder = *this / "elsewhere";
  const ProcessResult outcome = Process(second).wait();
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "another report is being made in this folder"));
  fs::remove(*this / "slow");
  EXPECT_EQ(process->wait(30).exit_code, 0);
}

using LabReportCommandLine = Workplace;

TEST_F(LabReportCommandLine, ListsItsTrialsWithoutRunningAny) {
  const ProcessResult outcome =
      expect_exit(0, {"lab", "report", "--list", "--part", "optimus-cc", "--size", "full"});
  EXPECT_TRUE(contains(outcome.out, "optimus-cc/138mbit/cb-lep-fe-sc/2")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "28 trials, about ")) << outcome.out;
  EXPECT_FALSE(contains(outcome.out, "bandwidth/"));
  EXPECT_FALSE(fs::exists(*this / "docs"));
}

TEST_F(LabReportCommandLine, PrintsWhatItWouldRunAsLinesForAShell) {
  const ProcessResult outcome =
      expect_exit(0, {"lab", "report", "--size", "full", "--commands", "--part", "bandwidth",
                      "--rate", "100mbit", "--method", "fp32", "--out", "out"});
  EXPECT_TRUE(contains(outcome.out, " prepare ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "# bandwidth/100mbit/fp32/1\n")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "--rate 100mbit")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "--set mesh.pp=4")) << outcome.out;
  EXPECT_FALSE(fs::exists(*this / "out"));
}

TEST_F(LabReportCommandLine, RefusesWithTheReason) {
  const struct {
    Words words;
    const char* reason;
  } cases[] = {{{"lab", "report", "--size", "huge"}, "--size"},
               {{"lab", "report", "--part", "optimuscc"}, "did you mean 'optimus-cc'?"},
               {{"lab", "report", "--method", "abacus"}, "no trial fits --only abacus"},
               {{"lab", "report", "--deadline", "0"}, "--deadline"},
               {{"lab", "report", "--pages-only", "--out", "nowhere"},
                "there are no outcomes of this study in nowhere"}};
  for (const auto& c : cases)
    EXPECT_TRUE(contains(expect_exit(2, c.words).err, c.reason)) << c.reason;
}

TEST_F(LabReportCommandLine, SaysThatItNeedsRoot) {
  ProcessSpec user = spec({"lab", "report", "--out", "out"});
  if (::geteuid() == 0) {
    if (!fs::exists("/usr/bin/setpriv")) GTEST_SKIP() << "no setpriv, to be somebody else";
    user.words.insert(user.words.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--clear-groups"});
  }
  const ProcessResult outcome = Process(user).wait();
  // A source tree in a folder of root's own, as on a bare machine.
  if (contains(outcome.err, "Permission denied"))
    GTEST_SKIP() << "nobody but root may read what the program needs: " << outcome.err;
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "lab needs root")) << outcome.err;
  EXPECT_FALSE(fs::exists(*this / "out"));
}

}  // namespace
}  // namespace laconic
