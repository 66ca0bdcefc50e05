#include "laconic/engine/outbox.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/engine/progress_deadline.hpp"

namespace laconic {

namespace {

constexpr std::size_t kMostTogether = 32;      // messages
constexpr std::uint64_t kWindowPerBatch = 32;  // a batch is at most this part of the window

}  // namespace

Outbox::Outbox(Transport& transport, Rank to, const EngineOptions& options, const Window& window,
               Events events)
    : transport_(transport),
      to_(to),
      options_(options),
      window_(window),
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
    waiting_bytes_ += request.message->size();
    waits_for_more_ = request.has_more && waiting_bytes_ < batch_bytes();
    queue_.emplace(order, Outgoing{std::move(request), record, order});
    if (waits_for_more_) return;
    waiting_bytes_ = 0;
  }
  queued_.notify_all();
}

void Outbox::start() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(waits_for_more_, false)) return;
    waiting_bytes_ = 0;
  }
  queued_.notify_all();
}

// What is handed over together, at most.
std::size_t Outbox::batch_bytes() const {
  return std::min<std::size_t>(options_.segment_bytes, window_.bytes() / kWindowPerBatch);
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
    waits_for_more_ = false;
    waiting_bytes_ = 0;
    const std::vector<Outgoing*> batch = next_batch();
    lock.unlock();
    std::exception_ptr failure;
    try {
      send_batch(batch);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) return fail(failure, lock);
    left_ += batch.size();
    for (const Outgoing* message : batch)
      if (message->offset == message->request.message->size()) finish(*message, lock);
    moved_.notify_all();
  }
}

// The next segment and, while there is room, the messages behind it.
std::vector<Outbox::Outgoing*> Outbox::next_batch() {
  std::vector<Outgoing*> batch;
  std::size_t room = batch_bytes();
  for (auto& [order, message] : queue_) {
    const std::size_t rest = message.request.message->size() - message.offset;
    if (!batch.empty() && (rest > room || batch.size() == kMostTogether)) break;
    batch.push_back(&message);
    if (rest >= room) break;
    room -= rest;
  }
  return batch;
}

void Outbox::send_batch(std::span<Outgoing* const> batch) {
  segments_.resize(std::max(segments_.size(), batch.size()));
  tagged_.clear();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SendRequest& request = batch[i]->request;
    batch[i]->offset =
        cut_segment(*request.message, batch[i]->offset, options_.segment_bytes, segments_[i]);
    tagged_.push_back({request.tag, segments_[i]});
  }
  transport_.send_all(to_, tagged_, in(options_.deadline));
  for (std::size_t i = 0; i < batch.size(); ++i) events_.segment_left();
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
  start();
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
