#include "laconic/collective/hop_walk.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"

namespace laconic {

HopWalk::HopWalk(const std::vector<Hop>& hops, const Group& group, Tag tag, DeadlineKey key)
    : hops_(hops), group_(group), tag_(tag), key_(key) {}

Rank HopWalk::rank_of(int member) const {
  return group_[index(member)];
}

Rank HopWalk::waits_for() const {
  return rank_of(hops_[at_].peer);
}

void HopWalk::send(Engine& engine, const Hop& hop, Outgoing outgoing) {
  engine.send({.to = rank_of(hop.peer),
               .tag = tag_,
               .key = key_,
               .raw_bytes = outgoing.raw_bytes,
               .message = std::move(outgoing.message),
               .has_more = outgoing.has_more});
}

std::optional<Bytes> HopWalk::receive(Engine& engine, const Hop& hop) {
  from_ = rank_of(hop.peer);
  if (waited_for_) return std::exchange(waited_for_, std::nullopt);
  return engine.try_recv(from_, tag_);
}

void HopWalk::throw_named(const WireError& error) const {
  throw WireError(fmt::format("{} from rank {}", to_text(tag_), from_), error);
}

}  // namespace laconic
