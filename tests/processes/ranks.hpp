// tests/processes/ranks.hpp — runs of three ranks, each a process that can be killed.
#pragma once

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "laconic/base/clock.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {

inline constexpr double kDeadline = 6;
inline constexpr double kSlack =
    12;  // seconds to collect records and end, on a machine that is busy

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

  // Ranks that are threads of one process: they train the same by direct sums (TrainOverGloo...),
  // and start in a third of the time.
  static Words threads() { return {"--set", "network.transport=in_process"}; }

  // The process of a rank among the children of a launcher, by the name that it gives itself; 0
  // while there is none.
  static pid_t pid_of_rank(pid_t launcher, int rank) {
    const std::string name = fmt::format(" (laconic-rank-{}) ", rank);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string stat = read_text(entry.path() / "stat");
      const std::size_t at = stat.find(name);
      if (at != std::string::npos && std::atoi(stat.c_str() + at + name.size() + 2) == launcher)
        return std::atoi(stat.c_str());
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
    EXPECT_TRUE(contains(outcome.err, fmt::format("rank {} was killed by signal 9", rank)));
    EXPECT_FALSE(contains(outcome.err, "made to stop")) << to_text(outcome);
  }
};

}  // namespace laconic
