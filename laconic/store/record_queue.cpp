#include "laconic/store/record_queue.hpp"

#include <utility>

namespace laconic {

RecordQueue::RecordQueue(RecordFile& file, bool has_thread, std::function<void()> before_job)
    : file_(&file), before_job_(std::move(before_job)), has_thread_(has_thread) {
  if (has_thread_) thread_ = std::thread([this] { run(); });
}

RecordQueue::~RecordQueue() {
  if (!has_thread_) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_worker_.notify_one();
  thread_.join();
}

// The thread looks at it during a job only, and sees the change when it takes the next one.
void RecordQueue::set_before_job(std::function<void()> before_job) {
  wait_until_idle();
  const std::lock_guard lock(mutex_);
  before_job_ = std::move(before_job);
}

RecordQueue::Ticket RecordQueue::submit(RecordJob job) {
  ++submitted_;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  if (has_thread_)
    wake_worker_.notify_one();
  else if (!has_failed_)
    run();
  return submitted_;
}

void RecordQueue::wait(Ticket ticket) {
  if (!is_done(ticket)) {
    std::unique_lock lock(mutex_);
    wake_caller_.wait(lock, [&] { return is_done(ticket) || has_failed_; });
  }
  rethrow();
}

void RecordQueue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  wake_caller_.wait(lock, [&] { return is_done(submitted_) || has_failed_; });
}

void RecordQueue::rethrow() const {
  if (has_failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
}

// What leaves work() as an exception is kept for the submitting thread.
void RecordQueue::run() {
  try {
    work();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    has_failed_.store(true, std::memory_order_release);
    wake_caller_.notify_all();
  }
}

void RecordQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (jobs_.empty() && !has_thread_) return;
    wake_worker_.wait(lock, [&] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    const RecordJob job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    do_job(job);
    lock.lock();
    done_.fetch_add(1, std::memory_order_release);
    wake_caller_.notify_all();
  }
}

void RecordQueue::do_job(const RecordJob& job) {
  if (before_job_) before_job_();
  const std::span record(job.record, file_->record_bytes());
  if (job.kind == RecordJob::Kind::read)
    file_->read(job.slot, record);
  else
    file_->write(job.slot, record);
}

}  // namespace laconic
