#include "laconic/collective/walk.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include <cmath>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/collective/message.hpp"

namespace laconic {

namespace {

const CodecSpec kRaw = Raw{};
const TensorSpec kNoElements{Dtype::u8, {0}};  // what a barrier sends

bool has_seal(const CollectiveSpec& spec) {
  return spec.kind == CollectiveKind::all_gather || spec.kind == CollectiveKind::broadcast ||
         (spec.kind == CollectiveKind::all_reduce && spec.algorithm != Algorithm::doubling);
}

}  // namespace

LaneWalk::LaneWalk(Journey& journey, Lane& lane, std::uint32_t part)
    : journey_(journey),
      lane_(lane),
      tag_(make_tag({journey.spec.traffic, journey.spec.unit, journey.operation, part})),
      adds_payloads_(!journey.exact && adds_payloads(journey.spec)) {}

bool LaneWalk::advance(Engine& engine) {
  try {
    for (; at_ < journey_.hops.size(); ++at_)
      if (!act(engine, journey_.hops[at_])) return false;
  } catch (const WireError& error) {
    throw WireError(fmt::format("{} from rank {}", to_text(tag_), from_), error);
  }
  end();
  return true;
}

Rank LaneWalk::waits_for() const {
  return journey_.spec.group[index(journey_.hops[at_].peer)];
}

bool LaneWalk::act(Engine& engine, const Hop& hop) {
  if (hop.act == Act::receive) return receive(engine, hop);
  if (hop.act == Act::send) {
    send(engine, hop);
    return true;
  }
  const Stopwatch clock;
  act_here(hop);
  journey_.codec_seconds += clock.seconds();
  return true;
}

void LaneWalk::act_here(const Hop& hop) {
  switch (hop.act) {
    case Act::encode: return encode(hop.chunk);
    case Act::seal: return seal(hop.chunk);
    case Act::store: return store(hop.chunk);
    case Act::add: return add(hop.chunk);
    case Act::add_own: return add_own(hop.chunk);
    case Act::finish_sum: return finish_sum(hop.chunk);
    case Act::send:
    case Act::receive: return;
  }
}

// --- messages

void LaneWalk::send(Engine& engine, const Hop& hop) {
  if (hop.chunk == kNoChunk) {
    message_ = std::make_shared<Bytes>();
    open_frame(*message_, header_of(kRaw, kNoChunk));
    close_frame(*message_, 0, 0);
  }
  const TensorSpec& what = tensor(hop.chunk);
  is_sent_ = true;
  engine.send({.to = journey_.spec.group[index(hop.peer)],
               .tag = tag_,
               .key = journey_.key,
               .raw_bytes = raw_bytes_of(what),
               .message = message_});
}

std::uint64_t LaneWalk::raw_bytes_of(const TensorSpec& what) const {
  const std::uint64_t bytes = elements_of(what) * bytes_of(what.dtype);
  if (journey_.spec.raw_per_byte == 1) return bytes;
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(bytes) * journey_.spec.raw_per_byte));
}

bool LaneWalk::receive(Engine& engine, const Hop& hop) {
  from_ = journey_.spec.group[index(hop.peer)];
  std::optional<Bytes> bytes = engine.try_recv(from_, tag_);
  if (!bytes) return false;
  const Stopwatch clock;
  message_ = std::make_shared<Bytes>(std::move(*bytes));
  is_sent_ = false;
  frame_ = read_expected(*message_, header_of(codec_of_message(), hop.chunk));
  journey_.codec_seconds += clock.seconds();
  return true;
}

// Contributions are added, sealed values stored; only plans without a seal store contributions.
const CodecSpec& LaneWalk::codec_of_message() const {
  if (journey_.exact || journey_.spec.kind == CollectiveKind::barrier) return kRaw;
  if (adds_payloads_ || !has_seal(journey_.spec)) return journey_.spec.up;
  for (std::size_t i = at_; i < journey_.hops.size(); ++i) {
    if (journey_.hops[i].act == Act::add) return journey_.spec.up;
    if (journey_.hops[i].act == Act::store) break;
  }
  return journey_.spec.down;
}

MessageSpec LaneWalk::message_spec() const {
  return {.number = static_cast<int>(number_of(journey_.sequence)),
          .use = journey_.exact ? Use::bypass : Use::train};
}

FrameHeader LaneWalk::header_of(const CodecSpec& codec, int chunk) const {
  return {.codec = codec, .tensor = tensor(chunk), .sequence = journey_.sequence};
}

const TensorSpec& LaneWalk::tensor(int chunk) const {
  return chunk == kNoChunk ? kNoElements : lane_.tensors[index(chunk)];
}

std::byte* LaneWalk::values(int chunk) const {
  return journey_.buffer + lane_.slices[index(chunk)].offset * bytes_of(journey_.spec.dtype);
}

Bytes LaneWalk::pack(Sender& sender, int chunk) const {
  return sender.pack({tensor(chunk), values(chunk)}, message_spec());
}

// The message at hand, to be changed.
std::shared_ptr<Bytes> LaneWalk::take_message() {
  if (is_sent_) return std::make_shared<Bytes>(*std::exchange(message_, nullptr));
  return std::exchange(message_, nullptr);
}

// --- acts

void LaneWalk::encode(int chunk) {
  message_ = adds_payloads_ ? contribution(chunk)
                            : std::make_shared<Bytes>(pack(*lane_.up[index(chunk)], chunk));
}

// The maker's own copy comes from the bytes that the others get.
void LaneWalk::seal(int chunk) {
  const CodecSpec& codec = journey_.exact   ? kRaw
                           : adds_payloads_ ? journey_.spec.up
                                            : journey_.spec.down;
  message_ =
      adds_payloads_ ? contribution(chunk) : std::make_shared<Bytes>(pack(*lane_.down, chunk));
  is_decoded_ = true;
  if (!is_lossy(codec)) return;
  decode(codec, payload_of(*message_, header_of(codec, chunk)), {}, {tensor(chunk), values(chunk)});
}

void LaneWalk::store(int chunk) {
  decode(frame_.header.codec, frame_.payload, {}, {tensor(chunk), values(chunk)});
  message_ = nullptr;
}

void LaneWalk::add(int chunk) {
  if (!adds_payloads_ && is_lossy(frame_.header.codec)) {
    add_decoded(chunk);
  } else if (sum_.is_empty()) {
    check_payload(frame_.header.codec, tensor(chunk), frame_.payload);
    const std::size_t offset = frame_.payload_offset;
    sum_ = {.bytes = take_message(), .offset = offset};
  } else if (adds_payloads_) {
    add_payload_of(chunk, frame_.payload);
  } else {
    add_elements(tensor(chunk),
                 sum_.is_in_values ? values(chunk) : sum_.bytes->data() + sum_.offset,
                 frame_.payload.data());
  }
  message_ = nullptr;
}

void LaneWalk::add_decoded(int chunk) {
  const std::size_t bytes = elements_of(tensor(chunk)) * bytes_of(journey_.spec.dtype);
  const bool is_first = sum_.is_empty();
  if (is_first) sum_ = {.bytes = std::make_shared<Bytes>(bytes)};
  if (!is_first) journey_.scratch.resize(bytes);
  Bytes& out = is_first ? *sum_.bytes : journey_.scratch;
  decode(frame_.header.codec, frame_.payload, {}, {tensor(chunk), out.data()});
  if (is_first) return;
  add_elements(tensor(chunk), sum_.is_in_values ? values(chunk) : sum_.bytes->data() + sum_.offset,
               out.data());
}

// The order of two addends makes no difference to their sum, so this one may be the other's place.
void LaneWalk::add_own(int chunk) {
  if (adds_payloads_) {
    const Bytes& own = *contribution(chunk);
    const FrameHeader header = header_of(journey_.spec.up, chunk);
    if (sum_.is_empty())
      sum_ = {.bytes = std::make_shared<Bytes>(own), .offset = header_bytes(header)};
    else
      add_payload_of(chunk, payload_of(*held_, header));
    return;
  }
  if (!sum_.is_empty())
    add_elements(tensor(chunk), values(chunk), sum_.bytes->data() + sum_.offset);
  sum_ = {.is_in_values = true};
}

void LaneWalk::finish_sum(int chunk) {
  const Sum sum = std::exchange(sum_, {});
  if (adds_payloads_) {
    close_frame(*sum.bytes, 0, sum.bytes->size() - sum.offset - kFrameCrcBytes);
    held_ = sum.bytes;
    held_chunk_ = chunk;
    is_decoded_ = false;
    return;
  }
  const std::size_t bytes = elements_of(tensor(chunk)) * bytes_of(journey_.spec.dtype);
  if (!sum.is_in_values && bytes > 0)
    std::memcpy(values(chunk), sum.bytes->data() + sum.offset, bytes);
}

void LaneWalk::end() {
  message_ = nullptr;
  if (!is_decoded_)
    decode(journey_.spec.up, payload_of(*held_, header_of(journey_.spec.up, held_chunk_)), {},
           {tensor(held_chunk_), values(held_chunk_)});
  is_decoded_ = true;
  held_ = nullptr;
}

// --- where payloads are added

void LaneWalk::add_payload_of(int chunk, ByteView payload) {
  const CodecSpec& codec = journey_.spec.up;
  check_payload(codec, tensor(chunk), payload);
  const std::size_t bytes = sum_.bytes->size() - sum_.offset - kFrameCrcBytes;
  add_payload(codec, tensor(chunk), std::span(*sum_.bytes).subspan(sum_.offset, bytes), payload);
}

// What this member has of a chunk: its own part, encoded once, or the sum that it finished last. A
// partial sum that is dropped here has been sent on; its buffer gets the whole one later.
std::shared_ptr<Bytes>& LaneWalk::contribution(int chunk) {
  if (held_ != nullptr && held_chunk_ == chunk) return held_;
  held_ = std::make_shared<Bytes>(pack(*lane_.up[index(chunk)], chunk));
  held_chunk_ = chunk;
  is_decoded_ = true;
  return held_;
}

}  // namespace laconic
