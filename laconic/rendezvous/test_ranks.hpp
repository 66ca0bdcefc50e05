// rendezvous/test_ranks.hpp — for tests: ranks over gloo on loopback, as threads or as processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {

inline Meeting test_meeting(Rank rank, int size, int port) {
  Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.port = port;
  meeting.run_id = "a test";
  return meeting;
}

using RankBody = std::function<void(Transport&)>;

inline void run_one_gloo_rank(const Meeting& meeting, const RankBody& body) {
  const std::unique_ptr<Store> store = meet(meeting);
  const std::unique_ptr<Transport> transport = make_gloo(meeting, *store);
  body(*transport);
}

// Ranks are threads of this process, each with a store and connections of its own.
inline void run_gloo_threads(int size, const RankBody& body) {
  const int port = free_port();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (Rank r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        run_one_gloo_rank(test_meeting(r, size, port), body);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Ranks are processes. The program that starts them must not have threads: they are forked. A body
// that returns ends its process with 0, one that throws with 1.
class RankProcesses {
 public:
  // Returns when all ranks are connected, unless told not to wait.
  RankProcesses(int size, const RankBody& body, bool waits = true) {
    const int port = free_port();
    if (::pipe(ready_) != 0) throw std::runtime_error("no pipe");
    for (Rank r = 0; r < size; ++r) pids_.push_back(start(test_meeting(r, size, port), body));
    char sign = 0;
    for (Rank r = 0; waits && r < size; ++r) EXPECT_EQ(::read(ready_[0], &sign, 1), 1);
  }
  ~RankProcesses() {
    for (Rank r = 0; r < static_cast<Rank>(pids_.size()); ++r)
      if (pid(r) > 0) {
        signal(r, SIGKILL);
        wait(r);
      }
    for (const int end : ready_) ::close(end);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void signal(Rank rank, int number) { ::kill(pid(rank), number); }
  // The exit code, or -signal.
  int wait(Rank rank) {
    int status = 0;
    ::waitpid(pid(rank), &status, 0);
    pid(rank) = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t start(const Meeting& meeting, const RankBody& body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int code = 1;
    try {
      run_one_gloo_rank(meeting, [&](Transport& transport) {
        if (::write(ready_[1], "!", 1) == 1) body(transport);
      });
      code = testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", meeting.rank, error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  pid_t& pid(Rank rank) { return pids_.at(static_cast<std::size_t>(rank)); }

  std::vector<pid_t> pids_;
  int ready_[2] = {-1, -1};
};

}  // namespace laconic
