#include "laconic/collective/walk.hpp"

#include <fmt/format.h>

#include <algorithm>
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

bool has_result(const CollectiveSpec& spec) {
  return spec.kind == CollectiveKind::all_gather || spec.kind == CollectiveKind::broadcast ||
         (spec.kind == CollectiveKind::all_reduce && spec.algorithm != Algorithm::doubling &&
          spec.algorithm != Algorithm::gathered);
}

}  // namespace

// How a lane goes through a plan.
//
// HopWalk asks for one act after the other, and three things are at hand between them. message_ is
// the frame that was encoded or came last; several sends may share it, and once one has (is_sent_)
// nobody changes it. sum_ is what has been added so far. And the buffer has the member's own values
// of every chunk, which become the result.
//
// What crosses a link is encoded once, by lane_.up as a contribution or by lane_.down as a result,
// and decoded where it is stored or added. The cheapest place for a sum changes on the way: the
// first addend that came stays where it is and is the sum (sum_.bytes); raw ones are added to it
// from where they lie, others by way of state_.scratch; when the member's own values have their
// turn the sum is added to them, and goes on in the buffer (sum_.is_in_values). The order of
// addends stays that of the plan, and two addends have one sum whichever comes first.
//
// Codecs whose payloads can be added (adds_payloads_) never leave their encoded form: held_ is the
// frame of what this member has of held_chunk_, its own part at first and then the sum, which is
// passed on as it is and decoded at the end, when is_decoded_ says that the buffer lacks it.
//
// A GPU that packs is not waited for: the act begins (packing_), says that it is not done, and is
// asked again until it is. What it costs is the time of queueing and of making the frame; the
// GPU's own is nobody's here.
LaneWalk::LaneWalk(OperationState& state, Lane& lane, std::uint32_t part)
    : state_(state),
      lane_(lane),
      walk_(state.hops, state.spec.group,
            make_tag({state.spec.traffic, state.spec.unit, state.operation, part}), state.key),
      adds_payloads_(!state.exact && adds_payloads(state.spec)) {}

namespace {

// All other acts read what has come, or add it up.
bool encodes(Act act) {
  return act == Act::encode || act == Act::encode_result || act == Act::encode_for_all;
}

}  // namespace

bool LaneWalk::advance(Engine& engine) {
  if (!walk_.advance(engine, *this)) return false;
  end();
  return true;
}

bool LaneWalk::act(const Hop& hop) {
  if (waits_for_gpu_ && !is_packed()) return false;
  const Stopwatch clock;
  const bool is_done = dispatch(hop);
  const double seconds = clock.seconds();
  state_.spent += {.codec = seconds, .decode = encodes(hop.act) ? 0 : seconds};
  return is_done;
}

bool LaneWalk::dispatch(const Hop& hop) {
  switch (hop.act) {
    case Act::encode: return encode(hop.chunk);
    case Act::encode_result: return encode_result(hop.chunk);
    case Act::encode_for_all: return encode_for_all(hop.chunk);
    case Act::store: store(hop.chunk); break;
    case Act::add: add(hop.chunk); break;
    case Act::add_own: return add_own(hop.chunk);
    case Act::finish_sum: finish_sum(hop.chunk); break;
    case Act::send:
    case Act::receive: break;
  }
  return true;
}

// --- messages

Outgoing LaneWalk::message(const Hop& hop) {
  if (hop.chunk == kNoChunk) {
    message_ = std::make_shared<Bytes>();
    open_frame(*message_, header_of(kRaw, kNoChunk));
    close_frame(*message_, 0, 0);
  }
  is_sent_ = true;
  return {message_, raw_bytes_of(tensor(hop.chunk)), true};
}

std::uint64_t LaneWalk::raw_bytes_of(const TensorSpec& what) const {
  const std::uint64_t bytes = elements_of(what) * bytes_of(what.dtype);
  if (state_.spec.raw_per_byte == 1) return bytes;
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(bytes) * state_.spec.raw_per_byte));
}

void LaneWalk::take(const Hop& hop, Bytes bytes) {
  const Stopwatch clock;
  message_ = std::make_shared<Bytes>(std::move(bytes));
  is_sent_ = false;
  frame_ = read_expected(*message_, header_of(codec_of_message(), hop.chunk));
  const double seconds = clock.seconds();
  state_.spent += {.codec = seconds, .decode = seconds};
}

// Contributions are added and results stored; only plans without results store contributions.
const CodecSpec& LaneWalk::codec_of_message() const {
  if (state_.exact || state_.spec.kind == CollectiveKind::barrier) return kRaw;
  if (adds_payloads_ || !has_result(state_.spec)) return state_.spec.up;
  for (std::size_t i = walk_.at(); i < state_.hops.size(); ++i) {
    if (state_.hops[i].act == Act::add) return state_.spec.up;
    if (state_.hops[i].act == Act::store) break;
  }
  return state_.spec.down;
}

MessageSpec LaneWalk::message_spec() const {
  return {.number = static_cast<int>(number_of(state_.sequence)),
          .use = state_.exact ? Use::bypass : Use::train};
}

FrameHeader LaneWalk::header_of(const CodecSpec& codec, int chunk) const {
  return {.codec = codec, .tensor = tensor(chunk), .sequence = state_.sequence};
}

const TensorSpec& LaneWalk::tensor(int chunk) const {
  return chunk == kNoChunk ? kNoElements : lane_.tensors[index(chunk)];
}

std::byte* LaneWalk::values(int chunk) const {
  return state_.buffer + lane_.slices[index(chunk)].offset * bytes_of(state_.spec.dtype);
}

// --- packing

std::shared_ptr<Bytes> LaneWalk::pack(Sender& sender, int chunk, Place place) {
  if (!state_.spec.is_on_device)
    return std::make_shared<Bytes>(sender.pack({tensor(chunk), values(chunk)}, message_spec()));
  if (!packing_ && !copying_ && state_.may_pack()) start_packing(sender, chunk, place);
  waits_for_gpu_ = !is_packed();
  if (waits_for_gpu_) return nullptr;
  return finish_packing(sender, chunk);
}

// True when the GPU has packed, or may begin to.
bool LaneWalk::is_packed() const {
  if (packing_) return packing_->is_ready();
  if (copying_) return copying_->is_ready();
  return state_.may_pack();
}

void LaneWalk::start_packing(Sender& sender, int chunk, Place place) {
  const TensorSpec& what = tensor(chunk);
  if (sender.packs_on_device(what, message_spec())) {
    is_replaced_ = place == Place::replaced;
    packing_.emplace(is_replaced_
                         ? sender.pack_in_place_on_device({what, values(chunk)}, message_spec())
                         : sender.pack_on_device({what, values(chunk)}, message_spec()));
    packing_bytes_ = packing_->pinned_bytes();
  } else {
    packing_bytes_ = elements_of(what) * bytes_of(what.dtype);
    copying_.emplace(values(chunk), packing_bytes_);
  }
  state_.packing_bytes += packing_bytes_;
}

std::shared_ptr<Bytes> LaneWalk::finish_packing(Sender& sender, int chunk) {
  std::shared_ptr<Bytes> frame =
      packing_ ? packing_->finish()
               : std::make_shared<Bytes>(
                     sender.pack({tensor(chunk), copying_->bytes().data()}, message_spec()));
  packing_.reset();
  copying_.reset();
  state_.packing_bytes -= std::exchange(packing_bytes_, 0);
  return frame;
}

// Gives away the message at hand, to be changed.
std::shared_ptr<Bytes> LaneWalk::take_message() {
  if (is_sent_) return std::make_shared<Bytes>(*std::exchange(message_, nullptr));
  return std::exchange(message_, nullptr);
}

// --- acts

bool LaneWalk::encode(int chunk) {
  if (adds_payloads_) {
    if (!hold(chunk)) return false;
    message_ = held_;
    return true;
  }
  std::shared_ptr<Bytes> packed = pack(*lane_.up[index(chunk)], chunk);
  if (packed == nullptr) return false;
  message_ = std::move(packed);
  if (state_.observer)
    show(state_.spec.up, chunk, payload_of(*message_, header_of(state_.spec.up, chunk)));
  return true;
}

// Whoever watches sees what is lost; exact operations lose nothing.
void LaneWalk::show(const CodecSpec& codec, int chunk, ByteView payload) const {
  if (!state_.observer || state_.exact || !is_lossy(codec)) return;
  state_.observer(codec, tensor(chunk), lane_.slices[index(chunk)], payload);
}

bool LaneWalk::encode_result(int chunk) {
  if (!adds_payloads_) return encode_shared(*lane_.down, state_.spec.down, chunk);
  if (!hold(chunk)) return false;
  message_ = held_;
  is_decoded_ = true;
  decode_values(state_.spec.up, payload_of(*message_, header_of(state_.spec.up, chunk)), chunk);
  return true;
}

bool LaneWalk::encode_for_all(int chunk) {
  return encode_shared(*lane_.up[index(chunk)], state_.spec.up, chunk);
}

// The maker's own copy comes from the bytes that the others get: a GPU that makes them decodes them
// where they lie, others do it here.
bool LaneWalk::encode_shared(Sender& sender, const CodecSpec& its_codec, int chunk) {
  const CodecSpec& codec = state_.exact ? kRaw : its_codec;
  std::shared_ptr<Bytes> packed = pack(sender, chunk, Place::replaced);
  if (packed == nullptr) return false;
  message_ = std::move(packed);
  const bool is_replaced = std::exchange(is_replaced_, false);
  if (!is_lossy(codec)) return true;
  const ByteView payload = payload_of(*message_, header_of(codec, chunk));
  if (!is_replaced) decode_values(codec, payload, chunk);
  show(codec, chunk, payload);
  return true;
}

void LaneWalk::store(int chunk) {
  decode_values(frame_.header.codec, frame_.payload, chunk);
  if (!adds_payloads_) show(frame_.header.codec, chunk, frame_.payload);
  message_ = nullptr;
}

void LaneWalk::add(int chunk) {
  if (state_.spec.is_on_device && !adds_payloads_) {
    add_on_device(chunk);
  } else if (!adds_payloads_ && is_lossy(frame_.header.codec)) {
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
  const std::size_t bytes = elements_of(tensor(chunk)) * bytes_of(state_.spec.dtype);
  const bool is_first = sum_.is_empty();
  if (is_first) sum_ = {.bytes = std::make_shared<Bytes>(bytes)};
  if (!is_first) state_.scratch.resize(bytes);
  Bytes& out = is_first ? *sum_.bytes : state_.scratch;
  decode(frame_.header.codec, frame_.payload, {}, {tensor(chunk), out.data()});
  if (is_first) return;
  add_elements(tensor(chunk), sum_.is_in_values ? values(chunk) : sum_.bytes->data() + sum_.offset,
               out.data());
}

void LaneWalk::add_on_device(int chunk) {
  const std::uint64_t bytes = elements_of(tensor(chunk)) * bytes_of(state_.spec.dtype);
  const bool is_first = sum_.is_empty();
  if (is_first) sum_.device = DeviceBuffer(std::max<std::uint64_t>(bytes, 1));
  decode_on_device(frame_.header.codec, frame_.payload, chunk,
                   is_first ? Delivery::store : Delivery::add,
                   sum_.is_in_values ? values(chunk) : sum_.device.data());
}

// Requires: the payload is that of the message at hand.
void LaneWalk::decode_on_device(const CodecSpec& codec, ByteView payload, int chunk, Delivery kind,
                                std::byte* to) {
  const TensorSpec& what = tensor(chunk);
  check_payload(codec, what, payload);
  const DeviceBuffer staged = state_.uploads.upload(codec, what, payload, message_);
  const DeviceBuffer scratch(device_scratch_bytes(codec, what));
  device_decode(codec, what, staged.data(), {.seed = payload_seed(codec, payload)},
                {.kind = kind, .dtype = what.dtype, .out = to}, scratch.data(), codec_stream());
}

void LaneWalk::decode_values(const CodecSpec& codec, ByteView payload, int chunk) {
  if (state_.spec.is_on_device)
    return decode_on_device(codec, payload, chunk, Delivery::store, values(chunk));
  decode(codec, payload, {}, {tensor(chunk), values(chunk)});
}

void LaneWalk::add_sum_to_values(int chunk) {
  if (!state_.spec.is_on_device)
    return add_elements(tensor(chunk), values(chunk), sum_.bytes->data() + sum_.offset);
  kernel::device_widen(state_.spec.dtype, sum_.device.data(), elements_of(tensor(chunk)),
                       {.kind = Delivery::add, .dtype = state_.spec.dtype, .out = values(chunk)},
                       codec_stream());
}

// The order of two addends makes no difference to their sum, so this one may be the other's place.
bool LaneWalk::add_own(int chunk) {
  if (adds_payloads_) {
    if (!hold(chunk)) return false;
    const FrameHeader header = header_of(state_.spec.up, chunk);
    if (sum_.is_empty())
      sum_ = {.bytes = std::make_shared<Bytes>(*held_), .offset = header_bytes(header)};
    else
      add_payload_of(chunk, payload_of(*held_, header));
    return true;
  }
  if (!sum_.is_empty()) add_sum_to_values(chunk);
  sum_ = {.is_in_values = true};
  return true;
}

void LaneWalk::finish_sum(int chunk) {
  const Sum sum = std::exchange(sum_, Sum{});
  if (adds_payloads_) {
    close_frame(*sum.bytes, 0, sum.bytes->size() - sum.offset - kFrameCrcBytes);
    held_ = sum.bytes;
    held_chunk_ = chunk;
    is_decoded_ = false;
    return;
  }
  const std::size_t bytes = elements_of(tensor(chunk)) * bytes_of(state_.spec.dtype);
  if (state_.spec.is_on_device) {
    if (!sum.is_in_values && bytes > 0)
      kernel::device_copy(sum.device.data(), bytes, values(chunk), codec_stream());
  } else if (!sum.is_in_values && bytes > 0)
    std::memcpy(values(chunk), sum.bytes->data() + sum.offset, bytes);
}

void LaneWalk::end() {
  message_ = held_;
  if (!is_decoded_)
    decode_values(state_.spec.up, payload_of(*held_, header_of(state_.spec.up, held_chunk_)),
                  held_chunk_);
  is_decoded_ = true;
  message_ = nullptr;
  held_ = nullptr;
}

// --- where payloads are added

void LaneWalk::add_payload_of(int chunk, ByteView payload) {
  const CodecSpec& codec = state_.spec.up;
  check_payload(codec, tensor(chunk), payload);
  const std::size_t bytes = sum_.bytes->size() - sum_.offset - kFrameCrcBytes;
  add_payload(codec, tensor(chunk), std::span(*sum_.bytes).subspan(sum_.offset, bytes), payload);
}

// Makes held_ what this member has of a chunk: its own part, encoded once, or the sum that it
// finished last. A partial sum that is dropped here has been sent on; its buffer gets the whole one
// later.
bool LaneWalk::hold(int chunk) {
  if (held_ != nullptr && held_chunk_ == chunk) return true;
  std::shared_ptr<Bytes> packed = pack(*lane_.up[index(chunk)], chunk);
  if (packed == nullptr) return false;
  held_ = std::move(packed);
  held_chunk_ = chunk;
  is_decoded_ = true;
  if (state_.observer)
    show(state_.spec.up, chunk, payload_of(*held_, header_of(state_.spec.up, chunk)));
  return true;
}

}  // namespace laconic
