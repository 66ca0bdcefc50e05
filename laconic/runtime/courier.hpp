// runtime/courier.hpp — a thread that waits for GPUs to encode messages, so that nobody else does.
//
// What is handed over leaves in the order in which it came. An error is thrown by the
// next call. Belongs to one thread; `send` runs in another.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "laconic/tensor/tensor_link.hpp"

namespace laconic {

class Courier {
 public:
  using Send = std::function<void(Bytes)>;

  Courier() = default;
  ~Courier();  // waits until all has left, or failed
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Calls send(frame) when the message is encoded.
  void hand_over(PackedTensor packed, Send send);
  // Waits until all that was handed over has left.
  void drain();
  // Waits as well, and forgets what failed: the step is lost anyway.
  void drain_quietly();

 private:
  struct Job {
    PackedTensor packed;
    Send send;
  };
  void work();
  void rethrow();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is being worked on
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // started by the first message
};

}  // namespace laconic
