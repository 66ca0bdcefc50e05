// transport/inbox.hpp — messages that have arrived, until somebody asks for them.
//
// Every transport has one, so that order, deadlines and the loss of a peer mean
// the same in all of them. A transport's receiving side calls put() and
// lose(); its recv() is take().
//
// What one could get wrong: a deadline in the past still delivers what has
// arrived, and so does a lost peer; a closed inbox delivers nothing, keeps
// nothing and takes nothing in.
//
// A message wakes those who wait for it and nobody else, so that a rank may have
// many threads that wait for different things.
//
// Thread-safe. Requires: nobody is inside when it is destroyed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

class Inbox {
 public:
  Inbox(Rank self, int size);

  void put(Rank from, Tag tag, Bytes message);  // into a closed inbox: dropped
  // No further message will come from `peer`, because of `why`. Only the first reason counts.
  enum class End : std::uint8_t { goodbye, death };
  void lose(Rank peer, const std::string& why, End end = End::death);
  std::optional<PeerLost> death() const;  // see Transport
  // From now on everybody who waits, or would, gets PeerLost about this rank itself.
  void close();

  Bytes take(Rank from, Tag tag, Deadline deadline);    // throws PeerLost, Timeout
  std::optional<Bytes> try_take(Rank from, Tag tag);    // throws PeerLost
  std::optional<std::string> loss_of(Rank peer) const;  // why, if it was lost
  void require_present(Rank peer) const;                // throws PeerLost
  std::uint64_t most_held_bytes() const;                // see Transport
  // See Transport::on_arrival. Requires: not called from `wake`.
  void on_arrival(std::function<void()> wake);

 private:
  struct Address {
    Rank from = 0;
    Tag tag = 0;
    bool operator==(const Address&) const = default;
  };
  struct HashOfAddress {
    std::size_t operator()(const Address& address) const;
  };
  struct Waiter {
    Address address;
    std::condition_variable served;
  };

  // Require: the lock.
  std::optional<Bytes> take_now(const Address& address);
  void refuse_if_gone(Rank peer) const;
  void wait(const Address& address, Deadline deadline, std::unique_lock<std::mutex>& lock);
  void wake_all();

  void call_listener();

  const Rank self_;
  mutable std::mutex mutex_;
  // Almost always one message per address, thousands of addresses: a list costs least.
  std::unordered_map<Address, std::list<Bytes>, HashOfAddress> messages_;
  std::uint64_t held_bytes_ = 0;  // of them all
  std::uint64_t most_held_bytes_ = 0;
  std::list<Waiter> waiters_;  // one per thread that waits: few
  std::vector<std::optional<std::string>> losses_;
  std::optional<Rank> first_death_;
  bool is_closed_ = false;
  std::mutex listener_mutex_;  // held during the call, so that on_arrival({}) waits for it
  std::function<void()> listener_;
};

}  // namespace laconic
