#include "laconic/rendezvous/gloo_peer.hpp"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/gloo_context.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {
namespace {

constexpr std::size_t kFragmentBytes = kFragmentHeaderBytes + kFragmentPayload;
constexpr std::uint64_t kSentinelSlot = 1'000'000;
// What may wait here for the socket. The engine sends the urgent first, and only what it has not
// yet handed over can be overtaken; two fragments keep a link busy.
constexpr std::size_t kStagedBytes = 2 * kFragmentBytes;
// Posting a receive wakes the peer, so small fragments are answered together.
constexpr std::uint64_t kPostTogether = 4;
constexpr std::size_t kPostBytes = 64 * 1024;
// gloo adds it to a clock that counts nanoseconds, so it cannot be much longer.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365 * 10);

}  // namespace

std::string gloo_wire() {
  return fmt::format("laconic gloo 1, {} slots of {} bytes", kSlots, kFragmentBytes);
}

GlooPeer::GlooPeer(gloo::Context& context, Rank self, Rank peer, Inbox& inbox, Watchdog& watchdog,
                   std::function<void()> on_crash)
    : self_(self),
      peer_(peer),
      inbox_(inbox),
      watchdog_(watchdog),
      on_crash_(std::move(on_crash)),
      memory_((kSlots + kSendSlots) * kFragmentBytes + 1),
      buffer_(context.createUnboundBuffer(memory_.data(), memory_.size())) {
  bell_ = watchdog_.add([this] { buffer_->abortWaitSend(); });
  if (post_first_receives()) receiver_ = std::thread([this] { receive(); });
}

GlooPeer::~GlooPeer() {
  stop();
  watchdog_.remove(bell_);
}

void GlooPeer::stop() {
  if (!receiver_.joinable()) return;
  buffer_->abortWaitRecv();
  receiver_.join();
}

std::byte* GlooPeer::receive_slot(std::uint64_t fragment) {
  return memory_.data() + fragment % kSlots * kFragmentBytes;
}

std::byte* GlooPeer::send_slot(std::uint64_t fragment) {
  return memory_.data() + (kSlots + fragment % kSendSlots) * kFragmentBytes;
}

std::size_t GlooPeer::offset_of(const std::byte* place) const {
  return static_cast<std::size_t>(place - memory_.data());
}

// ---- sending

void GlooPeer::send(Tag tag, ByteView message, Deadline deadline) {
  take_turn(deadline);
  try {
    std::size_t offset = 0;
    do {
      const ByteView part =
          message.subspan(offset, std::min(kFragmentPayload, message.size() - offset));
      wait_for_room(tag, sizeof(Header) + part.size(), deadline);
      post({Kind::message, tag, message.size(), offset}, part);
      offset += part.size();
    } while (offset < message.size());
  } catch (...) {
    end_turn();
    throw;
  }
  end_turn();
}

void GlooPeer::take_turn(Deadline deadline) {
  std::unique_lock lock(state_mutex_);
  const bool is_free = state_changed_.wait_until(
      lock, deadline, [&] { return !has_turn_ || is_leaving_ || is_seen_; });
  if (!is_free)
    throw Timeout(peer_, fmt::format("rank {} could not begin to send to rank {}: an earlier "
                                     "message has not left",
                                     self_, peer_));
  if (has_turn_ || is_leaving_ || is_seen_) {
    lock.unlock();
    inbox_.require_present(peer_);
    throw PeerLost(self_, fmt::format("rank {} has closed its transport", self_));
  }
  has_turn_ = true;
}

void GlooPeer::end_turn() {
  {
    const std::lock_guard lock(state_mutex_);
    has_turn_ = false;
  }
  state_changed_.notify_one();
}

bool GlooPeer::has_room(std::size_t bytes) {
  const std::lock_guard lock(posting_);
  if (posted_ == completed_) return true;
  return posted_ - completed_ < kSlots && staged_bytes_ + bytes <= kStagedBytes;
}

void GlooPeer::wait_for_room(Tag tag, std::size_t bytes, Deadline deadline) {
  while (!has_room(bytes)) {
    watchdog_.set(bell_, deadline);
    bool is_done = false;
    try {
      is_done = buffer_->waitSend(kForever);
    } catch (const std::exception& error) {
      watchdog_.clear(bell_);
      connection_broke(error.what());
    }
    watchdog_.clear(bell_);
    if (is_done)
      note_completion();
    else
      refuse_to_wait(tag, deadline);
  }
}

void GlooPeer::note_completion() {
  const std::lock_guard lock(posting_);
  staged_bytes_ -= sizes_[completed_++ % kSendSlots];
}

// The wait was let go: because the peer is lost, because we leave, or because it is time; or late,
// by the watchdog of an earlier wait.
void GlooPeer::refuse_to_wait(Tag tag, Deadline deadline) {
  inbox_.require_present(peer_);
  if (std::chrono::steady_clock::now() < deadline) return;
  throw Timeout(peer_, fmt::format("rank {} could not send {} to rank {} in time: it takes nothing",
                                   self_, to_text(tag), peer_));
}

void GlooPeer::post(const Header& header, ByteView payload) {
  const std::lock_guard lock(posting_);
  std::byte* const place = send_slot(posted_);
  std::memcpy(place, &header, sizeof header);
  if (!payload.empty()) std::memcpy(place + sizeof header, payload.data(), payload.size());
  try {
    buffer_->send(peer_, posted_ % kSlots, offset_of(place), sizeof header + payload.size());
  } catch (const std::exception& error) {
    connection_broke(error.what());
  }
  const std::size_t bytes = sizeof header + payload.size();
  sizes_[posted_++ % kSendSlots] = bytes;
  staged_bytes_ += bytes;
}

void GlooPeer::say(Kind kind) {
  try {
    post({kind, 0, 0, 0}, {});
  } catch (const PeerLost&) {  // then there is nobody to tell
  }
}

void GlooPeer::connection_broke(const std::string& why) {
  inbox_.lose(peer_, without_place(why));
  inbox_.require_present(peer_);
  throw PeerLost(peer_, fmt::format("rank {} is lost: {}", peer_, without_place(why)));
}

// ---- leaving

void GlooPeer::leave() {
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(is_leaving_, true)) return;
  }
  state_changed_.notify_all();
  buffer_->abortWaitSend();
  say(Kind::goodbye);
}

bool GlooPeer::wait_until_seen(Deadline deadline) {
  std::unique_lock lock(state_mutex_);
  return state_changed_.wait_until(lock, deadline, [&] { return is_seen_; });
}

void GlooPeer::mark_seen() {
  {
    const std::lock_guard lock(state_mutex_);
    is_seen_ = true;
  }
  state_changed_.notify_all();
}

// ---- receiving

void GlooPeer::post_receive(std::uint64_t fragment) {
  buffer_->recv(peer_, fragment % kSlots, offset_of(receive_slot(fragment)), kFragmentBytes);
}

// Before anything is sent: whoever hears from us can then answer without waiting for credits.
bool GlooPeer::post_first_receives() {
  try {
    buffer_->recv(peer_, kSentinelSlot, memory_.size() - 1, 1);
    for (std::uint64_t fragment = 0; fragment < kSlots; ++fragment) post_receive(fragment);
    return true;
  } catch (const std::exception& error) {
    lose(without_place(error.what()));
    return false;
  }
}

void GlooPeer::receive() {
  std::uint64_t posted = 0;  // again, of those received
  std::size_t unposted_bytes = 0;
  try {
    for (std::uint64_t fragment = 0;; ++fragment) {
      if (!buffer_->waitRecv(kForever)) return;
      unposted_bytes += take_fragment({receive_slot(fragment), kFragmentBytes});
      if (fragment + 1 - posted < kPostTogether && unposted_bytes < kPostBytes) continue;
      while (posted <= fragment) post_receive(posted++);
      unposted_bytes = 0;
    }
  } catch (const std::exception& error) {
    lose(without_place(error.what()));
  }
}

void GlooPeer::lose(const std::string& why) {
  const bool is_crash = !inbox_.loss_of(peer_);
  inbox_.lose(peer_, why);
  mark_seen();
  buffer_->abortWaitSend();  // gloo forgets a fragment of which half has gone
  if (is_crash) on_crash_();
}

std::size_t GlooPeer::take_fragment(ByteView fragment) {
  const auto header = get<Header>(fragment, 0);
  switch (header.kind) {
    case Kind::message: return take_part(header, fragment.subspan(sizeof header));
    case Kind::goodbye:
      inbox_.lose(peer_, "it closed its transport", Inbox::End::goodbye);
      say(Kind::goodbye_seen);
      return 0;
    case Kind::goodbye_seen: mark_seen(); return 0;
  }
  throw WireError(0, "fragment.kind", fmt::format("{} is none", static_cast<int>(header.kind)));
}

std::size_t GlooPeer::take_part(const Header& header, ByteView payload) {
  if (header.offset == 0) {
    assembled_.clear();
    assembled_.resize(header.message_bytes);
    assembled_bytes_ = 0;
  }
  if (header.offset != assembled_bytes_ || header.message_bytes != assembled_.size())
    throw WireError(24, "fragment.offset",
                    fmt::format("{} does not follow {} of {}", header.offset, assembled_bytes_,
                                assembled_.size()));
  const std::size_t bytes = std::min(payload.size(), assembled_.size() - assembled_bytes_);
  if (bytes > 0) std::memcpy(assembled_.data() + assembled_bytes_, payload.data(), bytes);
  assembled_bytes_ += bytes;
  if (assembled_bytes_ == assembled_.size())
    inbox_.put(peer_, header.tag, std::exchange(assembled_, {}));
  return bytes;
}

}  // namespace laconic
