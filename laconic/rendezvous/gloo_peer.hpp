// rendezvous/gloo_peer.hpp — one peer over gloo: fragments in numbered slots.
//
// gloo moves a piece of memory when both ends have named the same slot. Asking
// for each message would cost a round trip, so this side always has kSlots
// receives posted, and fragment i of a direction travels in slot i % kSlots: it
// leaves at once, and the posted slots are credits. A message is one fragment or
// several, one after the other; every fragment begins with a header, which says
// how long it is (gloo takes a shorter fragment than was posted for, and does not tell).
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
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "laconic/rendezvous/watchdog.hpp"
#include "laconic/transport/inbox.hpp"

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}
}  // namespace gloo

namespace laconic {

inline constexpr int kSlots = 16;
inline constexpr std::size_t kFragmentHeaderBytes = 32;
// A segment of the engine with its headers is one fragment.
inline constexpr std::size_t kFragmentPayload = 256 * 1024 + 1024 - kFragmentHeaderBytes;

// Equal on both ends, or they do not talk.
std::string gloo_wire();

class GlooPeer {
 public:
  // `on_crash` is called once, from a thread of this peer, when it goes without a goodbye.
  GlooPeer(gloo::Context& context, Rank self, Rank peer, Inbox& inbox, Watchdog& watchdog,
           std::function<void()> on_crash);
  ~GlooPeer();
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  void send(Tag tag, ByteView message, Deadline deadline);

  // Says goodbye and lets go of whoever sends. Never waits.
  void leave();
  // Until the peer has seen the goodbye, or is lost; false when the time is over.
  bool wait_until_seen(Deadline deadline);
  // Nothing touches the connection after this. The memory stays until destruction.
  void stop();

 private:
  enum class Kind : std::uint64_t { message = 1, goodbye = 2, goodbye_seen = 3 };
  struct Header {
    Kind kind = Kind::message;
    Tag tag = 0;
    std::uint64_t message_bytes = 0;
    std::uint64_t offset = 0;  // of this fragment in the message
  };
  static_assert(sizeof(Header) == kFragmentHeaderBytes);
  // Goodbyes do not wait for room: there are two at most, one of each kind.
  static constexpr int kSendSlots = kSlots + 2;

  void take_turn(Deadline deadline);
  void end_turn();
  bool has_room(std::size_t bytes);
  void wait_for_room(Tag tag, std::size_t bytes, Deadline deadline);
  void note_completion();
  void refuse_to_wait(Tag tag, Deadline deadline);
  void post(const Header& header, ByteView payload);
  void say(Kind kind);
  [[noreturn]] void connection_broke(const std::string& why);

  bool post_first_receives();  // false when the peer is lost already
  void post_receive(std::uint64_t fragment);
  void receive();
  // Return the bytes of the message that it held.
  std::size_t take_fragment(ByteView fragment);
  std::size_t take_part(const Header& header, ByteView payload);
  void lose(const std::string& why);
  void mark_seen();

  std::byte* receive_slot(std::uint64_t fragment);
  std::byte* send_slot(std::uint64_t fragment);
  std::size_t offset_of(const std::byte* place) const;

  const Rank self_;
  const Rank peer_;
  Inbox& inbox_;
  Watchdog& watchdog_;
  const std::function<void()> on_crash_;
  Bytes memory_;  // receive slots, then those to send from, then one byte for the sentinel
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  Watchdog::Place bell_;

  std::mutex state_mutex_;
  std::condition_variable state_changed_;
  bool has_turn_ = false;    // somebody is sending a message
  bool is_leaving_ = false;  // goodbye was said
  bool is_seen_ = false;     // and heard, or there is nobody to hear it

  std::mutex posting_;           // of what follows
  std::uint64_t posted_ = 0;     // fragments
  std::uint64_t completed_ = 0;  // of them: the socket has taken them; counted by who has the turn
  std::array<std::size_t, kSendSlots> sizes_{};
  std::size_t staged_bytes_ = 0;  // posted and not completed

  Bytes assembled_;  // the message whose fragments are coming in; the receiving thread's
  std::uint64_t assembled_bytes_ = 0;
  std::thread receiver_;
};

}  // namespace laconic
