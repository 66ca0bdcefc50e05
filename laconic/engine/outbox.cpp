#include "laconic/engine/outbox.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/engine/progress_deadline.hpp"

namespace laconic {

Outbox::Outbox(Transport& transport, Rank to, const EngineOptions& options, Events events)
    : transport_(transport),
      to_(to),
      options_(options),
      events_(std::move(events)),
      thread_([this] { work(); }) {}

Outbox::~Outbox() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  queued_.notify_all();
  thread_.join();
}

void Outbox::push(SendRequest request, std::uint64_t record) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    const Tag tag = request.tag;
    const Order order{request.key, sequence_++};
    inherit_key(tag, request.key);
    by_tag_[tag].push_back(order);
    queue_.emplace(order, Outgoing{std::move(request), record, order});
  }
  queued_.notify_all();
}

// Messages of equal tag keep their order because none of them has a larger key than a later one.
void Outbox::inherit_key(Tag tag, DeadlineKey key) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return;
  for (Order& order : found->second) {
    if (order.first <= key) continue;
    auto node = queue_.extract(order);
    order.first = key;
    node.key() = order;
    node.mapped().order = order;
    queue_.insert(std::move(node));
  }
}

void Outbox::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
    if (is_stopping_) return;
    Outgoing& message = queue_.begin()->second;
    lock.unlock();
    std::exception_ptr failure;
    try {
      send_segment(message);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) return fail(failure, lock);
    ++left_;
    if (message.offset == message.request.message->size()) finish(message, lock);
    moved_.notify_all();
  }
}

void Outbox::send_segment(Outgoing& message) {
  const std::size_t next =
      cut_segment(*message.request.message, message.offset, options_.segment_bytes, segment_);
  transport_.send(to_, message.request.tag, segment_, in(options_.deadline));
  message.offset = next;
  events_.segment_left();
}

// The message is told of while it is still in the queue, so that after flush() all were.
void Outbox::finish(const Outgoing& message, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  events_.left(message.request, message.record);
  lock.lock();
  const auto same_tag = by_tag_.find(message.request.tag);
  same_tag->second.pop_front();
  if (same_tag->second.empty()) by_tag_.erase(same_tag);
  queue_.erase(message.order);
}

void Outbox::fail(std::exception_ptr why, std::unique_lock<std::mutex>& lock) {
  failure_ = std::move(why);
  const auto dropped = std::move(queue_);
  queue_.clear();
  by_tag_.clear();
  lock.unlock();
  moved_.notify_all();
  for (const auto& [order, message] : dropped)
    events_.failed(message.record, message.request.message->size());
}

// A send that takes too long fails by itself. Twice its deadline is for a transport that forgets.
void Outbox::flush() {
  std::unique_lock lock(mutex_);
  ProgressDeadline deadline(2 * options_.deadline, left_);
  while (failure_ == nullptr && !queue_.empty()) {
    if (deadline.has_passed(left_))
      throw Timeout(to_, fmt::format("rank {}: {} messages to rank {} do not leave, {} first",
                                     transport_.rank(), queue_.size(), to_,
                                     to_text(queue_.begin()->second.request.tag)));
    moved_.wait_until(lock, deadline.until());
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Outbox::throw_failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

}  // namespace laconic
