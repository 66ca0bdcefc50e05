// collective/hop_walk.hpp — one member's way through its list of hops: the only walker of plans.
//
// It sends and receives; what a message is made of and what becomes of one is the business
// of a `Chunks`, which has
//
//   bool act(const Hop&);               every act but send and receive; false: ask again later
//   Outgoing message(const Hop&);       for a send
//   void take(const Hop&, Bytes);       for a receive; throws WireError
//
// LaneWalk (collective/walk.hpp) has elements and codecs, small.cpp has a few bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/collective/plan.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct Outgoing {
  std::shared_ptr<const Bytes> message;
  std::uint64_t raw_bytes = 0;  // for the meter
  bool has_more = false;        // see SendRequest
};

class HopWalk {
 public:
  HopWalk(const std::vector<Hop>& hops, const Group& group, Tag tag, DeadlineKey key = 0);

  // Goes as far as it can without waiting; true at the end. Throws WireError naming the sender.
  template <class Chunks>
  bool advance(Engine& engine, Chunks& chunks) {
    try {
      for (; at_ < hops_.size(); ++at_)
        if (!pass(engine, hops_[at_], chunks)) return false;
    } catch (const WireError& error) {
      throw_named(error);
    }
    return true;
  }

  // Goes to the end, and waits where it must. Throws as Engine::recv() does. Requires: no act() is
  // to be asked again.
  template <class Chunks>
  void finish(Engine& engine, Chunks& chunks) {
    while (!advance(engine, chunks)) waited_for_ = engine.recv(waits_for(), tag_);
  }

  std::size_t at() const { return at_; }  // index of the next hop
  Tag tag() const { return tag_; }
  // Requires: at a receive.
  Rank waits_for() const;

 private:
  template <class Chunks>
  bool pass(Engine& engine, const Hop& hop, Chunks& chunks) {
    switch (hop.act) {
      case Act::send: send(engine, hop, chunks.message(hop)); return true;
      case Act::receive: {
        std::optional<Bytes> bytes = receive(engine, hop);
        if (bytes) chunks.take(hop, std::move(*bytes));
        return bytes.has_value();
      }
      default: return chunks.act(hop);
    }
  }

  void send(Engine& engine, const Hop& hop, Outgoing outgoing);
  std::optional<Bytes> receive(Engine& engine, const Hop& hop);
  [[noreturn]] void throw_named(const WireError& error) const;
  Rank rank_of(int member) const;

  const std::vector<Hop>& hops_;
  const Group& group_;
  const Tag tag_;
  const DeadlineKey key_;
  std::size_t at_ = 0;
  Rank from_ = -1;                   // sender of the last message
  std::optional<Bytes> waited_for_;  // what the next receive takes; finish() only
};

}  // namespace laconic
