// Launching, with a stand-in for the worker: what ranks print, how they end, who is blamed, and who
// is started again.
#include <fmt/format.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "laconic/base/clock.hpp"
#include "laconic/base/text.hpp"
#include "laconic/machine/cpu.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;
using Scripts = std::map<std::string, std::string>;

// Zombies are as good as gone: whoever inherited them may take his time.
bool is_alive(int pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

bool comes_true(const std::function<bool()>& holds, double seconds = 20) {
  const Stopwatch watch;
  while (!holds() && watch.seconds() < seconds) ::usleep(2000);
  return holds();
}

std::set<std::string> lines_of(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  return {lines.begin(), lines.end()};
}

class Launch : public Workplace {
 protected:
  // `options` are the launcher's, then "--" and the words of the workers.
  ProcessSpec launcher(const std::string& options, const Scripts& scripts) const {
    Words words = {STAND_IN, "launch"};
    std::istringstream parts(options);
    for (std::string part; parts >> part;) words.push_back(part);
    return {.words = words, .folder = folder_.path(), .environment = scripts};
  }

  int pid_of(int rank) const {
    const std::string path = folder_ / fmt::format("pid-{}", rank);
    EXPECT_TRUE(comes_true([&] { return fs::exists(path); })) << path;
    return std::atoi(read_text(path).c_str());
  }
  std::vector<int> pids(int ranks) const {
    std::vector<int> pids;
    for (int rank = 0; rank < ranks; ++rank) pids.push_back(pid_of(rank));
    return pids;
  }
};

// Each rank loads its program itself, or all are forked from one that has.
class LaunchBothWays : public Launch, public testing::WithParamInterface<bool> {
 protected:
  ProcessSpec launcher(const std::string& options, const Scripts& scripts) const {
    const std::size_t ranks_end = options.find(' ');
    return Launch::launcher(options.substr(0, ranks_end) + (GetParam() ? " forks=yes" : "") +
                                (ranks_end == std::string::npos ? "" : options.substr(ranks_end)),
                            scripts);
  }
  ProcessResult launch(const std::string& options, const Scripts& scripts) const {
    return Process(launcher(options, scripts)).wait(30);
  }
};

INSTANTIATE_TEST_SUITE_P(Loaded, LaunchBothWays, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Forked, LaunchBothWays, testing::Values(true));

void expect_gone(const std::vector<int>& pids) {
  for (const int pid : pids)
    EXPECT_TRUE(comes_true([&] { return !is_alive(pid); }, 5)) << pid << " is still there";
}

TEST_P(LaunchBothWays, LinesOfOtherRanksNameThem) {
  const ProcessResult outcome = launch("3", {{"STAND_IN", "say hello; complain dear me"}});
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_EQ(lines_of(outcome.out), (std::set<std::string>{"hello", "[1] hello", "[2] hello", ""}));
  EXPECT_EQ(lines_of(outcome.err),
            (std::set<std::string>{"[0] dear me", "[1] dear me", "[2] dear me", ""}));
}

TEST_P(LaunchBothWays, LinesStayWholeHoweverTheyAreWritten) {
  std::string pieces;
  for (int i = 0; i < 50; ++i) pieces += fmt::format("piece {}a; sleep 0.001; say b;", i);
  pieces += "piece the end";
  const ProcessResult outcome = launch("4", {{"STAND_IN", pieces}});
  std::map<std::string, int> next;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string rank = line.starts_with("[") ? line.substr(0, 4) : "";
    const int i = next[rank]++;
    EXPECT_EQ(line, rank + (i == 50 ? "the end" : fmt::format("{}ab", i)));
  }
  EXPECT_EQ(next, (std::map<std::string, int>{{"", 51}, {"[1] ", 51}, {"[2] ", 51}, {"[3] ", 51}}));
}

TEST_P(LaunchBothWays, EveryRankHasALogOfAllItPrinted) {
  for (int run = 1; run <= 2; ++run) {
    launch("2 logs=runs/a", {{"STAND_IN", "say out; complain err; piece end"}});
    for (const char* name : {"runs/a/ranks/rank-0.log", "runs/a/ranks/rank-1.log"}) {
      const std::string log = text(name);
      EXPECT_TRUE(log.starts_with("--- attempt 0 of run ")) << log;
      EXPECT_EQ(std::ranges::count(log, '\n'), 4 * run) << log;  // a title for each run
      for (const char* part : {"\nout\n", "\nerr\n", "\nend\n"})
        EXPECT_NE(log.find(part), std::string::npos) << log;
    }
  }
}

TEST_P(LaunchBothWays, WhatAllComplainOfIsToldOnceAndLoggedByEach) {
  const ProcessResult outcome = launch("3 logs=runs/a", {{"STAND_IN", "complain no; complain no"}});
  const std::set<std::string> lines = lines_of(outcome.err);
  EXPECT_EQ(lines.size(), 2U) << outcome.err;  // of one rank, whichever was first, and the end
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 2) << outcome.err;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_NE(text(fmt::format("runs/a/ranks/rank-{}.log", rank)).find("no\nno\n"),
              std::string::npos);
}

TEST_P(LaunchBothWays, RanksFindTheirPlaceInTheEnvironment) {
  const ProcessResult outcome = launch(
      "2 port=23456 -- train a.toml",
      {{"STAND_IN",
        "words; env RANK; env LOCAL_RANK; env WORLD_SIZE; env LOCAL_WORLD_SIZE; env MASTER_ADDR; "
        "env MASTER_PORT; env LACONIC_ATTEMPT; env LACONIC_RUN_ID"}});
  const std::set<std::string> lines = lines_of(outcome.out);
  std::set<std::string> ids;
  for (const std::string& rank : Words{"0", "1"}) {
    const std::string prefix = rank == "0" ? "" : "[1] ";
    for (const std::string& line :
         Words{"words: train a.toml", "RANK=" + rank, "LOCAL_RANK=" + rank, "WORLD_SIZE=2",
               "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=23456",
               "LACONIC_ATTEMPT=0"})
      EXPECT_TRUE(lines.contains(prefix + line)) << prefix << line << "\n" << outcome.out;
  }
  for (const std::string& line : lines)
    if (const std::size_t at = line.find("LACONIC_RUN_ID="); at != std::string::npos)
      ids.insert(line.substr(at));
  ASSERT_EQ(ids.size(), 1U) << outcome.out;
  EXPECT_EQ(ids.begin()->size(), 15U + 16U);
}

TEST_P(LaunchBothWays, TheExitCodeIsThatOfTheFirstFailure) {
  const std::pair<const char*, int> ends[] = {{"exit 0", 0},   {"exit 1", 1},   {"exit 2", 2},
                                              {"exit 77", 77}, {"kill 9", 137}, {"kill 11", 139}};
  for (const auto& [end, code] : ends) {
    const ProcessResult outcome = launch("3", {{"STAND_IN_1", end}, {"STAND_IN", "exit 0"}});
    EXPECT_EQ(outcome.exit_code, code) << to_text(outcome);
    EXPECT_EQ(outcome.err.empty(), code == 0) << outcome.err;
  }
}

TEST_P(LaunchBothWays, WhoLostAnotherIsNotTheCause) {
  // Even when the cause shows last.
  const ProcessResult outcome =
      launch("3", {{"STAND_IN", "exit 3"}, {"STAND_IN_2", "sleep 0.3; kill 9"}});
  EXPECT_EQ(outcome.exit_code, 137) << to_text(outcome);
  EXPECT_NE(outcome.err.find("rank 2   was killed by signal 9 (Killed) after"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("ended with exit code 3 (lost another rank)"), std::string::npos);
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(line.ends_with("<- first"), line.starts_with("  rank 2 ")) << line;
}

TEST_P(LaunchBothWays, NobodyToBlameButLostRanksIsExitCodeThree) {
  const ProcessResult outcome = launch("2", {{"STAND_IN", "exit 3"}});
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
}

TEST_P(LaunchBothWays, WhoOutstaysTheGraceIsEndedThenKilled) {
  const Stopwatch watch;
  const ProcessResult outcome = launch(
      "3 grace=0.4 terminate=0.4",
      {{"STAND_IN_0", "exit 1"}, {"STAND_IN_1", "sleep 60"}, {"STAND_IN_2", "deaf; sleep 60"}});
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_GT(watch.seconds(), 0.8);
  EXPECT_LT(watch.seconds(), 10);
  const std::size_t parts[] = {
      outcome.err.find("laconic: rank 0 ended with exit code 1 (failed)\n"),
      outcome.err.find("laconic: ending ranks 1, 2\n"),
      outcome.err.find("laconic: killing rank 2\n"),
      outcome.err.find("rank 1   was killed by signal 15 (Terminated) after"),
      outcome.err.find("rank 2   was killed by signal 9 (Killed) after")};
  EXPECT_TRUE(std::ranges::is_sorted(parts)) << outcome.err;
  EXPECT_NE(parts[4], std::string::npos) << outcome.err;
}

TEST_P(LaunchBothWays, WhoEndsWithinTheGraceIsLeftAlone) {
  const ProcessResult outcome = launch(
      "2 grace=20", {{"STAND_IN_0", "kill 6"}, {"STAND_IN_1", "sleep 0.5; say bye; exit 3"}});
  EXPECT_EQ(outcome.exit_code, 134) << to_text(outcome);
  EXPECT_EQ(outcome.out, "[1] bye\n");
  EXPECT_EQ(outcome.err.find("made to stop"), std::string::npos) << outcome.err;
}

TEST_P(LaunchBothWays, AProgramThatIsNotThereIsNamedAndNotTriedAgain) {
  const ProcessResult outcome = launch("2 restarts=3 program=/no/such", {});
  EXPECT_EQ(outcome.exit_code, GetParam() ? 1 : 127) << to_text(outcome);
  EXPECT_NE(outcome.err.find("laconic: /no/such: cannot run: No such file or directory"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("restart"), std::string::npos) << outcome.err;
}

TEST_P(LaunchBothWays, AFailedRunIsStartedAgainOnAnotherPort) {
  for (const char* end : {"kill 9", "kill 11", "exit 1", "exit 3"}) {
    const ProcessResult outcome =
        launch("2 restarts=2 -- train a.toml --overwrite",
               {{"STAND_IN_0", "words; env MASTER_PORT; env LACONIC_RUN_ID; env LACONIC_ATTEMPT"},
                {"STAND_IN_1", end},
                {"STAND_IN_1_2", "exit 0"}});
    EXPECT_EQ(outcome.exit_code, 0) << end << to_text(outcome);
    // The words, the run and three attempts; three ports, unless chance repeats one.
    const std::set<std::string> lines = lines_of(outcome.out);
    EXPECT_TRUE(lines.contains("words: train a.toml --overwrite"));  // nothing was saved
    EXPECT_TRUE(lines.contains("LACONIC_ATTEMPT=2"));
    EXPECT_GE(lines.size(), 1U + 1U + 3U + 2U + 1U) << outcome.out;
    EXPECT_NE(outcome.err.find("restart 2 of 2"), std::string::npos) << outcome.err;
  }
}

TEST_P(LaunchBothWays, ARunThatHasSavedGoesOnFromThere) {
  fs::create_directories(folder_ / "saved/step-00000009");  // of an older run
  const ProcessResult outcome = launch("2 restarts=3 checkpoints=saved -- train a.toml --overwrite",
                                       {{"STAND_IN_0", "words"},
                                        {"STAND_IN_1_0", "kill 9"},
                                        {"STAND_IN_1_1", "save saved/step-00000002; kill 9"},
                                        {"STAND_IN_1_2", "exit 0"}});
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_EQ(outcome.out,
            "words: train a.toml --overwrite\n"
            "words: train a.toml --overwrite\n"
            "words: train a.toml --resume auto\n");
}

TEST_P(LaunchBothWays, APortInUseIsRefusedBeforeAnyRankIsStarted) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const ProcessResult outcome = launch("2 port=" + port, {{"STAND_IN", "say hello"}});
  ::close(socket);
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(port + " on this machine is in use"), std::string::npos);
}

TEST_P(LaunchBothWays, RestartsAreCountedAndTheLastFailureCounts) {
  const ProcessResult outcome =
      launch("2 restarts=2",
             {{"STAND_IN_0", "say here"}, {"STAND_IN_1", "exit 1"}, {"STAND_IN_1_2", "kill 9"}});
  EXPECT_EQ(outcome.exit_code, 137) << to_text(outcome);
  EXPECT_EQ(outcome.out, "here\nhere\nhere\n");
}

TEST_P(LaunchBothWays, ARefusalIsNotTriedAgain) {
  for (const char* end : {"exit 2", "exit 143", "kill 15"}) {
    const ProcessResult outcome =
        launch("2 restarts=5", {{"STAND_IN_0", "say here"}, {"STAND_IN_1", end}});
    EXPECT_EQ(outcome.out, "here\n") << to_text(outcome);
  }
}

TEST_P(LaunchBothWays, ASignalReachesEveryRankOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process process(launcher("3 restarts=3", {{"STAND_IN", "pid .; obey"}}));
    pids(3);
    ASSERT_TRUE(comes_true([&] { return lines_of(text("process.out")).size() == 4; }));
    process.send(signal);
    process.send(signal);  // as `timeout` does
    const ProcessResult outcome = process.wait(20);
    EXPECT_EQ(outcome.exit_code, 128 + signal) << to_text(outcome);
    EXPECT_EQ(lines_of(outcome.out),
              (std::set<std::string>{"", "ready", "[1] ready", "[2] ready", "signals: 1",
                                     "[1] signals: 1", "[2] signals: 1"}));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_P(LaunchBothWays, TheSecondSignalKills) {
  Process process(launcher("2 restarts=3", {{"STAND_IN", "deaf; pid .; sleep 60"}}));
  const std::vector<int> ranks = pids(2);
  process.send(SIGINT);
  ::usleep(400'000);
  EXPECT_FALSE(process.has_ended());
  process.send(SIGTERM);
  const ProcessResult outcome = process.wait(5);
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT) << to_text(outcome);
  expect_gone(ranks);
}

TEST_P(LaunchBothWays, ARankThatPrintsWithoutEndKeepsNobodyFromInterrupting) {
  ProcessSpec spec = launcher("2", {{"STAND_IN_0", "chatter and so on"}, {"STAND_IN", "sleep 60"}});
  spec.largest_file_bytes = 1'000'000'000;
  Process process(spec);
  ASSERT_TRUE(comes_true([&] { return text("process.out").size() > 200'000; }));
  process.send(SIGINT);
  EXPECT_EQ(process.wait(10).exit_code, 128 + SIGINT);
}

TEST_P(LaunchBothWays, RanksGoWithALauncherThatIsKilled) {
  Process process(launcher("3", {{"STAND_IN", "deaf; pid .; sleep 60"}}));
  const std::vector<int> ranks = pids(3);
  for (const int pid : ranks) EXPECT_TRUE(is_alive(pid));
  process.send(SIGKILL);
  EXPECT_EQ(process.wait(5).signal, SIGKILL);
  expect_gone(ranks);
}

// The front itself, with the stand-in where it looks for the worker.
class FrontLaunch : public Launch {
 protected:
  FrontLaunch() {
    fs::create_directory(folder_ / "bin");
    fs::copy_file(program(), folder_ / "bin/laconic");
    fs::copy_file(STAND_IN, folder_ / "bin/laconic-worker");
    for (const char* name : {"data.idx", "data-valid.idx"}) write_text(folder_ / name, "");
  }

  ProcessSpec front(const std::string& more, const Scripts& environment) const {
    Words words = {folder_ / "bin/laconic", "train", "run.toml"};
    std::istringstream parts(more);
    for (std::string part; parts >> part;) words.push_back(part);
    return {.words = words, .folder = folder_.path(), .environment = environment};
  }
  ProcessResult train(const std::string& more, const Scripts& environment) const {
    return Process(front(more, environment)).wait(30);
  }
};

TEST_F(FrontLaunch, StartsAsManyWorkersAsTheMeshHas) {
  const int threads = std::max(1, usable_threads(detect_cpu()) / 2);
  for (const char* more : {"--set mesh.dp=2", "--set mesh.dp=2 --ranks 2"}) {
    const ProcessResult outcome =
        train(std::string(more) + " --set run.threads=0",
              {{"STAND_IN", "env RANK; env WORLD_SIZE; env OMP_NUM_THREADS"}});
    EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
    const std::string count = fmt::format("OMP_NUM_THREADS={}", threads);
    EXPECT_EQ(lines_of(outcome.out),
              (std::set<std::string>{"", "RANK=0", "WORLD_SIZE=2", count, "[1] RANK=1",
                                     "[1] WORLD_SIZE=2", "[1] " + count}));
    EXPECT_TRUE(fs::exists(folder_ / "runs/a/ranks/rank-1.log"));
  }
}

// /proc/PID/environ is what a process was loaded with: a rank that was forked has its number since.
TEST_F(FrontLaunch, RanksAreForkedFromOneWorkerThatHasLoaded) {
  Process process(front("--set mesh.dp=2", {{"STAND_IN", "pid .; sleep 60"}}));
  for (const int pid : pids(2)) {
    const std::string environment = read_text(fmt::format("/proc/{}/environ", pid));
    EXPECT_NE(environment.find("WORLD_SIZE=2"), std::string::npos);
    EXPECT_EQ(environment.find("LOCAL_RANK="), std::string::npos);
  }
  process.send(SIGKILL);
  process.wait(5);
}

TEST_F(FrontLaunch, DataThatIsNotThereIsMissedBeforeAnyRankIsStarted) {
  const ProcessResult outcome =
      train("--set mesh.dp=2 --set data.train=none --set data.valid=neither", {{"STAND_IN", ""}});
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  for (const char* part : {"none.idx does not exist", "neither.idx does not exist"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(FrontLaunch, OneRankOrRanksThatAreThreadsAreOneWorker) {
  for (const char* more : {"", "--set mesh.dp=4 --set network.transport=\"in_process\""}) {
    const ProcessResult outcome = train(more, {{"STAND_IN", "env WORLD_SIZE; exit 1"}});
    EXPECT_EQ(outcome.out, "WORLD_SIZE=\n") << to_text(outcome);
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.exit_code, 1);
  }
}

TEST_F(FrontLaunch, UnderALauncherItIsOneWorker) {
  const Scripts torch = {{"RANK", "0"},           {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "0"},     {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "here"}, {"STAND_IN", "words; env LACONIC_RUN_ID"}};
  const ProcessResult outcome = train("--set mesh.dp=2", torch);
  EXPECT_EQ(outcome.out, "words: train run.toml --set mesh.dp=2\nLACONIC_RUN_ID=\n")
      << to_text(outcome);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(FrontLaunch, ContradictionsAreRefused) {
  const std::tuple<std::string, Scripts, std::string> cases[] = {
      {"--set mesh.dp=4 --ranks 3", {}, "mesh: dp 4 needs 4 ranks, --ranks says 3"},
      {"--ranks 3", {}, "mesh: one rank is all it has, --ranks says 3: add --set mesh.dp=3"},
      {"--set mesh.dp=3", {}, "train.batch = 4"},
      {"--ranks 0", {}, "--ranks"},
      {"--set mesh.dp=2", {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2 but WORLD_SIZE=2"}};
  for (const auto& [more, environment, expected] : cases) {
    Scripts all = environment;
    all["STAND_IN"] = "say started";
    const ProcessResult outcome = train(more, all);
    EXPECT_EQ(outcome.exit_code, 2) << more << to_text(outcome);
    EXPECT_EQ(outcome.out, "") << more;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << more << to_text(outcome);
  }
}

// Its mesh may be the wrong one, or that of all the others: the workers compare.
TEST_F(FrontLaunch, AMeshForOtherRanksThanThereAreIsLeftToTheWorkers) {
  const ProcessResult outcome = train(
      "--set mesh.dp=4",
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"STAND_IN", "say started"}});
  EXPECT_EQ(outcome.out, "started\n") << to_text(outcome);
}

// A terminal with the front in its foreground.
class Terminal {
 public:
  explicit Terminal(const ProcessSpec& spec) {
    pid_ = ::forkpty(&master_, nullptr, nullptr, nullptr);
    if (pid_ == 0) run(spec);
  }
  ~Terminal() {
    if (!is_open()) return;  // and least of all kill(-1), which is everybody
    ::close(master_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool is_open() const { return pid_ > 0; }  // not where /dev/pts is missing
  void type(const std::string& keys) const {
    ASSERT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Everything up to and including `end`, or all that came.
  const std::string& read_until(const std::string& end) {
    char buffer[1024];
    while (seen_.find(end) == std::string::npos) {
      const ssize_t count = ::read(master_, buffer, sizeof buffer);
      if (count <= 0) break;
      seen_.append(buffer, static_cast<std::size_t>(count));
    }
    return seen_;
  }
  int exit_code() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] static void run(const ProcessSpec& spec) {
    for (const auto& [name, value] : spec.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv("TERM", "xterm", 1);
    if (::chdir(spec.folder.c_str()) != 0) ::_exit(126);
    std::vector<char*> words;
    for (const std::string& word : spec.words) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(127);
  }

  int master_ = -1;
  pid_t pid_ = 0;
  std::string seen_;
};

TEST_F(FrontLaunch, OnATerminalRankZeroHasItAndCtrlCReachesEveryRankOnce) {
  Terminal terminal(front("--set mesh.dp=2", {{"STAND_IN", "tty; obey"}, {"NO_COLOR", "1"}}));
  if (!terminal.is_open()) GTEST_SKIP() << "no terminals here: is /dev/pts mounted?";
  terminal.read_until("[1] ready");
  const std::string before = terminal.read_until("\nready");
  EXPECT_NE(before.find("terminal: 1 1"), std::string::npos) << before;
  EXPECT_NE(before.find("\r\033[K[1] terminal: 0 0"), std::string::npos) << before;
  terminal.type("\003");
  const std::string after = terminal.read_until("[1] signals: ");
  EXPECT_EQ(terminal.exit_code(), 128 + SIGINT) << after;
  const std::string all = terminal.read_until("no such text");
  EXPECT_NE(all.find("[1] signals: 1\r"), std::string::npos) << all;
  EXPECT_NE(all.find("signals: 1\r"), all.rfind("signals: 1\r")) << all;  // rank 0's too
}

}  // namespace
}  // namespace laconic
