// Ranks that somebody else has started, mpirun or torchrun: how they find each other, what they
// must have in common, and who is named when they do not meet.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/launch/local.hpp"
#include "tests/processes/ranks.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

TEST_F(Ranks, MpirunStartsThemToo) {
  const std::string mpirun = "/usr/bin/mpirun";
  if (!fs::exists(mpirun)) GTEST_SKIP() << "no mpirun here";
  const Words two = {"--set", "mesh.dp=2"};
  expect_exit(0, train("runs/here", two));
  ProcessSpec spec = this->spec(train("runs/mpi", two));
  spec.words = Words{mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2"} + spec.words;
  const ProcessResult outcome = Process(spec).wait(60);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.out, "(OpenMPI)")) << to_text(outcome);
  expect_same_end("runs/here", "runs/mpi", 12);
}

// "binding file A [0] to B [0]: normal symbol `S'": what the loader says of a symbol it has found.
struct Binding {
  std::string from, to, symbol;
};

std::string between(const std::string& line, const std::string& before, const std::string& after) {
  const std::size_t at = line.find(before);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + before.size();
  return line.substr(begin, line.find(after, begin) - begin);
}

bool is_gloo(const std::string& file) {
  return contains(file, "/laconic-gloo.so") || contains(file, "/libgloo.so");
}

// Libtorch from PyPI has a gloo of its own. Whatever libtorch this is: our gloo must not meet it.
TEST_F(Ranks, OurGlooCallsNoOtherGloo) {
  ProcessSpec two = spec(train("runs/a", {"--set", "mesh.dp=2", "--set", "train.steps=2"}));
  two.environment = {{"LD_DEBUG", "bindings"}, {"LD_DEBUG_OUTPUT", *this / "loader"}};
  const ProcessResult outcome = Process(two).wait(120);
  ASSERT_EQ(outcome.exit_code, 0) << to_text(outcome);
  std::size_t of_ours = 0, of_others = 0;
  for (const auto& entry : fs::directory_iterator(*this / ".")) {
    if (!entry.path().filename().string().starts_with("loader.")) continue;
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);) {
      const Binding binding{between(line, "binding file ", " ["), between(line, " to ", " ["),
                            between(line, "symbol `", "'")};
      if (!is_gloo(binding.from) || !contains(binding.symbol, "4gloo")) continue;
      ++(is_gloo(binding.to) ? of_ours : of_others);
      EXPECT_TRUE(is_gloo(binding.to)) << line;
    }
  }
  EXPECT_GT(of_ours, 50u);  // several hundred; none would mean that nothing was looked at
  EXPECT_EQ(of_others, 0u);
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
  EXPECT_TRUE(contains(text("host-0/process.out"), "(torchrun)"));
  expect_same_end("runs/here", "runs/torch", 12);
}

// Each rank may be told a device of its own. Where there is no GPU that is what both end with, not
// with a difference between them, and not with a lost rank.
TEST_F(Ranks, OneMayComputeOnAGpuAndAnotherNot) {
  const int port = find_free_port();
  const Words two = {"--set", "mesh.dp=2"};
  const ProcessSpec cpu = spec(train("../runs/torch", two)),
                    gpu = spec(train("../runs/torch", two + Words{"--set", "run.device=cuda"}));
  Process one(under_torchrun(gpu, 1, 2, "127.0.0.1", port));
  Process zero(under_torchrun(cpu, 0, 2, "127.0.0.1", port));
  const ProcessResult first = zero.wait(60), second = one.wait(60);
  const bool has_gpu = !contains(second.err, "there is no GPU to use");
  for (const ProcessResult* outcome : {&first, &second}) {
    EXPECT_EQ(outcome->exit_code, has_gpu ? 0 : 2) << to_text(*outcome);
    EXPECT_EQ(contains(outcome->err, "run.device: device = \"cuda\", and there is no GPU to use"),
              !has_gpu)
        << to_text(*outcome);
    EXPECT_EQ(contains(outcome->err, "(rank 1)"), !has_gpu) << to_text(*outcome);
  }
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
  EXPECT_TRUE(contains(refused.err, fmt::format("runs/torch: process {} on ", zero.pid())))
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
  EXPECT_TRUE(contains(outcome.err, "no-such-host.invalid")) << to_text(outcome);
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
  EXPECT_TRUE(contains(
      outcome.err,
      fmt::format("127.0.0.1:{} accepts connections but has not answered", silent.number())))
      << to_text(outcome);
  // As store_test.cpp has it: some libtorch asks something by itself when it connects.
  EXPECT_TRUE(contains(outcome.err, "rank 0 to say which run this is") ||
              contains(outcome.err, "waited there for a first answer"))
      << to_text(outcome);
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
    EXPECT_TRUE(contains(outcome.err, "nothing was trained")) << to_text(outcome);
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
  EXPECT_TRUE(contains(all, "rank 1")) << all;
}

// Nobody is refused because another was late or died: a launcher would not start them again.
TEST_F(Ranks, APairThatCannotTalkBeforeTheFirstStepIsALossAndNoRefusal) {
  const ProcessResult outcome =
      laconic(on_three("runs/a", {"--set", "network.deadline=2", "--set",
                                  "network.faults=drop:rank=1,traffic=preflight,at=0"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "cannot talk")) << to_text(outcome);
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
    EXPECT_TRUE(contains(outcome.err, "optimiser.lr: is 0.02 on rank 1")) << to_text(outcome);
    EXPECT_FALSE(contains(outcome.err, "run.folder")) << to_text(outcome);  // may be another
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
        EXPECT_TRUE(contains(outcome.err, part)) << part << "\n" << to_text(outcome);
      EXPECT_FALSE(contains(outcome.err, "cannot talk")) << to_text(outcome);
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
    EXPECT_TRUE(contains(outcome.err, "mesh: dp 4 needs 4 ranks, there are 2")) << to_text(outcome);
  }
  // Also where the other does not come at all.
  const ProcessResult alone =
      Process(under_torchrun(spec(train("c", four + Words{"--set", "network.deadline=2"})), 0, 2,
                             "127.0.0.1", find_free_port()))
          .wait(60);
  EXPECT_EQ(alone.exit_code, 2) << to_text(alone);
  EXPECT_TRUE(contains(alone.err, "mesh: dp 4 needs 4 ranks, there are 2")) << to_text(alone);
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
  if (contains(one.err, "unshare") || contains(one.err, "mount")) GTEST_SKIP() << one.err;
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
  EXPECT_TRUE(contains(refused.err, "step-00000012")) << to_text(refused);
  EXPECT_TRUE(contains(refused.err, "cannot be seen here")) << to_text(refused);
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
  EXPECT_TRUE(contains(outcome.err, port.substr(13))) << to_text(outcome);
  EXPECT_FALSE(first.has_ended());
  const std::int64_t seen = losses("runs/a").rbegin()->first;
  EXPECT_TRUE(wait_for_step(first, "runs/a", seen + 5));  // unimpressed
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(30).exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace laconic
