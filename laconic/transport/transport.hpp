// transport/transport.hpp — moves bytes between ranks. Knows no tensor.
//
// Implementations: in_process (ranks are threads), mpi (when the build found
// one), gloo (rendezvous/, since it meets its peers through libtorch's store);
// decorators: shaped (a slow network), faulty (a bad one). All pass the same
// suite, transport/conformance.hpp.
//
// What one could get wrong: a message belongs to (from, to, tag) and nothing
// else. Messages of equal tag arrive in the order they were sent; between
// different tags there is no order, and a message that nobody asked for waits
// in the inbox for ever. So tags must not be reused while a message with the
// same tag may still be in flight (transport/tag.hpp builds them).
//
// Every wait has a deadline. After PeerLost or Timeout the transport can still
// be used with the other ranks; who failed is in the exception.
//
// Thread-safety: every function may be called from any thread at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "laconic/base/bytes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

using Tag = std::uint64_t;
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline in(std::chrono::milliseconds limit) {
  return std::chrono::steady_clock::now() + limit;
}

// At the speed of memcpy, which the constructor of Bytes from two iterators need not have.
Bytes copy_of(ByteView message);

struct TaggedMessage {
  Tag tag = 0;
  ByteView message;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "gloo"

  // Returns when `message` may be changed again, which is not when it has arrived. To itself a
  // rank may send too. Throws PeerLost, Timeout.
  virtual void send(Rank to, Tag tag, ByteView message, Deadline deadline) = 0;

  // The same for several messages to one rank, in this order, which some transports send as one.
  virtual void send_all(Rank to, std::span<const TaggedMessage> messages, Deadline deadline);

  // Waits for the next message with this (from, tag). What a peer sent before it went away can
  // still be received. Throws PeerLost, Timeout.
  virtual Bytes recv(Rank from, Tag tag, Deadline deadline) = 0;

  // The same without waiting: nothing when there is none yet. Throws PeerLost.
  virtual std::optional<Bytes> try_recv(Rank from, Tag tag) = 0;

  // Calls `wake` after every arrival and every loss of a peer, from some thread of the transport:
  // it must be quick, and not call back. An empty function ends it; no call is under way when
  // this returns.
  virtual void on_arrival(std::function<void()> wake) = 0;

  // Sums over all ranks by the engine's own algorithm, where it has one: the same bits on every
  // rank, in an order of its own. One call at a time, the same sequence of calls on all ranks.
  virtual bool has_sum() const { return false; }
  virtual void sum(std::span<float> values, Deadline deadline);  // Requires: has_sum()

  // The first peer that went without saying goodbye, if one did: it died, and whatever all ranks do
  // together will not end, though the others can still be talked to.
  virtual std::optional<PeerLost> death() const { return std::nullopt; }

  // The most bytes of messages that have waited here, at one time, for somebody to ask for them; 0
  // where nobody counts.
  virtual std::uint64_t most_held_bytes() const { return 0; }

  // Tells the peers that this rank goes, and lets go of every wait here (they throw PeerLost with
  // this rank as the peer). Destruction does it too.
  virtual void close() = 0;
};

}  // namespace laconic
