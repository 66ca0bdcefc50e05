// Labs as a user makes them, with real namespaces: they need root and a system that permits it, and
// are skipped with the reason elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

class LabOfAUser : public Workplace {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "labs need root";
    const ProcessResult outcome = laconic({"lab", "up", "--name", name_, "--hosts", "3"});
    if (outcome.exit_code != 0) GTEST_SKIP() << "no labs here: " << outcome.err;
    is_up_ = true;
  }
  ~LabOfAUser() override {
    if (is_up_) laconic({"lab", "down", "--name", name_});
  }

  // Namespaces of ours whose names contain `part`.
  static int namespaces(const std::string& part) {
    int count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator("/run/netns", none))
      count += contains(entry.path().filename(), "laconic-" + part) ? 1 : 0;
    return count;
  }

  Words run_of_its_own(const Words& command) const {
    Words words = {"lab", "run", "--ephemeral", "--hosts", "2", "--rate", "20mbit", "--"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  // Starts a run with a lab of its own that would last a minute; the lab's name.
  std::string start_long_run(std::unique_ptr<Process>& process) const {
    process = std::make_unique<Process>(
        spec(run_of_its_own({"sh", "-c", "echo $PPID > began.$RANK; exec sleep 60"})));
    EXPECT_TRUE(
        wait_until(*process, [&] { return text("began.0") != "" && text("began.1") != ""; }));
    return "run-" + text("began.0").substr(0, text("began.0").find('\n'));
  }

  const std::string name_ = fmt::format("test-{}", ::getpid());
  bool is_up_ = false;
};

TEST_F(LabOfAUser, RunsACommandOnEveryHostAndTellsRanksApart) {
  const ProcessResult outcome = expect_exit(
      0, {"lab", "run", "--name", name_, "--ranks-per-host", "2", "--", "sh", "-c",
          "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $(ip -br -4 address "
          "show dev eth0 | tr -s ' ' | cut -d' ' -f3)"});
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_TRUE(contains(outcome.out, fmt::format("{}{} 6 {} 2 10.77.0.1 10.77.0.{}/24\n",
                                                  rank == 0 ? "" : fmt::format("[{}] ", rank), rank,
                                                  rank % 2, rank / 2 + 1)))
        << outcome.out;
}

// Hosts of a lab have the name of the machine, and a card each.
TEST_F(LabOfAUser, RanksOfAHostShareItsCard) {
  prepare();
  for (const auto& [ranks, told] : {std::pair{"1", "1 to a card"}, {"2", "2 to a card"}}) {
    const ProcessResult outcome = expect_exit(0, {"lab",
                                                  "run",
                                                  "--name",
                                                  name_,
                                                  "--ranks-per-host",
                                                  ranks,
                                                  "--",
                                                  program(),
                                                  "train",
                                                  "run.toml",
                                                  "--overwrite",
                                                  "--set",
                                                  fmt::format("mesh.dp={}", 3 * std::atoi(ranks)),
                                                  "--set",
                                                  "train.batch=12",
                                                  "--set",
                                                  "train.steps=1",
                                                  "--set",
                                                  "model.kind=llama",
                                                  "--set",
                                                  "embedding.rows.method=auto",
                                                  "--set",
                                                  "embedding.rows.optimiser=lazy_adam",
                                                  "--set",
                                                  "embedding.rows.clip=dense"});
    EXPECT_TRUE(contains(outcome.out, told)) << to_text(outcome);
  }
}

TEST_F(LabOfAUser, EndsWithTheExitCodeOfTheFirstFailure) {
  const ProcessResult outcome =
      expect_exit(7, {"lab", "run", "--name", name_, "--grace", "0", "--", "sh", "-c",
                      "[ $RANK = 1 ] && exit 7; exec sleep 60"});
  EXPECT_TRUE(contains(outcome.err, "rank 1")) << outcome.err;
}

TEST_F(LabOfAUser, CountsBytesAndChangesItsRate) {
  expect_exit(0, {"lab", "rate", "5mbit", "--name", name_});
  // 50 datagrams of 1000 bytes to a port nobody listens on.
  expect_exit(0, {"lab", "run", "--name", name_, "--", "bash", "-c",
                  "[ $RANK = 1 ] || exit 0; for i in $(seq 50); do head -c 1000 /dev/zero > "
                  "/dev/udp/10.77.0.1/9; done 2>/dev/null; exit 0"});
  nlohmann::json hosts;
  const Stopwatch watch;
  do {  // the last of them are still on the wire, which takes 80 ms for all
    expect_exit(0, {"lab", "status", "--name", name_, "--json", "status.json"});
    hosts = nlohmann::json::parse(text("status.json"))["labs"][0]["hosts"];
    ASSERT_EQ(hosts.size(), 3u);
  } while (hosts[0]["received_bytes"] < 50 * 1000 && watch.seconds() < 10);
  for (const auto& host : hosts) EXPECT_EQ(host["bits_per_second"], 5'000'000);
  EXPECT_GE(hosts[1]["sent_bytes"], 50 * 1000);
  EXPECT_GE(hosts[0]["received_bytes"], 50 * 1000);
  EXPECT_LT(hosts[2]["received_bytes"], 50 * 1000);
}

TEST_F(LabOfAUser, CountsBytesOfOneRun) {
  const Words command = {
      "lab",    "run",
      "--name", name_,
      "--json", "run.json",
      "--",     "bash",
      "-c",     "[ $RANK = 1 ] || exit 0; head -c 1000 /dev/zero > /dev/udp/10.77.0.1/9"};
  std::uint64_t most = 0;
  for (int round = 0; round < 2; ++round) {  // the second does not count what the first sent
    expect_exit(0, command);
    const nlohmann::json host = nlohmann::json::parse(text("run.json"))["labs"][0]["hosts"][1];
    EXPECT_GE(host["sent_bytes"], 1000);
    most = std::max(most, host["sent_bytes"].get<std::uint64_t>());
    fs::remove(*this / "run.json");
  }
  EXPECT_LT(most, 2000u);
}

TEST_F(LabOfAUser, HasNoWayOutAndLeavesNoTraceInTheMachinesNetwork) {
  const ProcessResult outcome = expect_exit(
      0, {"lab", "run", "--name", name_, "--", "sh", "-c", "ip route show default | wc -l"});
  for (const char* line : {"0\n", "[1] 0\n", "[2] 0\n"})
    EXPECT_TRUE(contains("\n" + outcome.out, std::string("\n") + line)) << outcome.out;
  for (const auto& entry : fs::directory_iterator("/sys/class/net"))
    EXPECT_FALSE(contains(entry.path().filename(), "host") ||
                 contains(entry.path().filename(), "br0"))
        << entry.path();
}

TEST_F(LabOfAUser, IsRefusedTwiceAndUsedOnlyAsItIs) {
  EXPECT_TRUE(contains(expect_exit(2, {"lab", "up", "--name", name_}).err, "is up with 3 hosts"));
  const ProcessResult outcome = expect_exit(
      2, {"lab", "run", "--name", name_, "--hosts", "2", "--rate", "20mbit", "--", "true"});
  EXPECT_TRUE(contains(outcome.err, "2 was asked for")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "has 100mbit")) << outcome.err;
}

TEST_F(LabOfAUser, TakenDownIsGoneWithWhatRanInside) {
  Process process(
      spec({"lab", "run", "--name", name_, "--", "sh", "-c", "touch began.$RANK; exec sleep 60"}));
  const auto has_begun = [&] {
    return fs::exists(*this / "began.0") && fs::exists(*this / "began.1") &&
           fs::exists(*this / "began.2");
  };
  ASSERT_TRUE(wait_until(process, has_begun));
  fs::create_directory(*this / "elsewhere");  // where its output is not the run's
  const ProcessResult down =
      Process({.words = {program(), "lab", "down", "--name", name_}, .folder = *this / "elsewhere"})
          .wait();
  EXPECT_EQ(down.exit_code, 0) << to_text(down);
  EXPECT_EQ(namespaces(name_), 0);
  EXPECT_NE(process.wait(20).exit_code, 0);
}

TEST_F(LabOfAUser, OfOneRunEndsWithItWhateverSignalInterrupts) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::unique_ptr<Process> process;
    const std::string lab = start_long_run(process);
    EXPECT_EQ(namespaces(lab), 3) << lab;
    process->send(signal);
    const ProcessResult outcome = process->wait(20);
    EXPECT_EQ(outcome.exit_code, 128 + signal) << to_text(outcome);
    EXPECT_EQ(namespaces(lab), 0) << signal;
    for (const char* name : {"began.0", "began.1"}) fs::remove(*this / name);
  }
}

TEST_F(LabOfAUser, OfOneRunEndsWithItWhenNobodyReadsAnyMore) {
  const char* endless = "echo $PPID > began.$RANK; while echo still here; do sleep 0.02; done";
  ProcessSpec piped = spec(run_of_its_own({"sh", "-c", endless}));
  piped.words.insert(piped.words.begin(), {"/bin/sh", "-c", "\"$@\" | head -n 1", "sh"});
  const ProcessResult outcome = Process(piped).wait(30);
  EXPECT_TRUE(contains(outcome.out, "still here\n")) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "nobody reads standard output any more")) << to_text(outcome);
  const std::string keeper = text("began.0");
  EXPECT_EQ(namespaces("run-" + keeper.substr(0, keeper.find('\n'))), 0);
}

TEST_F(LabOfAUser, OfAKilledRunIsRemovedByTheNextCommand) {
  std::unique_ptr<Process> process;
  const std::string lab = start_long_run(process);
  process->send(SIGKILL);
  process->wait(20);
  EXPECT_EQ(namespaces(lab), 3);
  const ProcessResult outcome = expect_exit(0, {"lab", "rate", "10mbit", "--name", name_});
  EXPECT_TRUE(contains(outcome.err, "removed the lab '" + lab + "'")) << outcome.err;
  EXPECT_EQ(namespaces(lab), 0);
}

using LabCommandLine = Workplace;

TEST_F(LabCommandLine, RefusesWithEveryReason) {
  const struct {
    Words words;
    const char* reason;
  } cases[] = {{{"lab"}, "Usage: laconic lab"},
               {{"lab", "pu"}, "no verb 'pu'; did you mean 'up'?"},
               {{"lab", "run"}, "COMMAND"},
               {{"lab", "rate"}, "RATE"},
               {{"lab", "rate", "fast"}, "'fast' is no rate"},
               {{"lab", "up", "--hosts", "0", "--rate", "1"}, "0 is not between 1 and 64"},
               {{"lab", "up", "--hosts", "0", "--rate", "1"}, "'1' is no rate"},
               {{"lab", "up", "--name", "run-1"}, "run's own lab"},
               {{"lab", "run", "--ranks-per-host", "0", "--", "true"}, "--ranks-per-host"},
               {{"lab", "run", "--name", "nobody-made-it", "--", "true"},
                ::geteuid() == 0 ? "no lab 'nobody-made-it' is up" : "needs root"},
               {{"lab", "status", "--name", "nobody-made-it"},
                ::geteuid() == 0 ? "no lab 'nobody-made-it' is up" : "needs root"}};
  for (const auto& c : cases)
    EXPECT_TRUE(contains(expect_exit(2, c.words).err, c.reason)) << c.reason;
}

TEST_F(LabCommandLine, SaysThatItNeedsRoot) {
  ProcessSpec user = spec({"lab", "up"});
  if (::geteuid() == 0) {
    if (!fs::exists("/usr/bin/setpriv")) GTEST_SKIP() << "no setpriv, to be somebody else";
    user.words.insert(user.words.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--clear-groups"});
  }
  const ProcessResult outcome = Process(user).wait();
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_TRUE(
      contains(outcome.err, "lab needs root: it makes network namespaces; run it with sudo"))
      << outcome.err;
}

}  // namespace
}  // namespace laconic
