// Collectives of a few bytes whose number only their owner knows, walked at once.

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/collective/hop_walk.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

struct Whom {
  Engine& engine;
  const Group& group;
  Tag tag;
  std::uint64_t sequence;
};

FrameHeader header_of(const Whom& whom, std::size_t bytes) {
  return {.codec = Raw{},
          .tensor = {Dtype::u8, {static_cast<std::int64_t>(bytes)}},
          .sequence = whom.sequence};
}

std::shared_ptr<const Bytes> pack_bytes(const Whom& whom, ByteView bytes) {
  auto message = std::make_shared<Bytes>();
  const std::span<std::byte> room = open_frame(*message, header_of(whom, bytes.size()));
  std::ranges::copy(bytes, room.begin());
  close_frame(*message, 0, bytes.size());
  return message;
}

Bytes unpack_bytes(const Whom& whom, ByteView message) {
  const Frame frame = read_frame(message);
  require_header(frame, header_of(whom, frame.payload.size()));
  require_end(frame, message);
  return {frame.payload.begin(), frame.payload.end()};
}

// What a member has of each chunk, and the message at hand; for HopWalk.
class ByteChunks {
 public:
  ByteChunks(const Whom& whom, int chunks, int self, ByteView mine)
      : whom_(whom),
        values_(static_cast<std::size_t>(std::max(1, chunks))),
        message_(pack_bytes(whom, mine)),
        raw_bytes_(mine.size()) {
    values_[chunks > 1 ? static_cast<std::size_t>(self) : 0].assign(mine.begin(), mine.end());
  }

  bool act(const Hop& hop) {  // its own message was made at once
    if (hop.act == Act::store) values_[static_cast<std::size_t>(hop.chunk)] = std::move(came_);
    return true;
  }
  Outgoing message(const Hop&) const { return {message_, raw_bytes_}; }
  // A message that came is the one to pass on; in a barrier it is as good as its own.
  void take(const Hop&, Bytes bytes) {
    came_ = unpack_bytes(whom_, bytes);
    raw_bytes_ = came_.size();
    message_ = std::make_shared<const Bytes>(std::move(bytes));
  }
  std::vector<Bytes>& values() { return values_; }

 private:
  const Whom& whom_;
  std::vector<Bytes> values_;
  std::shared_ptr<const Bytes> message_;
  std::uint64_t raw_bytes_;
  Bytes came_;
};

// Returns what the member has of each chunk at the end.
std::vector<Bytes> walk(const Whom& whom, const Plan& plan, ByteView mine) {
  const int self = member_of(whom.group, whom.engine.rank());
  ByteChunks chunks(whom, plan.chunks, self, mine);
  HopWalk(plan.by_member[static_cast<std::size_t>(self)], whom.group, whom.tag)
      .finish(whom.engine, chunks);
  return std::move(chunks.values());
}

Whom whom(Engine& engine, const Group& group, const TagFields& fields) {
  return {engine, group, make_tag(fields), make_sequence(fields.number, 0)};
}

int size_of(const Group& group) {
  return static_cast<int>(group.size());
}

}  // namespace

std::vector<Bytes> gather_all(Engine& engine, const Group& group, Traffic traffic,
                              std::uint32_t unit, std::uint64_t number, ByteView mine) {
  const Plan plan = make_plan(CollectiveKind::all_gather, Algorithm::direct, size_of(group));
  return walk(whom(engine, group, {traffic, unit, number}), plan, mine);
}

Bytes broadcast(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
                std::uint64_t number, ByteView mine) {
  const Plan plan = make_plan(CollectiveKind::broadcast, Algorithm::tree, size_of(group));
  return std::move(walk(whom(engine, group, {traffic, unit, number}), plan, mine).front());
}

void barrier(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
             std::uint64_t number) {
  const Plan plan = make_plan(CollectiveKind::barrier, Algorithm::doubling, size_of(group));
  walk(whom(engine, group, {traffic, unit, number}), plan, {});
}

}  // namespace laconic
