#include "laconic/transport/inbox.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

std::size_t Inbox::HashOfAddress::operator()(const Address& address) const {
  // Tags differ in few bits, here and there: multiplied and folded, each reaches the low ones.
  const std::uint64_t mixed =
      (address.tag ^ static_cast<std::uint64_t>(address.from) << 48) * 0x9e3779b97f4a7c15u;
  return mixed ^ mixed >> 32;
}

Inbox::Inbox(Rank self, int size) : self_(self), losses_(static_cast<std::size_t>(size)) {}

void Inbox::put(Rank from, Tag tag, Bytes message) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    held_bytes_ += message.size();
    most_held_bytes_ = std::max(most_held_bytes_, held_bytes_);
    messages_[{from, tag}].push_back(std::move(message));
    // All who wait for it, not one: one may have been woken already for the message before.
    for (Waiter& waiter : waiters_)
      if (waiter.address == Address{from, tag}) waiter.served.notify_one();
  }
  call_listener();
}

void Inbox::lose(Rank peer, const std::string& why, End end) {
  {
    const std::lock_guard lock(mutex_);
    auto& loss = losses_.at(static_cast<std::size_t>(peer));
    if (loss || is_closed_) return;
    loss = why;
    if (end == End::death && !first_death_) first_death_ = peer;
    wake_all();
  }
  call_listener();
}

std::optional<PeerLost> Inbox::death() const {
  const std::lock_guard lock(mutex_);
  if (!first_death_) return std::nullopt;
  return PeerLost(*first_death_, fmt::format("rank {} is lost: {}", *first_death_,
                                             *losses_[static_cast<std::size_t>(*first_death_)]));
}

void Inbox::close() {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    messages_.clear();
    held_bytes_ = 0;
    wake_all();
  }
  call_listener();
}

void Inbox::wake_all() {
  for (Waiter& waiter : waiters_) waiter.served.notify_one();
}

void Inbox::call_listener() {
  const std::lock_guard lock(listener_mutex_);
  if (listener_) listener_();
}

void Inbox::refuse_if_gone(Rank peer) const {
  if (is_closed_) throw PeerLost(self_, fmt::format("rank {} has closed its transport", self_));
  if (const auto& loss = losses_.at(static_cast<std::size_t>(peer)))
    throw PeerLost(peer, fmt::format("rank {} is lost: {}", peer, *loss));
}

std::optional<Bytes> Inbox::take_now(const Address& address) {
  const auto found = messages_.find(address);
  if (found == messages_.end()) {
    refuse_if_gone(address.from);
    return std::nullopt;
  }
  Bytes message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  held_bytes_ -= message.size();
  return message;
}

void Inbox::wait(const Address& address, Deadline deadline, std::unique_lock<std::mutex>& lock) {
  const auto self = waiters_.emplace(waiters_.end());
  self->address = address;
  self->served.wait_until(lock, deadline);
  waiters_.erase(self);
}

Bytes Inbox::take(Rank from, Tag tag, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::optional<Bytes> message = take_now({from, tag})) return std::move(*message);
    if (std::chrono::steady_clock::now() >= deadline)
      throw Timeout(from, fmt::format("rank {} waited in vain for {} from rank {}", self_,
                                      to_text(tag), from));
    wait({from, tag}, deadline, lock);
  }
}

std::optional<Bytes> Inbox::try_take(Rank from, Tag tag) {
  const std::lock_guard lock(mutex_);
  return take_now({from, tag});
}

std::optional<std::string> Inbox::loss_of(Rank peer) const {
  const std::lock_guard lock(mutex_);
  return losses_.at(static_cast<std::size_t>(peer));
}

std::uint64_t Inbox::most_held_bytes() const {
  const std::lock_guard lock(mutex_);
  return most_held_bytes_;
}

void Inbox::require_present(Rank peer) const {
  const std::lock_guard lock(mutex_);
  refuse_if_gone(peer);
}

void Inbox::on_arrival(std::function<void()> wake) {
  const std::lock_guard lock(listener_mutex_);
  listener_ = std::move(wake);
}

}  // namespace laconic
