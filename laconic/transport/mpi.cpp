#include "laconic/transport/mpi.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/transport/mpi_wires.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kWindow = std::size_t{1} << 20;  // bytes to one rank that have not left
constexpr std::size_t kLargest = (std::size_t{1} << 31) - 1 - sizeof(Tag);  // MPI counts in int
constexpr std::size_t kSlice = std::size_t{1} << 26;  // floats of one native sum
constexpr std::chrono::seconds kPatience{10};         // for the leave of the others

// How long the thread sleeps when nothing moved, from one time to the next. MPI cuts a large
// message into pieces and moves one or two in each call: while one is under way we first ask again
// a few times.
constexpr int kAttempts = 20;
constexpr microseconds kShortest{20};
constexpr microseconds kLongestWhenBusy{100};  // a transfer is under way and needs us
constexpr microseconds kLongest{1000};

struct Outgoing {
  Rank to = 0;
  Bytes message;  // with its tag
  bool is_farewell = false;
};

struct Sum {
  std::vector<float> values;
  bool is_done = false;
};

class Mpi final : public Transport {
 public:
  Mpi(int* argc, char*** argv) {
    std::promise<void> started;
    thread_ = std::thread([&, this] { run(argc, argv, started); });
    try {
      started.get_future().get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  ~Mpi() override {
    close();
    {
      const std::lock_guard lock(mutex_);
      give_up_at_ = Clock::now() + kPatience;
      posted_.notify_one();
    }
    thread_.join();
  }

  Rank rank() const override { return wires_->rank(); }
  int size() const override { return wires_->size(); }
  std::string_view name() const override { return "mpi"; }

  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    LACONIC_ASSERT(message.size() <= kLargest, fmt::format("{} bytes", message.size()));
    inbox_->require_present(to);
    if (to == rank()) return inbox_->put(to, tag, copy_of(message));
    Bytes copy = with_tag(message, tag);
    std::unique_lock lock(mutex_);
    std::size_t& unsent = unsent_.at(static_cast<std::size_t>(to));
    unsent += copy.size();
    post({to, std::move(copy)});
    const auto may_return = [&] { return is_over_ || unsent <= kWindow; };
    const bool is_in_time = moved_.wait_until(lock, deadline, may_return);
    lock.unlock();
    inbox_->require_present(to);
    if (!is_in_time)
      throw Timeout(to, fmt::format("rank {} could not send {} ({} bytes) to rank {} in time",
                                    rank(), to_text(tag), message.size(), to));
  }

  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return inbox_->take(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return inbox_->try_take(from, tag); }
  std::optional<PeerLost> death() const override { return inbox_->death(); }
  std::uint64_t most_held_bytes() const override { return inbox_->most_held_bytes(); }
  void on_arrival(std::function<void()> wake) override { inbox_->on_arrival(std::move(wake)); }

  bool has_sum() const override { return true; }
  void sum(std::span<float> values, Deadline deadline) override {
    for (std::size_t at = 0; at < values.size(); at += kSlice)
      sum_slice(values.subspan(at, std::min(kSlice, values.size() - at)), deadline);
  }

  void close() override {
    inbox_->close();
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    is_closed_ = is_over_ = true;
    for (Rank to = 0; to < size(); ++to)
      if (to != rank()) post({.to = to, .is_farewell = true});
    moved_.notify_all();
  }

 private:
  // Requires: the lock.
  void post(Outgoing outgoing) {
    if (!is_closed_ || outgoing.is_farewell) outbox_.push_back(std::move(outgoing));
    posted_.notify_one();
  }

  // Over a copy: should the deadline pass, MPI still has it in its hands.
  void sum_slice(std::span<float> values, Deadline deadline) {
    const auto sum = std::make_shared<Sum>();
    sum->values.assign(values.begin(), values.end());
    std::unique_lock lock(mutex_);
    if (!is_over_) sums_.push_back(sum);
    posted_.notify_one();
    const auto is_decided = [&] { return sum->is_done || is_over_; };
    if (!moved_.wait_until(lock, deadline, is_decided))
      throw Timeout(-1, fmt::format("rank {} waited in vain for the sum of {} numbers", rank(),
                                    values.size()));
    if (!sum->is_done) throw PeerLost(rank(), fmt::format("rank {} is no longer there", rank()));
    std::ranges::copy(sum->values, values.begin());
  }

  // --- the thread that talks to MPI; nobody else touches wires_, but for rank and size.

  void run(int* argc, char*** argv, std::promise<void>& started) {
    prctl(PR_SET_TIMERSLACK, 1000);  // 1 us: sleeps of 20 us would otherwise take 70
    try {
      wires_ = std::make_unique<MpiWires>(argc, argv);
      inbox_ = std::make_unique<Inbox>(rank(), size());
      unsent_.resize(static_cast<std::size_t>(size()));
    } catch (...) {
      return started.set_exception(std::current_exception());
    }
    started.set_value();
    try {
      while (!may_end()) turn();
      if (wires_->have_all_left() && !wires_->is_busy()) wires_->finalise();
    } catch (const std::exception& e) {
      lose_all(e.what());
    }
  }

  bool may_end() {
    const std::lock_guard lock(mutex_);
    if (!give_up_at_) return false;
    const bool is_settled = outbox_.empty() && !wires_->is_busy() && wires_->have_all_left();
    return is_settled || Clock::now() >= *give_up_at_;
  }

  void turn() {
    const bool has_begun = begin_posted();
    const bool has_moved = wires_->progress(
        *inbox_, [&](Rank to, std::size_t bytes) { note_sent(to, bytes); }, [&] { note_sum(); });
    if (has_begun || has_moved) {
      pause_ = kShortest;
      idle_turns_ = 0;
    } else if (++idle_turns_ > kAttempts || !wires_->is_busy()) {
      sleep();
    }
  }

  bool begin_posted() {
    std::deque<Outgoing> outbox;
    {
      const std::lock_guard lock(mutex_);
      outbox.swap(outbox_);
      if (active_sum_ == nullptr && !sums_.empty()) {
        active_sum_ = sums_.front();
        sums_.pop_front();
        wires_->begin_sum(active_sum_->values);
      }
    }
    for (Outgoing& next : outbox)
      if (next.is_farewell)
        wires_->begin_farewell(next.to);
      else
        wires_->begin_send(next.to, std::move(next.message));
    return !outbox.empty();
  }

  void note_sent(Rank to, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    unsent_[static_cast<std::size_t>(to)] -= bytes;
    moved_.notify_all();
  }

  void note_sum() {
    const std::lock_guard lock(mutex_);
    active_sum_->is_done = true;
    active_sum_.reset();
    moved_.notify_all();
  }

  void sleep() {
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, pause_, [&] {
      return !outbox_.empty() || (active_sum_ == nullptr && !sums_.empty());
    });
    pause_ = std::min(2 * pause_, wires_->is_busy() ? kLongestWhenBusy : kLongest);
  }

  void lose_all(const std::string& why) {
    for (Rank peer = 0; peer < size(); ++peer)
      if (peer != rank()) inbox_->lose(peer, why);
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    moved_.notify_all();
  }

  std::unique_ptr<MpiWires> wires_;
  std::unique_ptr<Inbox> inbox_;
  std::mutex mutex_;
  std::condition_variable posted_;  // for the thread
  std::condition_variable moved_;   // for those who wait for it
  std::deque<Outgoing> outbox_;
  std::vector<std::size_t> unsent_;  // bytes, by receiver
  std::deque<std::shared_ptr<Sum>> sums_;
  std::shared_ptr<Sum> active_sum_;
  std::optional<Clock::time_point> give_up_at_;  // set when this object is being destroyed
  bool is_closed_ = false;
  bool is_over_ = false;  // closed, or MPI has failed
  microseconds pause_ = kShortest;
  int idle_turns_ = 0;
  std::thread thread_;
};

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<Transport> make_mpi(int* argc, char*** argv) {
  return std::make_unique<Mpi>(argc, argv);
}

}  // namespace laconic
