// Collectives of a few bytes whose number only their owner knows: plans walked by blocking calls.

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
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

// What the member holds of each chunk at the end.
std::vector<Bytes> walk(const Whom& whom, const Plan& plan, ByteView mine) {
  const int self = member_of(whom.group, whom.engine.rank());
  std::vector<Bytes> values(static_cast<std::size_t>(std::max(1, plan.chunks)));
  values[plan.chunks > 1 ? static_cast<std::size_t>(self) : 0].assign(mine.begin(), mine.end());
  auto message = pack_bytes(whom, mine);
  std::uint64_t raw_bytes = mine.size();
  Bytes came;
  for (const Hop& hop : plan.by_member[static_cast<std::size_t>(self)]) {
    const Rank peer = whom.group[static_cast<std::size_t>(hop.peer)];
    if (hop.act == Act::send)
      whom.engine.send({.to = peer, .tag = whom.tag, .raw_bytes = raw_bytes, .message = message});
    if (hop.act == Act::store) values[static_cast<std::size_t>(hop.chunk)] = std::move(came);
    if (hop.act != Act::receive) continue;
    auto bytes = std::make_shared<const Bytes>(whom.engine.recv(peer, whom.tag));
    try {
      came = unpack_bytes(whom, *bytes);
    } catch (const WireError& error) {
      throw WireError(fmt::format("{} from rank {}", to_text(whom.tag), peer), error);
    }
    raw_bytes = came.size();
    message = std::move(bytes);  // in a barrier as good as its own
  }
  return values;
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
