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
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
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
// that returns ends its process with 0; one that throws with 1, or with kAccuses + peer when that
// names a rank. The last `missing` ranks are never started.
constexpr int kAccuses = 100;

class RankProcesses {
 public:
  RankProcesses(int size, const RankBody& body,
                std::chrono::milliseconds deadline = std::chrono::milliseconds(30'000),
                int missing = 0)
      : size_(static_cast<std::size_t>(size)) {
    const int port = free_port();
    if (::pipe(ready_) != 0) throw std::runtime_error("no pipe");
    for (Rank r = 0; r < size - missing; ++r) {
      Meeting meeting = test_meeting(r, size, port);
      meeting.deadline = deadline;
      pids_.push_back(start(meeting, body));
    }
    ::close(std::exchange(ready_[1], -1));  // so that reading ends when all of them are gone
  }
  // Waits until all ranks are connected, or so many are gone that they never will be.
  bool are_ready() {
    char sign = 0;
    std::size_t ready = 0;
    while (ready < size_ && ::read(ready_[0], &sign, 1) == 1) ++ready;
    return ready == size_;
  }
  void wait_until_ready() { EXPECT_TRUE(are_ready()) << "not all ranks could connect"; }
  ~RankProcesses() {
    for (Rank r = 0; r < static_cast<Rank>(pids_.size()); ++r)
      if (pid(r) > 0) {
        signal(r, SIGKILL);
        wait(r);
      }
    ::close(ready_[0]);
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
    const bool had_failed = testing::Test::HasFailure();  // in the parent: none of the child's
    int code = 1;
    try {
      run_one_gloo_rank(meeting, [&](Transport& transport) {
        if (::write(ready_[1], "!", 1) == 1) body(transport);
      });
      code = testing::Test::HasFailure() && !had_failed ? 1 : 0;
    } catch (const std::exception& error) {
      if (const auto* lost = dynamic_cast<const PeerLost*>(&error)) code = kAccuses + lost->peer();
      if (const auto* late = dynamic_cast<const Timeout*>(&error)) code = kAccuses + late->peer();
      std::fprintf(stderr, "rank %d: %s\n", meeting.rank, error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  pid_t& pid(Rank rank) { return pids_.at(static_cast<std::size_t>(rank)); }

  std::size_t size_;
  std::vector<pid_t> pids_;
  int ready_[2] = {-1, -1};
};

}  // namespace laconic
