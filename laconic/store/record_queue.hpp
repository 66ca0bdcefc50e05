// store/record_queue.hpp — reads and writes of a record file, one after another, on a thread.
//
// submit() returns a ticket; jobs are done in the order of their tickets, all by
// one thread, so a read always sees the write that was submitted before it. From
// submit() until its ticket is done a buffer belongs to the job: the caller must
// not free it, must not write to it, and may read it only if the job writes it to
// the file.
//
// The first failure ends the work: the jobs after it are never done, and
// rethrow() and wait() throw it every time. Jobs that are not done when the queue
// is destroyed are dropped.
//
// Thread safety: one thread submits and waits; the queue has the other one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "laconic/store/record_file.hpp"

namespace laconic {

struct RecordJob {
  enum class Kind : std::uint8_t { read, write };
  Kind kind = Kind::read;
  std::uint64_t slot = 0;
  std::byte* record = nullptr;
};

class RecordQueue {
 public:
  using Ticket = std::uint64_t;  // 0 is always done

  // `before_job` runs before every job, where the job runs. Without a thread submit() does the job
  // itself before it returns, and a failure is kept all the same.
  RecordQueue(RecordFile& file, bool has_thread, std::function<void()> before_job);
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  void set_before_job(std::function<void()> before_job);  // for the jobs from now on
  Ticket submit(RecordJob job);
  bool is_done(Ticket ticket) const { return ticket <= done_.load(std::memory_order_acquire); }
  void wait(Ticket ticket);  // throws what ended the work
  void wait_until_idle();    // everything is done, or the work has ended
  void rethrow() const;
  Ticket last() const { return submitted_; }
  bool has_thread() const { return has_thread_; }

 private:
  void run();
  void work();
  void do_job(const RecordJob& job);

  RecordFile* file_;
  std::function<void()> before_job_;
  const bool has_thread_;
  Ticket submitted_ = 0;  // the submitting thread's own
  std::atomic<Ticket> done_ = 0;
  std::atomic<bool> has_failed_ = false;

  std::mutex mutex_;
  std::condition_variable wake_worker_;
  std::condition_variable wake_caller_;
  std::deque<RecordJob> jobs_;  // guarded by mutex_
  bool is_stopping_ = false;    // guarded by mutex_
  std::exception_ptr failure_;  // written once, before has_failed_
  std::thread thread_;
};

}  // namespace laconic
