// engine/outbox.hpp — the messages of one rank to one peer, and the thread that sends them.
//
// The smallest key first, equal keys in the order of queuing; looked at again
// before every segment. See engine/engine.hpp for what that promises.
//
// A message costs two ranks several switches between threads. Where links are so fast
// that this counts, short messages that wait are handed over together, up to a segment of
// them. They arrive together too, the first no sooner than the last; so how many is
// told by the width of the window, which is narrow where a link is slow.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/engine/engine.hpp"

namespace laconic {

class Outbox {
 public:
  // Called from the outbox's thread, without its lock.
  struct Events {
    std::function<void()> segment_left;
    std::function<void(const SendRequest&, std::uint64_t record)> left;
    std::function<void(std::uint64_t record, std::uint64_t bytes)> failed;
  };

  Outbox(Transport& transport, Rank to, const EngineOptions& options, const Window& window,
         Events events);
  ~Outbox();

  // `record` is handed to the events. Throws why an earlier send failed, if one did.
  void push(SendRequest request, std::uint64_t record);
  void start();  // what waits for more
  void flush();
  void throw_failure() const;

 private:
  using Order = std::pair<DeadlineKey, std::uint64_t>;  // key, sequence of queuing
  struct Outgoing {
    SendRequest request;
    std::uint64_t record = 0;
    Order order;
    std::size_t offset = 0;  // of the next segment; the thread's own
  };

  void work();
  std::size_t batch_bytes() const;
  std::vector<Outgoing*> next_batch();
  void inherit_key(Tag tag, DeadlineKey key);
  void send_batch(std::span<Outgoing* const> batch);
  void finish(const Outgoing& message, std::unique_lock<std::mutex>& lock);
  void fail(std::exception_ptr why, std::unique_lock<std::mutex>& lock);

  Transport& transport_;
  const Rank to_;
  const EngineOptions options_;
  const Window& window_;
  const Events events_;
  // The thread's own.
  std::vector<Bytes> segments_;
  std::vector<TaggedMessage> tagged_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable queued_, moved_;
  std::map<Order, Outgoing> queue_;          // nodes stay where they are while keys change
  std::map<Tag, std::deque<Order>> by_tag_;  // of what is in the queue, in sequence
  bool waits_for_more_ = false;
  std::size_t waiting_bytes_ = 0;  // for that
  std::uint64_t sequence_ = 0;
  std::uint64_t left_ = 0;  // segments
  bool is_stopping_ = false;
  std::exception_ptr failure_;

  std::thread thread_;
};

}  // namespace laconic
