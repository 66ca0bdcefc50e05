// The lines of docs/launching.md for torchrun, with the torchrun of this machine: Debian's
// python3-torch. They are skipped where there is none.
#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "laconic/launch/local.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

class Torchrun : public Workplace {
 protected:
  void SetUp() override {
    if (Process({.words = {"/bin/sh", "-c", "exec torchrun --help"}, .folder = folder_.path()})
            .wait(120)
            .exit_code != 0)
      GTEST_SKIP() << "no torchrun here (apt install python3-torch)";
    prepare();
  }

  static Words train(const std::string& run, const Words& more = {}) {
    Words words = {"train", "run.toml",         "--set", "mesh.dp=2",
                   "--set", "train.steps=12",   "--set", "network.preflight=false",
                   "--set", "run.folder=" + run};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // As documented: -r 1 -t 1, without which Debian's fails before it starts anybody.
  ProcessSpec torchrun(const Words& options, const Words& arguments) const {
    Words words = {"/usr/bin/env", "torchrun", "-r", "1", "-t", "1", "--no_python"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(program());
    words.insert(words.end(), arguments.begin(), arguments.end());
    return {.words = words, .folder = folder_.path()};
  }

  // The worker of a rank below torchrun; 0 while there is none.
  static pid_t pid_of_rank(int rank, const std::string& run) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string words = read_text(entry.path() / "cmdline");
      const std::string environment = read_text(entry.path() / "environ");
      if (words.find("run.folder=" + run + '\0') != std::string::npos &&
          environment.find(fmt::format("{}RANK={}{}", '\0', rank, '\0')) != std::string::npos)
        return std::atoi(name.c_str());
    }
    return 0;
  }
};

TEST_F(Torchrun, OnOneMachineTrainsWhatWeLaunch) {
  expect_exit(0, train("runs/here"));
  const ProcessResult outcome =
      Process(torchrun({"--nproc_per_node", "2", "--master_port", std::to_string(find_free_port())},
                       train("runs/torch")))
          .wait(240);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_NE(outcome.out.find("(torchrun)"), std::string::npos) << to_text(outcome);
  expect_same_end("runs/here", "runs/torch", 12);
}

TEST_F(Torchrun, OnTwoMachinesMeetsByC10d) {
  expect_exit(0, train("runs/here"));
  const int port = find_free_port();
  const auto machine = [&](int number) {
    ProcessSpec spec = torchrun({"--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d",
                                 "--rdzv_endpoint", fmt::format("127.0.0.1:{}", port)},
                                train(*this / "runs/torch"));
    spec.folder = *this / fmt::format("machine-{}", number);
    fs::create_directories(spec.folder);
    spec.words[std::size_t(std::ranges::find(spec.words, "run.toml") - spec.words.begin())] =
        "../run.toml";
    for (const char* set : {"data.train=../data", "data.valid=../data-valid"})
      spec.words.insert(spec.words.end(), {"--set", set});
    return spec;
  };
  Process first(machine(0)), second(machine(1));
  for (Process* process : {&first, &second}) {
    const ProcessResult outcome = process->wait(240);
    EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  }
  expect_same_end("runs/here", "runs/torch", 12);
}

TEST_F(Torchrun, StartsRanksAgainThatResume) {
  const Words steps = {"--set", "train.steps=400", "--set", "checkpoint.every=4"};
  expect_exit(0, train("runs/here", steps));
  const std::string run = *this / "runs/torch";
  Words resumed = steps;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  Process process(torchrun({"--nproc_per_node", "2", "--max_restarts", "3", "--master_port",
                            std::to_string(find_free_port())},
                           train(run, resumed)));
  ASSERT_TRUE(wait_for_step(process, "runs/torch", 8)) << to_text(process.wait(60));
  const pid_t rank = pid_of_rank(1, run);
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGKILL);
  const ProcessResult outcome = process.wait(240);
  EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
  EXPECT_NE(outcome.out.find("continuing"), std::string::npos) << to_text(outcome);
  expect_same_end("runs/here", "runs/torch", 400);
}

}  // namespace
}  // namespace laconic
