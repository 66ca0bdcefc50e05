// runtime/courier.hpp — a thread that waits for GPUs to encode messages, so that nobody else does.
//
// What is handed over is done in the order in which it came. An error is thrown by the next call,
// whichever it is; what is behind it is done all the same. Belongs to one thread; jobs run in
// another.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace laconic {

class Courier {
 public:
  using Job = std::function<void()>;

  // `on_failure` is called, in the courier's thread, when a job has thrown: whoever waits for
  // something else should ask.
  explicit Courier(std::function<void()> on_failure = {}) : on_failure_(std::move(on_failure)) {}
  ~Courier();  // waits until all is done, or has failed
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  void hand_over(Job job);
  // Throws what has failed, if anything has. Never waits.
  void check();
  // Waits until all that was handed over is done.
  void drain();
  // Waits as well, and forgets what failed: the step is lost anyway.
  void drain_quietly();

 private:
  void work();
  void run(Job job);
  void rethrow();

  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is under way, and has been taken out
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // started by the first message
};

}  // namespace laconic
