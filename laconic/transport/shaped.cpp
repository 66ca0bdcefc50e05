#include "laconic/transport/shaped.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/transport/decorator.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// One rate. `free_at_` is when the last byte so far will have left; the next message starts there,
// or now if that is past. Two things would make the rate lower than it is: sleeps last longer than
// they should, and a sender needs a moment to come back with its next message, for which the
// buffers of a real network make up. Both are given back: the message starts that much in the past.
// Idle time is not: never more is given back than was overslept, and kPause.
class Wire {
 public:
  // Waits until the message has left, and says when that was due; nothing when it cannot leave
  // before the deadline (waits until then) or the wire is closed.
  std::optional<Time> carry(std::chrono::nanoseconds duration, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const Time now = Clock::now();
    const Time end = start(now) + duration;
    if (end > deadline) {
      closing_.wait_until(lock, deadline, [&] { return is_closed_; });
      return std::nullopt;
    }
    free_at_ = end;
    end > now ? wait_until(end, lock) : let_go(now, std::min(overslept_, now - end));
    if (is_closed_) return std::nullopt;
    return end;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    closing_.notify_all();
  }

 private:
  static constexpr std::chrono::microseconds kPause{100};

  Time start(Time now) const {
    if (free_at_ >= now || waiting_ > 0) return free_at_;
    const Clock::duration pause = now - let_go_at_;
    return pause < kPause ? std::max(free_at_, now - overslept_ - pause) : now;
  }

  void wait_until(Time end, std::unique_lock<std::mutex>& lock) {
    ++waiting_;
    closing_.wait_until(lock, end, [&] { return is_closed_; });
    --waiting_;
    const Time now = Clock::now();
    let_go(now, now - end);
  }

  void let_go(Time now, Clock::duration overslept) {
    let_go_at_ = now;
    overslept_ = overslept;
  }

  std::mutex mutex_;
  std::condition_variable closing_;
  Time free_at_ = Clock::now();
  Time let_go_at_{};              // the last sender
  Clock::duration overslept_{0};  // and not given back yet
  int waiting_ = 0;
  bool is_closed_ = false;
};

struct Travelling {
  Time due;
  Tag tag = 0;
  Bytes message;
  Deadline deadline;
};

// The way to one receiver: messages in the order they left their wire, each until its time has
// come.
class Lane {
 public:
  Lane(Transport& below, Rank to, const LinkShape& shape, Key key)
      : below_(below), to_(to), shape_(shape), key_(key), thread_([this] { deliver(); }) {}
  ~Lane() { drain(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // What became of the messages before, if it was bad.
  void require_whole() {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  void add(Time left_at, Tag tag, ByteView message, Deadline deadline) {
    const std::lock_guard lock(mutex_);
    last_due_ = std::max(last_due_, left_at + shape_.latency + next_jitter());
    // The deadline was for leaving; handing over comes later and may take a while too.
    const Deadline handed_over = std::max(deadline, last_due_ + std::chrono::seconds(10));
    queue_.push_back({last_due_, tag, copy_of(message), handed_over});
    changed_.notify_one();
  }

  // Delivers what is left, in its time.
  void drain() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::chrono::nanoseconds next_jitter() {
    const std::chrono::duration<double, std::nano> most = shape_.jitter;
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(uniform_at(key_, count_++) * most.count()));
  }

  void deliver() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Time due = queue_.front().due;
      while (Clock::now() < due) changed_.wait_until(lock, due);
      const Travelling arrived = std::move(queue_.front());
      queue_.pop_front();
      if (failure_ != nullptr) continue;
      lock.unlock();
      std::exception_ptr failure = hand_over(arrived);
      lock.lock();
      failure_ = std::move(failure);
    }
  }

  std::exception_ptr hand_over(const Travelling& arrived) {
    try {
      below_.send(to_, arrived.tag, arrived.message, arrived.deadline);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  Transport& below_;
  const Rank to_;
  const LinkShape shape_;
  const Key key_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Travelling> queue_;
  Time last_due_{};
  std::uint64_t count_ = 0;
  std::exception_ptr failure_;
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses all the others
};

class Shaped final : public Decorator {
 public:
  Shaped(std::unique_ptr<Transport> below, const ShapeSpec& spec)
      : Decorator("shaped", std::move(below)),
        spec_(spec),
        wires_(static_cast<std::size_t>(below_->size())),
        lanes_(static_cast<std::size_t>(below_->size())) {
    for (Rank to = 0; to < size(); ++to)
      if (to != rank()) lanes_[static_cast<std::size_t>(to)] = make_lane(to);
  }
  ~Shaped() override { close(); }

  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    if (to == rank()) return below_->send(to, tag, message, deadline);
    Lane& lane = *lanes_.at(static_cast<std::size_t>(to));
    lane.require_whole();
    const LinkShape& shape = shape_of(spec_, rank(), to);
    const auto left_at = leave(shape, to, message.size(), deadline);
    if (is_closed_) throw PeerLost(rank(), fmt::format("rank {} has closed its transport", rank()));
    if (!left_at)
      throw Timeout(to, fmt::format("rank {} could not send {} ({} bytes) to rank {} in time",
                                    rank(), to_text(tag), message.size(), to));
    lane.add(*left_at, tag, message, deadline);
  }

  void close() override {
    const std::lock_guard lock(closing_);
    if (is_closed_.exchange(true)) return;
    for (Wire& wire : wires_) wire.close();
    for (const auto& lane : lanes_)
      if (lane != nullptr) lane->drain();
    below_->close();
  }

 private:
  std::unique_ptr<Lane> make_lane(Rank to) {
    const Key key = derive(key_of(spec_.seed), static_cast<std::uint64_t>(rank()),
                           static_cast<std::uint64_t>(to));
    return std::make_unique<Lane>(*below_, to, shape_of(spec_, rank(), to), key);
  }

  std::optional<Time> leave(const LinkShape& shape, Rank to, std::size_t bytes, Deadline deadline) {
    if (shape.bits_per_second == 0) return Clock::now();
    Wire& wire = wires_[spec_.egress == Egress::host ? 0 : static_cast<std::size_t>(to)];
    return wire.carry(time_on_wire(shape, bytes), deadline);
  }

  const ShapeSpec spec_;
  std::vector<Wire> wires_;                   // by receiver; one alone for egress=host
  std::vector<std::unique_ptr<Lane>> lanes_;  // by receiver
  std::mutex closing_;
  std::atomic<bool> is_closed_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_shaped(std::unique_ptr<Transport> transport,
                                       const ShapeSpec& spec) {
  const Problems problems = check(spec, transport->size());
  LACONIC_ASSERT(problems.empty(), to_text(problems));
  return std::make_unique<Shaped>(std::move(transport), spec);
}

}  // namespace laconic
