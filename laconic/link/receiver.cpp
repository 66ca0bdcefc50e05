#include <fmt/format.h>

#include <limits>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/store/delta_checkpoint.hpp"
#include "laconic/link/link.hpp"
#include "laconic/store/reference_record.hpp"
#include "laconic/link/sample.hpp"

namespace laconic {

namespace {

// Refuses a frame for its header's field at `offset` (docs/wire-format.md).
[[noreturn]] void refuse(const Frame& frame, std::size_t offset, std::string field,
                         const std::string& why) {
  const std::size_t start = frame.payload_offset - header_bytes(frame.header);
  throw WireError(start + offset, std::move(field), why);
}

// Runs `act` and tells what was wrong with the bytes, or nothing. With a delta link damage is not
// the end: the sample is sent again.
template <class Act>
std::string fault_in(const Act& act) {
  try {
    act();
  } catch (const WireError& error) {
    return error.what();
  }
  return {};
}

void fill_with_nan(HostTensor out) {
  const std::size_t count = elements_of(out.spec);
  Scratch<float> nan(count);
  std::fill_n(nan.data(), count, std::numeric_limits<float>::quiet_NaN());
  narrow(out.spec.dtype, nan.data(), count, out.data);
}

std::string text_of(const TensorSpec& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
}

void require_tensor(const Frame& frame, const TensorSpec& expected) {
  if (frame.header.tensor != expected)
    refuse(frame, 7, "shape",
           fmt::format("the frame holds {}, expected {}", text_of(frame.header.tensor),
                       text_of(expected)));
}

void require_codec(const Frame& frame, const CodecSpec& expected) {
  if (frame.header.codec != expected)
    refuse(frame, 5, "codec",
           fmt::format("the frame is {}, expected {}", to_text(frame.header.codec),
                       to_text(expected)));
}

// Of the frames of a message that may still come.
struct SequenceRange {
  std::uint64_t next = 0;
  std::uint64_t end = 0;
};

// Returns how many frames before this one never came.
std::uint64_t take_sequence(const Frame& frame, SequenceRange& range) {
  const std::uint64_t sequence = frame.header.sequence;
  if (step_of(sequence) != step_of(range.end - 1))
    refuse(frame, 16, "sequence",
           fmt::format("a frame of step {} in step {}", step_of(sequence), step_of(range.end - 1)));
  if (sequence < range.next)
    refuse(frame, 16, "sequence",
           fmt::format("frame {} comes after frame {}", number_of(sequence),
                       number_of(range.next - 1)));
  if (sequence >= range.end)
    refuse(frame, 16, "sequence",
           fmt::format("frame {} in a message that ends with frame {}", number_of(sequence),
                       number_of(range.end - 1)));
  const std::uint64_t lost = sequence - range.next;
  range.next = sequence + 1;
  return lost;
}

}  // namespace

Receiver::Receiver(LinkSpec spec) : spec_(std::move(spec)) {
  Problems problems = check(spec_);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void Receiver::begin(std::uint64_t step) {
  abandon();
  sequence_ = make_sequence(step, 0);
}

void Receiver::commit() {
  refused_.clear();
  if (store_) store_->commit();
}

void Receiver::abandon() {
  refused_.clear();
  if (store_ && store_->has_staged()) store_->abandon();  // see Sender::abandon()
}

void Receiver::prefetch(std::span<const std::uint64_t> keys) {
  if (store_) store_->prefetch(keys);
}

void Receiver::recode(const CodecSpec& codec) {
  LACONIC_ASSERT(!store_ || !store_->has_staged(),
                 fmt::format("{}: step {} is open", spec_.name, step_of(sequence_)));
  LinkSpec changed = spec_;
  changed.codec = codec;
  Problems problems = check(changed);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  spec_ = std::move(changed);
}

Unpacked Receiver::unpack(ByteView bytes, HostTensor out, const MessageSpec& message) {
  const bool has_samples = std::holds_alternative<Delta>(spec_.memory) && message.use == Use::train;
  if (has_samples) return unpack_samples(bytes, out, message);
  unpack_one(bytes, out, message);
  return {};
}

void Receiver::unpack_one(ByteView bytes, HostTensor out, const MessageSpec& message) {
  const auto* delta = std::get_if<Delta>(&spec_.memory);
  const Frame frame = read_frame(bytes);
  const std::uint64_t expected = first_sequence(message);
  if (frame.header.sequence != expected)
    refuse(frame, 16, "sequence",
           fmt::format("frame {} of step {}, expected frame {} of step {}",
                       number_of(frame.header.sequence), step_of(frame.header.sequence),
                       number_of(expected), step_of(expected)));
  require_codec(frame, message.use == Use::bypass ? CodecSpec(Raw{})
                       : delta != nullptr         ? delta->first
                                                  : spec_.codec);
  require_tensor(frame, out.spec);
  if (frame.header.visit != Visit::alone)
    refuse(frame, 8, "visit", "a frame with a reference, expected one that stands alone");
  if (frame.size != bytes.size())
    throw WireError(frame.size, "frame", fmt::format("{} bytes follow", bytes.size() - frame.size));
  decode(frame.header.codec, frame.payload, {.maps = message.maps}, out);
  if (!message.number) ++sequence_;
}

std::uint64_t Receiver::first_sequence(const MessageSpec& message) const {
  return message.number ? make_sequence(step_of(sequence_), *message.number) : sequence_;
}

// Frame by frame. A fault costs the sample it hits, and those behind it when the next frame cannot
// be found any more.
Unpacked Receiver::unpack_samples(ByteView bytes, HostTensor out, const MessageSpec& message) {
  const SampleRange samples(spec_.name, out.spec, message.keys.size());
  ensure_store(store_, spec_, "receiver", samples.spec());
  if (message.is_answer)
    for (const std::uint64_t key : message.keys) refused_.erase(key);
  Unpacked result;
  const std::uint64_t first = first_sequence(message);
  SequenceRange sequences{
      first, message.number ? first + message.keys.size() : make_sequence(step_of(first) + 1, 0)};
  std::size_t offset = 0;
  std::string broken;  // why no further frame can be found
  for (std::size_t i = 0; i < message.keys.size(); ++i) {
    const std::uint64_t key = message.keys[i];
    const HostTensor slice{samples.spec(), static_cast<std::byte*>(out.data) + i * samples.bytes()};
    Frame frame;
    if (broken.empty())
      broken = fault_in([&] {
        frame = read_frame(bytes, offset);
        offset += frame.size;
      });
    const std::string why = broken.empty() ? fault_in([&] {
      result.lost += take_sequence(frame, sequences);
      if (refused_.contains(key))
        refuse(frame, 24, "key", fmt::format("sample {} was refused before in this step", key));
      unpack_sample(frame, {key, first + i}, slice);
    })
                                           : broken;
    if (why.empty()) continue;
    store_->forget(key);
    refused_.insert(key);
    fill_with_nan(slice);
    result.refused.push_back({key, why, i});
  }
  if (!message.number) sequence_ = sequences.next;
  if (message.is_answer) refused_.insert(message.keys.begin(), message.keys.end());
  if (result.refused.empty() && offset != bytes.size())
    throw WireError(offset, "frame",
                    fmt::format("{} bytes follow the frames of {} samples", bytes.size() - offset,
                                message.keys.size()));
  return result;
}

void Receiver::unpack_sample(const Frame& frame, SamplePlace place, HostTensor out) {
  const FrameHeader& header = frame.header;
  require_tensor(frame, out.spec);
  // A frame that stands alone has no key: behind a gap nobody knows whose it is.
  if (header.visit == Visit::alone && header.sequence != place.sequence)
    refuse(frame, 16, "sequence",
           fmt::format("frame {} stands alone where frame {} was expected",
                       number_of(header.sequence), number_of(place.sequence)));
  if (header.visit != Visit::alone && header.key != place.key)
    refuse(frame, 24, "key",
           fmt::format("the frame is of sample {}, expected {}", header.key, place.key));
  if (header.visit == Visit::difference)
    unpack_difference(frame, place.key, out);
  else
    unpack_first(frame, place.key, out);
}

void Receiver::unpack_first(const Frame& frame, std::uint64_t key, HostTensor out) {
  const auto& delta = std::get<Delta>(spec_.memory);
  require_codec(frame, delta.first);
  decode(delta.first, frame.payload, {}, out);
  // The sender has no reference and no room for one. If there is one here the ends have come apart,
  // and it only takes up the place of another that the sender does have.
  if (frame.header.visit == Visit::alone) return store_->forget(key);
  const auto staged = store_->stage(key, 1);
  if (!staged) return;  // our budget is smaller: the next difference is refused
  const std::size_t count = elements_of(out.spec);
  Scratch<float> decoded(count);
  decode_to_floats(delta.first, out.spec, frame.payload, {}, decoded.data());
  write_record(delta.reference, decoded.data(), count, *staged);
  if (!is_finite(delta.reference, *staged, count)) store_->stage_forget(key);
}

void Receiver::unpack_difference(const Frame& frame, std::uint64_t key, HostTensor out) {
  const auto& delta = std::get<Delta>(spec_.memory);
  require_codec(frame, spec_.codec);
  const auto record = store_->find(key);
  if (!record) refuse(frame, 8, "visit", "a difference to a reference that is not here");
  if (record->visits != frame.header.visits)
    refuse(frame, 12, "visits",
           fmt::format("the sender counts {}, here were {}", frame.header.visits, record->visits));
  if (frame.header.hash && *frame.header.hash != hash_of(record->bytes))
    refuse(frame, header_bytes(frame.header) - 8, "hash",
           fmt::format("the references differ after {} visits", record->visits));
  check_payload(spec_.codec, out.spec, frame.payload);
  const std::span<std::byte> staged = store_->stage(key, record->visits + 1).value();
  ReferenceUpdate update(delta.reference, elements_of(out.spec), record->bytes, staged);
  decode_difference(spec_.codec, frame.payload, update.before(), update.after(), {}, out);
  const bool is_sound = is_finite(spec_.codec, out.spec, frame.payload) && update.finish();
  if (!is_sound) store_->stage_forget(key);
}

void Receiver::save(const std::string& path) {
  LACONIC_ASSERT(!store_ || !store_->has_staged(),
                 fmt::format("{}: step {} is open", spec_.name, step_of(sequence_)));
  save_references(store_.get(), spec_, path);
}

void Receiver::load(const std::string& path) {
  store_ = load_references(spec_, "receiver", path);
}

}  // namespace laconic
