// rendezvous/gloo_peer.hpp — one peer over gloo: fragments in numbered slots.
//
// gloo moves a piece of memory when both ends have named the same slot. Asking
// for each message would cost a round trip, so this side always has kSlots
// receives posted, and fragment i of a direction travels in slot i % kSlots: it
// leaves at once, and the posted slots are credits. A message is one fragment or
// several, one after the other, and small messages that leave together share one. In
// a fragment every message, or part of one, has a header in front, which says how long
// it is and whether another follows (gloo takes a shorter fragment than was posted for,
// and does not tell).
//
// What one could get wrong about gloo:
//  - A wait of its own that times out closes the connections to *all* peers. So
//    its waits here have no end, and a Watchdog lets them go when ours is over.
//  - When a connection breaks it tells only operations that have not begun: a
//    fragment of which half has come, or gone, waits for ever. So one receive
//    is posted that nobody ever sends to, on the same buffer as all others.
//  - Memory of an operation under way must stay. So fragments leave from
//    memory of ours, and a send that gives up leaves nothing dangling; the
//    receiver drops a message whose rest never came when the next begins.
//
// Memory: slots are as large as the largest fragment and mostly empty. But for a few warm ones, a
// slot has pages while a fragment is in it (SlotMemory). So a rank pays for a peer what is under
// way to and from it, and not what could be.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "laconic/rendezvous/gloo_engine.hpp"
#include "laconic/rendezvous/slot_memory.hpp"
#include "laconic/rendezvous/watchdog.hpp"
#include "laconic/transport/inbox.hpp"

namespace laconic {

inline constexpr int kSlots = 16;
// Slots that keep their pages between fragments, over all peers of a rank: as many as three peers
// have. Pages that come and go made sums of four ranks over loopback, at 2.4 Gbit/s each, some 10 %
// slower; at 1 Gbit/s it hardly shows.
inline constexpr int kWarmSlots = 3 * kSlots;
inline constexpr std::size_t kFragmentHeaderBytes = 32;
// A segment of the engine with its headers is one fragment.
inline constexpr std::size_t kFragmentPayload = 256 * 1024 + 1024 - kFragmentHeaderBytes;
inline constexpr std::size_t kFragmentBytes = kFragmentHeaderBytes + kFragmentPayload;
// What may wait here for the socket. The engine sends the urgent first, and only what it has not
// yet handed over can be overtaken; two fragments keep a link busy.
inline constexpr std::size_t kStagedBytes = 2 * kFragmentBytes;

// Where fragments wait for the socket: a ring of kStagedBytes, each fragment in one piece.
class StagingRing {
 public:
  // Where a fragment of so many bytes can go now, if it can.
  std::optional<std::size_t> place_for(std::size_t bytes) const;
  // Puts a fragment there, or one without bytes anywhere.
  void push(std::size_t place, std::size_t bytes) { fragments_.push_back({place, place + bytes}); }
  void pop() { fragments_.pop_front(); }  // the oldest
  std::size_t count() const { return fragments_.size(); }
  // Behind the newest fragment.
  std::size_t end() const { return fragments_.empty() ? 0 : fragments_.back().end; }

 private:
  struct Fragment {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::deque<Fragment> fragments_;  // posted and not completed, the oldest first
};

// Equal on both ends, or they do not talk.
std::string gloo_wire();

class GlooPeer {
 public:
  // `warm_slots` is what the peers of a rank have left of kWarmSlots. `on_crash` is called once,
  // from a thread of this peer, when it goes without a goodbye.
  GlooPeer(GlooMesh& mesh, Rank self, Rank peer, Inbox& inbox, Watchdog& watchdog,
           std::atomic<int>& warm_slots, std::function<void()> on_crash);
  ~GlooPeer();
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  void send(std::span<const TaggedMessage> messages, Deadline deadline);

  // Says goodbye and lets go of whoever sends. Never waits.
  void leave();
  // Until the peer has seen the goodbye, or is lost; false when the time is over.
  bool wait_until_seen(Deadline deadline);
  // Nothing touches the connection after this. The memory stays until destruction.
  void stop();

 private:
  enum class Kind : std::uint64_t { message = 1, goodbye = 2, goodbye_seen = 3, not_last = 4 };
  struct Header {
    Kind kind = Kind::message;
    Tag tag = 0;
    std::uint64_t message_bytes = 0;
    std::uint64_t offset = 0;  // of this fragment in the message
  };
  static_assert(sizeof(Header) == kFragmentHeaderBytes);
  // A message, or a part of one, in a fragment.
  struct Part {
    Header header;
    ByteView payload;
  };
  void send_in_turn(std::span<const TaggedMessage> messages, Deadline deadline);
  void take_turn(Deadline deadline);
  void end_turn();
  std::optional<std::size_t> find_room(std::size_t bytes);
  std::size_t wait_for_room(Tag tag, std::size_t bytes, Deadline deadline);
  void note_completion();
  void refuse_to_wait(Tag tag, Deadline deadline);
  void send_fragment(std::span<const Part> parts, std::size_t bytes, Deadline deadline);
  void send_from(std::size_t offset, std::span<const Part> parts, std::size_t bytes);
  void say(Kind kind);
  [[noreturn]] void connection_broke(const std::string& why);

  bool post_first_receives();  // false when the peer is lost already
  void post_receive(std::uint64_t fragment);
  void cool(std::uint64_t fragment, std::size_t bytes);
  void receive();
  // Return the bytes of the message that it held.
  std::size_t take_fragment(ByteView fragment);
  std::size_t take_part(const Header& header, ByteView rest);
  void lose(const std::string& why);
  void mark_seen();

  const Rank self_;
  const Rank peer_;
  Inbox& inbox_;
  Watchdog& watchdog_;
  std::atomic<int>& warm_slots_;
  const std::function<void()> on_crash_;
  SlotMemory memory_;  // parted as in gloo_peer.cpp
  std::unique_ptr<GlooBuffer> buffer_;
  Watchdog::Place bell_;

  std::mutex state_mutex_;
  std::condition_variable state_changed_;
  bool has_turn_ = false;    // somebody is sending a message
  bool is_leaving_ = false;  // goodbye was said
  bool is_seen_ = false;     // and heard, or there is nobody to hear it

  std::mutex posting_;        // guards what follows
  std::uint64_t posted_ = 0;  // fragments
  StagingRing staged_;        // fragments leave it when whoever has the turn notices

  std::array<bool, kSlots> is_warm_{};  // the receiving thread's
  Bytes assembled_;  // the message whose fragments are coming in; the receiving thread's
  std::uint64_t assembled_bytes_ = 0;
  std::thread receiver_;
};

}  // namespace laconic
