#include "laconic/transport/inbox.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

Inbox::Inbox(Rank self, int size) : self_(self), losses_(static_cast<std::size_t>(size)) {}

void Inbox::put(Rank from, Tag tag, Bytes message) {
  {
    const std::lock_guard lock(mutex_);
    messages_[{from, tag}].push_back(std::move(message));
  }
  wake();
}

void Inbox::lose(Rank peer, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    auto& loss = losses_.at(static_cast<std::size_t>(peer));
    if (loss) return;
    loss = why;
  }
  wake();
}

void Inbox::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  wake();
}

void Inbox::wake() {
  arrived_.notify_all();
  const std::lock_guard lock(listener_mutex_);
  if (listener_) listener_();
}

std::optional<Bytes> Inbox::take_now(Rank from, Tag tag) {
  const auto found = messages_.find({from, tag});
  if (found != messages_.end()) {
    Bytes message = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) messages_.erase(found);
    return message;
  }
  if (is_closed_) throw PeerLost(self_, fmt::format("rank {} has closed its transport", self_));
  if (const auto& loss = losses_.at(static_cast<std::size_t>(from)))
    throw PeerLost(from, fmt::format("rank {} is lost: {}", from, *loss));
  return std::nullopt;
}

Bytes Inbox::take(Rank from, Tag tag, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::optional<Bytes> message = take_now(from, tag)) return std::move(*message);
    if (arrived_.wait_until(lock, deadline) == std::cv_status::timeout) {
      if (std::optional<Bytes> message = take_now(from, tag)) return std::move(*message);
      throw Timeout(from, fmt::format("rank {} waited in vain for {} from rank {}", self_,
                                      to_text(tag), from));
    }
  }
}

std::optional<Bytes> Inbox::try_take(Rank from, Tag tag) {
  const std::lock_guard lock(mutex_);
  return take_now(from, tag);
}

std::optional<std::string> Inbox::loss_of(Rank peer) const {
  const std::lock_guard lock(mutex_);
  return losses_.at(static_cast<std::size_t>(peer));
}

void Inbox::require_present(Rank peer) const {
  const std::lock_guard lock(mutex_);
  if (is_closed_) throw PeerLost(self_, fmt::format("rank {} has closed its transport", self_));
  if (const auto& loss = losses_.at(static_cast<std::size_t>(peer)))
    throw PeerLost(peer, fmt::format("rank {} is lost: {}", peer, *loss));
}

void Inbox::on_arrival(std::function<void()> wake) {
  const std::lock_guard lock(listener_mutex_);
  listener_ = std::move(wake);
}

}  // namespace laconic
