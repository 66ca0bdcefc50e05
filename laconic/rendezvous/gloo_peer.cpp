#include "laconic/rendezvous/gloo_peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/gloo_context.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {
namespace {

constexpr std::uint64_t kSentinelSlot = 1'000'000;

// The memory of a peer: slots to receive in, the ring to send from, a header for each goodbye, and
// one byte for the sentinel.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlotBytes = (kFragmentBytes + kPage - 1) / kPage * kPage;
constexpr std::size_t kRingOffset = kSlots * kSlotBytes;
constexpr std::size_t kGoodbyeOffset = kRingOffset + kStagedBytes;
constexpr std::size_t kSentinelOffset = kGoodbyeOffset + 2 * kFragmentHeaderBytes;

constexpr std::size_t slot_offset(std::uint64_t fragment) {
  return fragment % kSlots * kSlotBytes;
}

// Posting a receive wakes the peer, so small fragments are answered together.
constexpr std::uint64_t kPostTogether = 4;
constexpr std::size_t kPostBytes = 64 * 1024;
// A slot keeps so much between fragments, so that small ones cost no pages.
constexpr std::size_t kKeptBytes = kPage;

std::unique_ptr<GlooBuffer> make_buffer(GlooMesh& mesh, const SlotMemory& memory) {
  std::string error;
  auto buffer = mesh.make_buffer(memory.data(), memory.size(), error);
  if (!buffer) throw std::runtime_error(readable(error));
  return buffer;
}

}  // namespace

// Fragments leave in the order in which they came. So what is free is one piece between the newest
// and the oldest, or two: behind the newest, and before the oldest.
std::optional<std::size_t> StagingRing::place_for(std::size_t bytes) const {
  if (fragments_.empty()) return 0;
  const std::size_t newest_end = fragments_.back().end, oldest = fragments_.front().begin;
  const bool is_wrapped = fragments_.back().begin < oldest;
  const std::size_t limit = is_wrapped ? oldest : kStagedBytes;
  if (newest_end + bytes <= limit) return newest_end;
  if (!is_wrapped && bytes <= oldest) return 0;
  return std::nullopt;
}

std::string gloo_wire() {
  return fmt::format("laconic gloo 3, {} slots of {} bytes", kSlots, kFragmentBytes);
}

GlooPeer::GlooPeer(GlooMesh& mesh, Rank self, Rank peer, Inbox& inbox, Watchdog& watchdog,
                   std::atomic<int>& warm_slots, std::function<void()> on_crash)
    : self_(self),
      peer_(peer),
      inbox_(inbox),
      watchdog_(watchdog),
      warm_slots_(warm_slots),
      on_crash_(std::move(on_crash)),
      memory_(kSentinelOffset + 1),
      buffer_(make_buffer(mesh, memory_)) {
  bell_ = watchdog_.add([this] { buffer_->abort_wait_send(); });
  if (post_first_receives()) receiver_ = std::thread([this] { receive(); });
}

GlooPeer::~GlooPeer() {
  stop();
  watchdog_.remove(bell_);
}

void GlooPeer::stop() {
  if (!receiver_.joinable()) return;
  buffer_->abort_wait_recv();
  receiver_.join();
}

// ---- sending

void GlooPeer::send(std::span<const TaggedMessage> messages, Deadline deadline) {
  take_turn(deadline);
  try {
    send_in_turn(messages, deadline);
  } catch (...) {
    end_turn();
    throw;
  }
  end_turn();
}

// A part that does not fit into the fragment at hand begins a new one.
void GlooPeer::send_in_turn(std::span<const TaggedMessage> messages, Deadline deadline) {
  std::vector<Part> parts;
  std::size_t bytes = 0;
  const auto leave = [&] {
    send_fragment(parts, bytes, deadline);
    parts.clear();
    bytes = 0;
  };
  for (const auto& [tag, message] : messages) {
    std::size_t offset = 0;
    do {
      const ByteView payload =
          message.subspan(offset, std::min(kFragmentPayload, message.size() - offset));
      const std::size_t size = sizeof(Header) + payload.size();
      if (!parts.empty() && bytes + size > kFragmentBytes) leave();
      if (!parts.empty()) parts.back().header.kind = Kind::not_last;
      parts.push_back({{Kind::message, tag, message.size(), offset}, payload});
      bytes += size;
      offset += payload.size();
    } while (offset < message.size());
  }
  if (!parts.empty()) leave();
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

std::optional<std::size_t> GlooPeer::find_room(std::size_t bytes) {
  const std::lock_guard lock(posting_);
  if (staged_.count() >= kSlots) return std::nullopt;
  return staged_.place_for(bytes);
}

// Returns where in the ring.
std::size_t GlooPeer::wait_for_room(Tag tag, std::size_t bytes, Deadline deadline) {
  for (;;) {
    if (const auto place = find_room(bytes)) return *place;
    watchdog_.set(bell_, deadline);
    std::string error;
    const GlooWait wait = buffer_->wait_send(error);
    watchdog_.clear(bell_);
    switch (wait) {
      case GlooWait::done: note_completion(); break;
      case GlooWait::let_go: refuse_to_wait(tag, deadline); break;
      case GlooWait::failed: connection_broke(error);
    }
  }
}

void GlooPeer::note_completion() {
  const std::lock_guard lock(posting_);
  staged_.pop();
}

// The wait was let go: because the peer is lost, because we leave, or because it is time; or late,
// by the watchdog of an earlier wait.
void GlooPeer::refuse_to_wait(Tag tag, Deadline deadline) {
  inbox_.require_present(peer_);
  if (std::chrono::steady_clock::now() < deadline) return;
  throw Timeout(peer_, fmt::format("rank {} could not send {} to rank {} in time: it takes nothing",
                                   self_, to_text(tag), peer_));
}

void GlooPeer::send_fragment(std::span<const Part> parts, std::size_t bytes, Deadline deadline) {
  const std::size_t place = wait_for_room(parts.front().header.tag, bytes, deadline);
  const std::lock_guard lock(posting_);
  send_from(kRingOffset + place, parts, bytes);
  staged_.push(place, bytes);
}

// Requires: the lock of posting; `bytes` is the size of all parts with their headers.
void GlooPeer::send_from(std::size_t offset, std::span<const Part> parts, std::size_t bytes) {
  std::byte* place = memory_.data() + offset;
  for (const auto& [header, payload] : parts) {
    std::memcpy(place, &header, sizeof header);
    if (!payload.empty()) std::memcpy(place + sizeof header, payload.data(), payload.size());
    place += sizeof header + payload.size();
  }
  const std::string error = buffer_->send(peer_, posted_ % kSlots, offset, bytes);
  if (!error.empty()) connection_broke(error);
  ++posted_;
}

// Goodbyes do not wait for room: there is one of each kind at most, and each has its place.
void GlooPeer::say(Kind kind) {
  const std::size_t which = kind == Kind::goodbye ? 0 : 1;
  try {
    const std::lock_guard lock(posting_);
    const Part goodbye{{kind, 0, 0, 0}, {}};
    send_from(kGoodbyeOffset + which * kFragmentHeaderBytes, {&goodbye, 1}, sizeof goodbye.header);
    staged_.push(staged_.end(), 0);
  } catch (const PeerLost&) {  // then there is nobody to tell
  }
}

void GlooPeer::connection_broke(const std::string& why) {
  inbox_.lose(peer_, readable(why));
  inbox_.require_present(peer_);
  throw PeerLost(peer_, fmt::format("rank {} is lost: {}", peer_, readable(why)));
}

// ---- leaving

void GlooPeer::leave() {
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(is_leaving_, true)) return;
  }
  state_changed_.notify_all();
  buffer_->abort_wait_send();
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
  const std::string error =
      buffer_->recv(peer_, fragment % kSlots, slot_offset(fragment), kFragmentBytes);
  if (!error.empty()) throw std::runtime_error(error);
}

// Before anything is sent: whoever hears from us can then answer without waiting for credits.
bool GlooPeer::post_first_receives() {
  try {
    const std::string error = buffer_->recv(peer_, kSentinelSlot, kSentinelOffset, 1);
    if (!error.empty()) throw std::runtime_error(error);
    for (std::uint64_t fragment = 0; fragment < kSlots; ++fragment) post_receive(fragment);
    return true;
  } catch (const std::exception& error) {
    lose(readable(error.what()));
    return false;
  }
}

void GlooPeer::receive() {
  std::uint64_t posted = 0;  // again, of those received
  std::size_t unposted_bytes = 0;
  try {
    for (std::uint64_t fragment = 0;; ++fragment) {
      std::string error;
      const GlooWait wait = buffer_->wait_recv(error);
      if (wait == GlooWait::let_go) return;
      if (wait == GlooWait::failed) throw std::runtime_error(error);
      const std::size_t bytes =
          take_fragment({memory_.data() + slot_offset(fragment), kFragmentBytes});
      cool(fragment, bytes);
      unposted_bytes += bytes;
      if (fragment + 1 - posted < kPostTogether && unposted_bytes < kPostBytes) continue;
      while (posted <= fragment) post_receive(posted++);
      unposted_bytes = 0;
    }
  } catch (const std::exception& error) {
    lose(readable(error.what()));
  }
}

// Gives back the pages of a slot that has held so many bytes, unless it may stay warm.
void GlooPeer::cool(std::uint64_t fragment, std::size_t bytes) {
  bool& is_warm = is_warm_[fragment % kSlots];
  if (bytes <= kKeptBytes || is_warm) return;
  if (warm_slots_.fetch_sub(1) > 0) {
    is_warm = true;
    return;
  }
  warm_slots_.fetch_add(1);
  memory_.forget(slot_offset(fragment) + kKeptBytes, kSlotBytes - kKeptBytes);
}

void GlooPeer::lose(const std::string& why) {
  const bool is_crash = !inbox_.loss_of(peer_);
  inbox_.lose(peer_, why);
  mark_seen();
  buffer_->abort_wait_send();  // gloo forgets a fragment of which half has gone
  if (is_crash) on_crash_();
}

std::size_t GlooPeer::take_fragment(ByteView fragment) {
  std::size_t taken = 0;
  while (get<Header>(fragment, 0).kind == Kind::not_last) {
    const auto header = get<Header>(fragment, 0);
    const std::size_t bytes = take_part(header, fragment.subspan(sizeof header));
    taken += sizeof header + bytes;
    fragment = fragment.subspan(sizeof header + bytes);
    if (fragment.size() < sizeof header)
      throw WireError(0, "fragment.kind", "another message should follow, and there is no room");
  }
  const auto header = get<Header>(fragment, 0);
  switch (header.kind) {
    case Kind::not_last: break;  // none is left
    case Kind::message: return taken + take_part(header, fragment.subspan(sizeof header));
    case Kind::goodbye:
      inbox_.lose(peer_, "it closed its transport", Inbox::End::goodbye);
      say(Kind::goodbye_seen);
      return 0;
    case Kind::goodbye_seen: mark_seen(); return 0;
  }
  throw WireError(0, "fragment.kind", fmt::format("{} is none", static_cast<int>(header.kind)));
}

// The part begins at `rest`, and others may follow it there.
std::size_t GlooPeer::take_part(const Header& header, ByteView rest) {
  if (header.offset == 0) {
    assembled_.clear();
    assembled_.resize(header.message_bytes);
    assembled_bytes_ = 0;
  }
  if (header.offset != assembled_bytes_ || header.message_bytes != assembled_.size())
    throw WireError(24, "fragment.offset",
                    fmt::format("{} does not follow {} of {}", header.offset, assembled_bytes_,
                                assembled_.size()));
  const std::size_t bytes = std::min(rest.size(), assembled_.size() - assembled_bytes_);
  if (bytes > 0) std::memcpy(assembled_.data() + assembled_bytes_, rest.data(), bytes);
  assembled_bytes_ += bytes;
  if (assembled_bytes_ == assembled_.size())
    inbox_.put(peer_, header.tag, std::exchange(assembled_, {}));
  return bytes;
}

}  // namespace laconic
