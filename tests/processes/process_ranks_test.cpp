// Runs of several ranks, each a process: launched here, by mpirun, or as torchrun would; killed,
// restarted, misled.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/launch/local.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

constexpr double kDeadline = 6;
constexpr double kSlack = 12;  // seconds to collect records and end, on a machine that is busy

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Ranks : public Workplace {
 protected:
  Ranks() { prepare(); }

  // Twelve steps of twelve samples on three ranks into `run`.
  static Words train(const std::string& run, const Words& more = {}) {
    return Words{"train", "run.toml",
                 "--set", "train.batch=12",
                 "--set", "train.steps=12",
                 "--set", "network.preflight=false",
                 "--set", fmt::format("network.deadline={}", kDeadline),
                 "--set", "run.folder=" + run} +
           more;
  }
  static Words on_three(const std::string& run, const Words& more = {}) {
    return train(run, Words{"--set", "mesh.dp=3", "--ranks", "3"} + more);
  }

  // The process of a rank among the children of a launcher; 0 while there is none.
  static pid_t pid_of_rank(pid_t launcher, int rank) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string stat = read_text(entry.path() / "stat");
      const std::size_t name_end = stat.rfind(')');
      if (name_end == std::string::npos) continue;
      if (std::atoi(stat.c_str() + name_end + 4) != launcher) continue;
      const std::string environment = read_text(entry.path() / "environ");
      if (has(environment, fmt::format("LOCAL_RANK={}", rank) + '\0'))
        return std::atoi(entry.path().filename().c_str());
    }
    return 0;
  }

  static Words endless() { return {"--set", "train.steps=1000000", "--resume", "auto"}; }

  void send_to_rank(Process& launcher, int rank, int signal) const {
    pid_t pid = 0;
    ASSERT_TRUE(
        wait_until(launcher, [&] { return (pid = pid_of_rank(launcher.pid(), rank)) > 0; }));
    ::kill(pid, signal);
  }
  void kill_rank(Process& launcher, int rank) const { send_to_rank(launcher, rank, SIGKILL); }

  void expect_end_of_killed(Process& launcher, int rank) const {
    kill_rank(launcher, rank);
    const Stopwatch watch;
    const ProcessResult outcome = launcher.wait(60);
    EXPECT_LT(watch.seconds(), kDeadline + kSlack) << to_text(outcome);
    EXPECT_EQ(outcome.exit_code, 137) << to_text(outcome);
    EXPECT_TRUE(has(outcome.err, fmt::format("rank {} was killed by signal 9", rank)));
    EXPECT_FALSE(has(outcome.err, "made to stop")) << to_text(outcome);
  }
};

TEST_F(Ranks, TrainLikeOneAnotherEveryTime) {
  const ProcessResult outcome = expect_exit(0, on_three("runs/a"));
  expect_exit(0, on_three("runs/b"));
  expect_same_end("runs/a", "runs/b", 12);
  EXPECT_EQ(outcome.err, "");
  EXPECT_FALSE(has(outcome.out, "\n[1] ")) << outcome.out;  // rank 0 speaks for all
  EXPECT_TRUE(has(outcome.out, "rank 0 of 3, 0 of 3 on this machine")) << outcome.out;
}

// Threads were compared with one process (tests/equivalence), so processes are too.
TEST_F(Ranks, TrainOverGlooWhatThreadsTrain) {
  for (const char* codec : {"raw", "quantise:bits=4"}) {
    const Words policy = {"--set", fmt::format("dp.gradient.codec={}", codec), "--set",
                          "dp.gradient.algorithm=direct"};
    Words threads = policy;
    threads.insert(threads.end(), {"--set", "network.transport=in_process"});
    const std::string name = fmt::format("runs/{}", codec[0]);
    expect_exit(0, on_three(name + "-processes", policy));
    expect_exit(0, on_three(name + "-threads", threads));
    expect_same_end(name + "-processes", name + "-threads", 12);
  }
}

TEST_F(Ranks, WhenOneIsKilledTheOthersStopInTimeAndNameIt) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string run = fmt::format("runs/{}", rank);
    Process process(spec(on_three(run, endless())));
    ASSERT_TRUE(wait_for_step(process, run, 5)) << to_text(process.wait());
    expect_end_of_killed(process, rank);
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      const std::string log = text(fmt::format("{}/ranks/rank-{}.log", run, other));
      EXPECT_TRUE(has(log, fmt::format("rank {}", rank))) << other << ": " << log;
    }
    EXPECT_TRUE(
        text(run + "/flight/verdict.txt").starts_with(fmt::format("rank {} left no record", rank)))
        << text(run + "/flight/verdict.txt");
  }
}

// Ranks that still look for each other give up with whomever they were talking to, who need not be
// the one that died; the launcher names that one.
TEST_F(Ranks, WhenOneIsKilledBeforeAllAreConnectedTheLauncherNamesIt) {
  for (int rank = 0; rank < 3; ++rank) {
    Process process(spec(on_three(fmt::format("runs/{}", rank), endless())));
    expect_end_of_killed(process, rank);
  }
}

TEST_F(Ranks, WhenOneIsKilledWhileAllSaveTheCheckpointBeforeStays) {
  const Words residuals = {"--set", "dp.gradient.codec=quantise:bits=4", "--set",
                           "checkpoint.every=1"};
  for (int rank = 0; rank < 3; ++rank) {
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
  ASSERT_TRUE(wait_until(process, [&] { return has(text("process.err"), verdict); }))
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
  EXPECT_TRUE(has(outcome.err, "from rank 1: ")) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "restart 1 of 1")) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_TRUE(has(verdict.substr(0, verdict.find('\n')), "failed by itself: ")) << verdict;
  EXPECT_TRUE(has(verdict, ": step 1\n")) << verdict;
}

// The last of the 16 messages that the ring makes of a step's four blocks: whichever block it is
// of, none of the same tag follows that could be taken for it.
TEST_F(Ranks, AMessageThatNeverComesIsNamed) {
  const ProcessResult outcome =
      laconic(on_three("runs/a", {"--set", "network.faults=drop:rank=1,traffic=dp.gradient,at=15",
                                  "--set", "network.deadline=2"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_TRUE(has(verdict.substr(0, verdict.find('\n')), "from rank 1 left but did not reach rank"))
      << verdict;
}

TEST_F(Ranks, AFullDiskIsTheFailureOfWhoMetIt) {
  ProcessSpec limited = spec(on_three("runs/a", {"--max-restarts", "1"}));
  limited.largest_file_bytes = 20'000;  // model.safetensors has more
  const ProcessResult outcome = Process(limited).wait(60);
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "model.safetensors.tmp: cannot write: File too large"));
  EXPECT_TRUE(has(outcome.err, "restart 1 of 1")) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "rank 0   ended with exit code 1 (failed)")) << to_text(outcome);
  for (int other : {1, 2})
    EXPECT_TRUE(has(outcome.err, fmt::format("rank {}   ended with exit code 3", other)));
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
  const Words steps = {"--set", "train.steps=60", "--set", "checkpoint.every=4"};
  expect_exit(0, on_three("runs/undisturbed", steps));
  Process process(spec(on_three("runs/a", steps + Words{"--max-restarts", "5"})));
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(wait_for_step(process, "runs/a", 10 + 15 * life)) << to_text(process.wait());
    kill_rank(process, life);
    ASSERT_TRUE(wait_until(process, [&] {
      return has(text("process.err"), fmt::format("restart {} of 5", life + 1));
    })) << to_text(process.wait());
  }
  const ProcessResult outcome = process.wait(60);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  expect_same_end("runs/a", "runs/undisturbed", 60);
}

TEST_F(Ranks, AnInterruptedRunSavesAndGoesOnAsIfNothingHadHappened) {
  Process process(spec(on_three("runs/a", {"--set", "train.steps=1000000"})));
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
  const Words steps = {"--set", fmt::format("train.steps={}", end)};
  expect_exit(0, on_three("runs/a", steps + Words{"--resume", "auto"}));
  expect_exit(0, on_three("runs/undisturbed", steps));
  expect_same_end("runs/a", "runs/undisturbed", end);
}

TEST_F(Ranks, WhenNobodyReadsAnyMoreTheySaveAndEnd) {
  ProcessSpec piped = spec(on_three("runs/a", {"--set", "train.steps=1000000"}));
  piped.words.insert(piped.words.begin(),
                     {"/bin/bash", "-c", "\"$@\" | head -n 6; exit ${PIPESTATUS[0]}", "bash"});
  const ProcessResult outcome = Process(piped).wait(60);
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "nobody reads standard output any more")) << to_text(outcome);
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
    EXPECT_TRUE(has(outcome.err, fmt::format("../runs/a: process {} on ", owner)))
        << to_text(outcome);
    EXPECT_FALSE(has(outcome.err, "[0]")) << to_text(outcome);
    EXPECT_EQ(outcome.out, "");
  };
  for (const Words& more :
       {Words{}, Words{"--resume", "auto"}, Words{"--overwrite"}, Words{"--resume", "../runs/a"}})
    refused(more, first.pid());
  kill_rank(first, 1);  // between two attempts the folder is still taken
  ASSERT_TRUE(wait_until(first, [&] { return has(text("process.err"), "restart 1 of 1"); }));
  refused({"--resume", "auto"}, first.pid());
  const std::int64_t before = losses("runs/a").rbegin()->first;
  ASSERT_TRUE(wait_for_step(first, "runs/a", before + 3));
  first.send(SIGKILL);  // leaves its lock, which is then nobody's
  first.wait(20);
  EXPECT_TRUE(fs::exists(folder_ / "runs/a/run.lock"));
  const std::int64_t end = losses("runs/a").rbegin()->first + 3;
  const ProcessResult outcome = expect_exit(
      0, on_three("runs/a", {"--resume", "auto", "--set", fmt::format("train.steps={}", end)}));
  EXPECT_TRUE(has(outcome.err, fmt::format("taking over the lock of process {}", first.pid())))
      << to_text(outcome);
  EXPECT_FALSE(fs::exists(folder_ / "runs/a/run.lock"));
  EXPECT_EQ(losses("runs/a").rbegin()->first, end);  // no step is there twice
}

TEST_F(Ranks, AFolderThatIsTakenIsFoundBeforeTheyStart) {
  expect_exit(0, {"train", "run.toml"});
  const ProcessResult outcome = expect_exit(2, on_three("runs/a"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(has(outcome.err, "laconic: runs/a already holds step-00000006")) << outcome.err;
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

TEST_F(Ranks, MpirunStartsThemToo) {
  const std::string mpirun = "/usr/bin/mpirun";
  if (!fs::exists(mpirun)) GTEST_SKIP() << "no mpirun here";
  const Words two = {"--set", "mesh.dp=2"};
  expect_exit(0, train("runs/here", two));
  ProcessSpec spec = this->spec(train("runs/mpi", two));
  spec.words = Words{mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2"} + spec.words;
  const ProcessResult outcome = Process(spec).wait(60);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(has(outcome.out, "(OpenMPI)")) << to_text(outcome);
  expect_same_end("runs/here", "runs/mpi", 12);
}

// The environment that torchrun gives a process.
ProcessSpec under_torchrun(ProcessSpec spec, int rank, int size, const std::string& host,
                           int port) {
  spec.folder += fmt::format("/host-{}", rank);
  spec.environment = {{"RANK", std::to_string(rank)},
                      {"WORLD_SIZE", std::to_string(size)},
                      {"LOCAL_RANK", std::to_string(rank)},
                      {"LOCAL_WORLD_SIZE", std::to_string(size)},
                      {"MASTER_ADDR", host},
                      {"MASTER_PORT", std::to_string(port)},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"}};
  fs::create_directories(spec.folder);
  spec.words[2] = "../run.toml";
  spec.words.insert(spec.words.end(),
                    {"--set", "data.train=../data", "--set", "data.valid=../data-valid"});
  return spec;
}

TEST_F(Ranks, SoDoesTorchrun) {
  const Words two = {"--set", "mesh.dp=2"};
  expect_exit(0, train("runs/here", two));
  const int port = find_free_port();
  const ProcessSpec rank = spec(train("../runs/torch", two));
  Process one(under_torchrun(rank, 1, 2, "127.0.0.1", port));
  Process zero(under_torchrun(rank, 0, 2, "127.0.0.1", port));
  for (Process* process : {&zero, &one}) {
    const ProcessResult outcome = process->wait(60);
    EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  }
  EXPECT_TRUE(has(text("host-0/process.out"), "(torchrun)"));
  expect_same_end("runs/here", "runs/torch", 12);
}

// Nobody has started a launcher of ours: rank 0 holds the lock.
TEST_F(Ranks, UnderTorchrunRankZeroHasTheFolder) {
  const Words two = {"--set", "mesh.dp=2", "--set", "train.steps=1000000"};
  const int port = find_free_port();
  const ProcessSpec rank = spec(train("../runs/torch", two));
  Process one(under_torchrun(rank, 1, 2, "127.0.0.1", port));
  Process zero(under_torchrun(rank, 0, 2, "127.0.0.1", port));
  ASSERT_TRUE(wait_for_step(zero, "runs/torch", 2));
  const ProcessResult refused =
      expect_exit(2, train("runs/torch", two + Words{"--resume", "auto"}));
  EXPECT_TRUE(has(refused.err, fmt::format("runs/torch: process {} on ", zero.pid())))
      << refused.err;
  for (Process* process : {&zero, &one}) process->send(SIGTERM);
  for (Process* process : {&zero, &one}) EXPECT_EQ(process->wait(30).exit_code, 128 + SIGTERM);
  EXPECT_FALSE(fs::exists(folder_ / "runs/torch/run.lock"));
}

TEST_F(Ranks, AWrongHostNameIsNamed) {
  const ProcessSpec rank =
      spec(train("../runs/a", {"--set", "mesh.dp=2", "--set", "network.deadline=2"}));
  const Stopwatch watch;
  const ProcessResult outcome =
      Process(under_torchrun(rank, 1, 2, "no-such-host.invalid", 29555)).wait(60);
  EXPECT_LT(watch.seconds(), 2 + kSlack);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(has(outcome.err, "no-such-host.invalid")) << to_text(outcome);
}

// Something else holds the port: it accepts connections and says nothing.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof any;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    EXPECT_TRUE(::bind(socket_, address, length) == 0 && ::listen(socket_, 8) == 0 &&
                ::getsockname(socket_, address, &length) == 0);
    number_ = ntohs(any.sin_port);
  }
  ~SilentPort() { ::close(socket_); }
  int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

TEST_F(Ranks, ARendezvousThatStaysSilentIsNamedAtTheDeadline) {
  const SilentPort silent;
  const ProcessSpec rank =
      spec(train("../runs/a", {"--set", "mesh.dp=2", "--set", "network.deadline=3"}));
  const Stopwatch watch;
  const ProcessResult outcome =
      Process(under_torchrun(rank, 1, 2, "127.0.0.1", silent.number())).wait(60);
  EXPECT_LT(watch.seconds(), 3 + kSlack);
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, fmt::format("127.0.0.1:{} accepts connections but has not answered",
                                           silent.number())))
      << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "rank 0 to say which run this is")) << to_text(outcome);
}

TEST_F(Ranks, WhoStillWaitsForOthersEndsAtTheFirstSignal) {
  const SilentPort silent;
  struct Waiting {
    int signal;
    std::unique_ptr<Process> process;
  };
  std::vector<Waiting> all;
  for (const int signal : {SIGINT, SIGTERM})
    for (const int number : {0, 1}) {  // waits for rank 1; waits for an answer
      const int port = number == 0 ? find_free_port() : silent.number();
      const ProcessSpec rank = spec(train(fmt::format("../runs/a-{}", signal),
                                          {"--set", "mesh.dp=2", "--set", "network.deadline=60"}));
      ProcessSpec one = under_torchrun(rank, number, 2, "127.0.0.1", port);
      one.folder += fmt::format("-{}", signal);
      fs::create_directories(one.folder);
      all.push_back({signal, std::make_unique<Process>(one)});
    }
  std::this_thread::sleep_for(std::chrono::seconds(6));
  for (const Waiting& one : all) one.process->send(one.signal);
  const Stopwatch watch;
  for (const Waiting& one : all) {
    const ProcessResult outcome = one.process->wait(60);
    EXPECT_LT(watch.seconds(), 5) << to_text(outcome);
    EXPECT_EQ(outcome.exit_code, 128 + one.signal) << to_text(outcome);
    EXPECT_TRUE(has(outcome.err, "nothing was trained")) << to_text(outcome);
  }
}

// By whoever gives up first; the other may have lost that one by then.
TEST_F(Ranks, ARankThatNeverComesIsNamed) {
  const ProcessSpec rank = spec(train("../runs/a", {"--set", "mesh.dp=3"}));
  const int port = find_free_port();
  Process zero(under_torchrun(rank, 0, 3, "127.0.0.1", port));
  Process two(under_torchrun(rank, 2, 3, "127.0.0.1", port));
  std::string all;
  for (Process* process : {&zero, &two}) {
    const ProcessResult outcome = process->wait(60);
    EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
    all += outcome.err;
  }
  EXPECT_TRUE(has(all, "rank 1")) << all;
}

// Nobody is refused because another was late or died: a launcher would not start them again.
TEST_F(Ranks, APairThatCannotTalkBeforeTheFirstStepIsALossAndNoRefusal) {
  const ProcessResult outcome =
      laconic(on_three("runs/a", {"--set", "network.deadline=2", "--set",
                                  "network.faults=drop:rank=1,traffic=preflight,at=0"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, "cannot talk")) << to_text(outcome);
}

TEST_F(Ranks, ConfigurationsThatDifferAreRefusedByKey) {
  const int port = find_free_port();
  const Words two = {"--set", "mesh.dp=2"};
  Process zero(under_torchrun(spec(train("a", two)), 0, 2, "127.0.0.1", port));
  Process one(under_torchrun(spec(train("b", two + Words{"--set", "optimiser.lr=0.02"})), 1, 2,
                             "127.0.0.1", port));
  for (Process* process : {&zero, &one}) {
    const ProcessResult outcome = process->wait(60);
    EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
    EXPECT_TRUE(has(outcome.err, "optimiser.lr: is 0.02 on rank 1")) << to_text(outcome);
    EXPECT_FALSE(has(outcome.err, "run.folder")) << to_text(outcome);  // may be another
  }
}

// Everything at once, with both values, and long before any deadline: also where they differ in
// whether to measure at all, in how many ranks there are to be, or in what their data hold.
TEST_F(Ranks, RanksThatWereToldDifferentThingsAreRefusedAtOnce) {
  constexpr double kLong = 40;
  write_text(folder_ / "other.txt", "Another text, and a short one. " + std::string(4000, 'x'));
  expect_exit(0, {"prepare", "other.txt", "--out", "other"});
  const Words same = {"--set", "mesh.dp=2", "--set", fmt::format("network.deadline={}", kLong)};
  struct Case {
    Words told;  // to rank 1, beside what rank 0 was told
    std::vector<std::string> expected;
  };
  const std::vector<Case> cases = {
      {{"--set", "network.preflight=true"},
       {"network.preflight: is true on rank 1", "but false on rank 0"}},
      {{"--set", "dp.gradient.codec=quantise:bits=4", "--set", "pp.activation.codec=half", "--set",
        "steering.bypass=auto", "--set", "network.segment=65536"},
       {"dp.gradient.codec: is \"quantise:bits=4\" on rank 1", "but \"raw\" on rank 0",
        "pp.activation.codec: is \"half\" on rank 1", "steering.bypass: is \"auto\" on rank 1",
        "network.segment: is 65536 on rank 1"}},
      {{"--set", "mesh.dp=3"}, {"mesh.dp: is 3 on rank 1", "but 2 on rank 0"}},
      {{"--set", "data.train=../other"}, {"data.train: is \"", " on rank 1"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.told.back());
    const int port = find_free_port();
    Process zero(under_torchrun(spec(train("a", same)), 0, 2, "127.0.0.1", port));
    ProcessSpec other = under_torchrun(spec(train("b", same)), 1, 2, "127.0.0.1", port);
    other.words = other.words + c.told;
    const Stopwatch watch;
    Process one(other);
    for (Process* process : {&zero, &one}) {
      const ProcessResult outcome = process->wait(60);
      EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
      for (const std::string& part : c.expected)
        EXPECT_TRUE(has(outcome.err, part)) << part << "\n" << to_text(outcome);
      EXPECT_FALSE(has(outcome.err, "cannot talk")) << to_text(outcome);
    }
    EXPECT_LT(watch.seconds(), kLong / 2);
  }
}

TEST_F(Ranks, AMeshThatAllWereToldOfAndThatCannotBeIsRefusedByAll) {
  const int port = find_free_port();
  const Words four = {"--set", "mesh.dp=4"};
  Process zero(under_torchrun(spec(train("a", four)), 0, 2, "127.0.0.1", port));
  Process one(under_torchrun(spec(train("b", four)), 1, 2, "127.0.0.1", port));
  for (Process* process : {&zero, &one}) {
    const ProcessResult outcome = process->wait(60);
    EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
    EXPECT_TRUE(has(outcome.err, "mesh: dp 4 needs 4 ranks, there are 2")) << to_text(outcome);
  }
  // Also where the other does not come at all.
  const ProcessResult alone =
      Process(under_torchrun(spec(train("c", four + Words{"--set", "network.deadline=2"})), 0, 2,
                             "127.0.0.1", find_free_port()))
          .wait(60);
  EXPECT_EQ(alone.exit_code, 2) << to_text(alone);
  EXPECT_TRUE(has(alone.err, "mesh: dp 4 needs 4 ranks, there are 2")) << to_text(alone);
}

// Another machine: the folder of rank 0 is empty there.
ProcessSpec without_the_folder_of_rank_0(ProcessSpec spec) {
  spec.words = Words{"/usr/bin/unshare",
                     "-m",
                     "/bin/sh",
                     "-c",
                     "mount -t tmpfs none ../host-0 && exec \"$@\"",
                     "sh"} +
               spec.words;
  return spec;
}

TEST_F(Ranks, WhoDoesNotSeeTheRunsFolderSavesWithTheOthersButCannotResume) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can hide a folder";
  const Words residuals = {"--set", "mesh.dp=2", "--set", "dp.gradient.codec=quantise:bits=4"};
  expect_exit(0, train("runs/here", residuals));
  const auto run_apart = [&](const Words& more) {
    const ProcessSpec rank =
        spec(train("run", residuals + Words{"--set", "report.trace=true"} + more));
    const int port = find_free_port();
    Process zero(under_torchrun(rank, 0, 2, "127.0.0.1", port));
    Process one(without_the_folder_of_rank_0(under_torchrun(rank, 1, 2, "127.0.0.1", port)));
    const ProcessResult outcome = one.wait(60);
    return std::pair(zero.wait(60), outcome);
  };
  const auto [zero, one] = run_apart({});
  if (has(one.err, "unshare") || has(one.err, "mount")) GTEST_SKIP() << one.err;
  EXPECT_EQ(zero.exit_code, 0) << to_text(zero);
  EXPECT_EQ(one.exit_code, 0) << to_text(one);
  expect_same_end("runs/here", "host-0/run", 12);
  for (const char* file : {"/rank-00000.safetensors", "/rank-00001.safetensors"})
    EXPECT_TRUE(text(checkpoint("runs/here", 12) + file) ==
                text(checkpoint("host-0/run", 12) + file));
  EXPECT_FALSE(fs::exists(folder_ / (checkpoint("host-0/run", 12) + "/token")));
  EXPECT_TRUE(fs::exists(folder_ / "host-1/run/trace-rank-1.json"));
  const ProcessResult refused = run_apart({"--resume", "auto"}).second;
  EXPECT_EQ(refused.exit_code, 2) << to_text(refused);
  EXPECT_TRUE(has(refused.err, "step-00000012")) << to_text(refused);
  EXPECT_TRUE(has(refused.err, "cannot be seen here")) << to_text(refused);
}

TEST_F(Ranks, TwoRunsOnOnePortDoNotMix) {
  const std::string port = fmt::format("network.port={}", find_free_port());
  const Words endless = {"--set", "train.steps=1000000", "--set", port};
  Process first(spec(on_three("runs/a", endless)));
  ASSERT_TRUE(wait_for_step(first, "runs/a", 3));
  ProcessSpec late = spec(on_three("runs/b", endless));
  fs::create_directories(folder_ / "late");
  late.folder = folder_ / "late";
  late.words[2] = "../run.toml";
  late.words =
      late.words + Words{"--set", "data.train=../data", "--set", "data.valid=../data-valid"};
  const ProcessResult outcome = Process(late).wait(60);
  EXPECT_NE(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(has(outcome.err, port.substr(13))) << to_text(outcome);
  EXPECT_FALSE(first.has_ended());
  const std::int64_t seen = losses("runs/a").rbegin()->first;
  EXPECT_TRUE(wait_for_step(first, "runs/a", seen + 5));  // unimpressed
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(30).exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace laconic
