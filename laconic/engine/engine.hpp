// engine/engine.hpp — what stands between operations and the transport of one rank.
//
//   send ─► outbox, by deadline key ─► segments ─► transport ─► inbox, by tag ─► recv
//
// A message that is sent is queued and leaves in the background. Each peer has
// an outbox of its own, with one thread: the message with the smallest key goes
// first, cut into segments, and between any two segments a more urgent message
// may overtake. Receivers match by tag, so ranks need not agree on an order.
//
// How long an urgent message waits: one segment to a peer is with the transport
// at any time, the rest is still here. So it waits until that one segment has
// been handed over (256 KiB: 21 ms at 100 Mbit/s) and for whatever the transport
// and the kernel hold back in buffers of their own. Messages of equal tag never
// overtake each other: when a later one is more urgent, it lends its key to the
// earlier ones (priority inheritance). What a segment is stands in
// engine/segment.hpp.
//
// Every byte is metered by traffic class and peer, and every operation goes into
// the flight recorder (engine/recorder.hpp), from which the verdict of a hang is
// made.
//
// A failure of a background send is kept and thrown by the next call that
// concerns the peer, and by flush().
//
// A rank that dies ends every wait here, also for messages of others: what all ranks do together
// will not come to an end, and the sooner everybody knows who it was the better.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "laconic/base/bytes.hpp"
#include "laconic/engine/event.hpp"
#include "laconic/engine/meter.hpp"
#include "laconic/engine/recorder.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/engine/window.hpp"
#include "laconic/transport/tag.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

struct EngineOptions {
  std::size_t segment_bytes = std::size_t{256} << 10;
  std::chrono::milliseconds deadline{60'000};  // of every wait
  std::size_t records = 4096;                  // of the flight recorder
};

// When a message is needed: smaller is sooner. See deadline_key().
using DeadlineKey = std::uint64_t;

// Earliest deadline first: the step and the block that will wait for the message, and within a
// block what is needed first (rank_in_block 0..3). Whatever sends it, one scale for all.
constexpr DeadlineKey deadline_key(std::uint64_t step, std::uint64_t block,
                                   std::uint64_t rank_in_block) {
  return step << 20 | block << 2 | rank_in_block;
}

struct SendRequest {
  Rank to = 0;
  Tag tag = 0;
  DeadlineKey key = 0;
  std::uint64_t raw_bytes = 0;  // what the message would be without encoding, for the meter
  std::shared_ptr<const Bytes> message;  // shared: one message may go to many
  // Further messages follow, and then push(): it may wait for them, to be handed over with them.
  bool has_more = false;
};

class Engine {
 public:
  // Requires: the transport outlives the engine and nobody else listens to it (on_arrival).
  explicit Engine(Transport& transport, const EngineOptions& options = {});
  // What has not left by then is dropped: flush() first. Waits for segments that are leaving.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Rank rank() const;
  int size() const;
  const EngineOptions& options() const;
  Transport& transport();

  // Queues. Throws PeerLost or Timeout if an earlier send to this peer failed.
  void send(SendRequest request);
  // Lets everything leave that waits for more.
  void push();
  // Waits until it is there, which is told to an observer but not metered. Throws PeerLost; Timeout
  // when nothing of it came for the engine's deadline, counted from now and then from each segment;
  // WireError.
  Bytes recv(Rank from, Tag tag);
  // Nothing when it has not arrived whole. The first call for a message posts it in the recorder.
  // Throws PeerLost, WireError.
  std::optional<Bytes> try_recv(Rank from, Tag tag);
  // The same for a message that may never be sent: it is posted when its first segment is here, so
  // that a hang is not blamed on a message that nobody has promised.
  std::optional<Bytes> poll(Rank from, Tag tag);
  // Waits until every queued message has been handed over. Throws PeerLost; Timeout when a segment
  // did not leave within the engine's deadline.
  void flush();

  // For whoever walks operations (engine/progress_thread.hpp): counts arrivals, losses, failures of
  // sends and calls of wake(); waits until the count differs from `seen` or the time is up, and
  // returns it.
  std::uint64_t wait_for_arrival(std::uint64_t seen, Deadline until);
  void wake();
  // Segments that left or were taken by now, whoever asked for them: what stands still is stuck.
  std::uint64_t moved() const;

  // What exchanges among many ranks keep to, all those of this rank together.
  Window& window();

  Meter& meter();
  FlightRecorder& recorder();

  // Tells `observer` of everything that ends from now on (engine/event.hpp); an empty one ends it,
  // and no call is under way when this returns. Requires: the observer does not call the engine.
  void observe(EngineObserver observer);
  bool is_observed() const;
  // Requires: is_observed(), as a matter of cost.
  void notify(const EngineEvent& event);
  // Meters the time from `begin` to `end` as exposed, and tells of it: the computing thread has
  // waited for this message; for operations of a class, the last of which has this `flow`, and
  // which had all this `unit`, if the class has_axes().
  void waited(Rank from, Tag tag, EngineEvent::Time begin, EngineEvent::Time end);
  void waited(Traffic traffic, EngineEvent::Time begin, EngineEvent::Time end,
              std::uint64_t flow = 0, std::uint32_t unit = 0);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace laconic
