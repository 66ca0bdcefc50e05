// engine/test_gate.hpp — a transport whose sends wait for permission, and are written down. For
// tests.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {

class Gate final : public Transport {
 public:
  explicit Gate(Transport& under) : under_(under) {}

  Rank rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  std::string_view name() const override { return "gate"; }

  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    const TaggedMessage one{tag, message};
    send_all(to, {&one, 1}, deadline);
  }
  // Needs one permission, and the first tag is written down.
  void send_all(Rank to, std::span<const TaggedMessage> messages, Deadline deadline) override {
    {
      std::unique_lock lock(mutex_);
      asked_.push_back(messages.front().tag);
      changed_.notify_all();
      if (!changed_.wait_until(lock, deadline, [&] { return permits_ > 0; }))
        throw Timeout(to, "the gate stayed shut");
      --permits_;
    }
    under_.send_all(to, messages, deadline);
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return under_.recv(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return under_.try_recv(from, tag); }
  void on_arrival(std::function<void()> wake) override { under_.on_arrival(std::move(wake)); }
  void close() override { under_.close(); }
  std::optional<PeerLost> death() const override {
    return dead_ < 0 ? std::nullopt : std::optional(PeerLost(dead_, "it died"));
  }

  void let_die(Rank peer) { dead_ = peer; }  // for the eyes of whoever asks

  void let_pass(int segments) {
    {
      const std::lock_guard lock(mutex_);
      permits_ += segments;
    }
    changed_.notify_all();
  }
  // The tags of the first `count` segments, in the order in which they came to the gate.
  std::vector<Tag> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= count; });
    return asked_;
  }

 private:
  Transport& under_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int permits_ = 0;
  Rank dead_ = -1;
  std::vector<Tag> asked_;
};

}  // namespace laconic
