// transport/inbox.hpp — messages that have arrived, until somebody asks for them.
//
// Every transport has one, so that order, deadlines and the loss of a peer mean
// the same in all of them. A transport's receiving side calls put() and
// lose(); its recv() is take().
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

class Inbox {
 public:
  Inbox(Rank self, int size);

  void put(Rank from, Tag tag, Bytes message);
  // No further message will come from `peer`, because of `why`. Only the first reason counts.
  void lose(Rank peer, const std::string& why);
  // From now on everybody who waits, or would, gets PeerLost about this rank itself.
  void close();

  Bytes take(Rank from, Tag tag, Deadline deadline);    // throws PeerLost, Timeout
  std::optional<Bytes> try_take(Rank from, Tag tag);    // throws PeerLost
  std::optional<std::string> loss_of(Rank peer) const;  // why, if it was lost
  void require_present(Rank peer) const;                // throws PeerLost
  void on_arrival(std::function<void()> wake);

 private:
  std::optional<Bytes> take_now(Rank from, Tag tag);  // Requires: the lock
  void wake();

  const Rank self_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<Rank, Tag>, std::deque<Bytes>> messages_;
  std::vector<std::optional<std::string>> losses_;
  bool is_closed_ = false;
  std::mutex listener_mutex_;  // held during the call, so that on_arrival({}) waits for it
  std::function<void()> listener_;
};

}  // namespace laconic
