#include <fmt/format.h>

#include <limits>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/link/link.hpp"
#include "laconic/link/sample.hpp"
#include "laconic/store/delta_checkpoint.hpp"
#include "laconic/store/reference_record.hpp"

namespace laconic {

// What an end expects of a frame is a FrameHeader that it derives from the MessageSpec, as the
// sender does (link/message.hpp). A link without references compares it field by field and throws
// at any difference. A Delta link goes on: a frame that is not as expected costs its sample only.
//
//   refuse     fill the sample with NaN, forget its reference, report it in Unpacked::refused
//   then       the caller asks the sender, which forgets the sample too and packs it anew, in a
//              further turn, as a first visit: both ends hold the same reference again
//
// Meanwhile the sender may have packed further messages with that sample, as differences to a
// reference that is gone here, or as a second visit after a first one that nobody understood. Their
// frames are sound by themselves. `refused_` remembers the keys until the step ends, so that these
// are refused, too, whatever they say; only messages of turn > 0 were surely packed after the
// sender forgot. They are taken, and their keys stay in `refused_` for messages that are still
// under way.

namespace {

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

// The sequence numbers that further frames of a message may have.
struct SequenceRange {
  std::uint64_t next = 0;
  std::uint64_t end = 0;
};

// Refuses a frame that cannot be the next of its message. Those before it may be missing.
void take_sequence(const Frame& frame, SequenceRange& range) {
  const std::uint64_t sequence = frame.header.sequence;
  if (step_of(sequence) != step_of(range.end - 1))
    refuse_frame(
        frame, "sequence",
        fmt::format("a frame of step {} in step {}", step_of(sequence), step_of(range.end - 1)));
  if (sequence < range.next || sequence >= range.end)
    refuse_frame(frame, "sequence",
                 fmt::format("frame {}, expected one of {} to {}", number_of(sequence),
                             number_of(range.next), number_of(range.end - 1)));
  range.next = sequence + 1;
}

}  // namespace

Receiver::Receiver(LinkSpec spec) : spec_(std::move(spec)) {
  refuse(check(spec_));
}

void Receiver::begin(std::uint64_t step) {
  abandon();
  step_ = step;
}

void Receiver::commit() {
  refused_.clear();
  commit_bases(spec_, basis_, first_basis_);
  if (!store_) return;
  verdicts_.settle_all(*store_);
  store_->commit();
}

void Receiver::abandon() {
  refused_.clear();
  basis_.abandon();
  first_basis_.abandon();
  verdicts_.clear();
  if (store_ && store_->has_staged()) store_->abandon();  // see Sender::abandon()
}

void Receiver::prefetch(std::span<const std::uint64_t> keys) {
  if (store_) store_->prefetch(keys);
}

void Receiver::set_codec(const CodecSpec& codec) {
  LACONIC_ASSERT(!store_ || !store_->has_staged(),
                 fmt::format("{}: step {} is open", spec_.name, step_));
  LinkSpec changed = spec_;
  changed.codec = codec;
  refuse(check(changed));
  if (codec != spec_.codec) basis_.forget();
  spec_ = std::move(changed);
}

Unpacked Receiver::unpack(ByteView bytes, HostTensor out, const MessageSpec& message) {
  if (goes_by_sample(spec_, message)) return unpack_samples(bytes, out, message);
  const Frame frame = read_expected(bytes, frame_header(spec_, step_, message, out.spec));
  const bool is_first = std::holds_alternative<Delta>(spec_.memory);  // as in evaluations
  const CodecInput input{.maps = message.maps,
                         .transform = (is_first ? first_basis_ : basis_).current()};
  decode(frame.header.codec, frame.payload, input, out);
  if (message.use == Use::train &&
      BasisMemory::teaches(frame.header.codec, message, out.spec, frame.payload)) {
    Scratch<float> decoded(elements_of(out.spec));
    decode_to_floats(frame.header.codec, out.spec, frame.payload, input, decoded.data());
    basis_.learn(message, 0, out.spec, decoded.data());
  }
  return {};
}

// Goes frame by frame. A fault costs the sample it hits, and those behind it when the next frame
// cannot be found any more.
Unpacked Receiver::unpack_frames(ByteView bytes, const MessageSpec& message,
                                 const SampleSteps& steps) {
  const bool is_answer = message.turn > 0;
  if (is_answer)
    for (const std::uint64_t key : message.samples) refused_.erase(key);
  Unpacked result;
  const std::uint64_t first = sequence_of(spec_, step_, message);
  SequenceRange sequences{first, first + message.samples.size()};
  std::size_t offset = 0;
  std::string broken;  // why no further frame can be found
  for (std::size_t i = 0; i < message.samples.size(); ++i) {
    const std::uint64_t key = message.samples[i];
    Frame frame;
    if (broken.empty())
      broken = fault_in([&] {
        frame = read_frame(bytes, offset);
        offset += frame.size;
      });
    const std::string why = broken.empty() ? fault_in([&] {
      take_sequence(frame, sequences);
      if (refused_.contains(key))
        refuse_frame(frame, "key", fmt::format("sample {} was refused before in this step", key));
      steps.unpack(frame, i);
    })
                                           : broken;
    if (why.empty()) continue;
    forget(key);
    refused_.insert(key);
    basis_.refused();
    first_basis_.refused();
    steps.spoil(i);
    result.refused.push_back({key, why, i});
  }
  if (is_answer) refused_.insert(message.samples.begin(), message.samples.end());
  if (result.refused.empty() && offset != bytes.size())
    throw WireError(offset, "frame",
                    fmt::format("{} bytes follow the frames of {} samples", bytes.size() - offset,
                                message.samples.size()));
  return result;
}

Unpacked Receiver::unpack_samples(ByteView bytes, HostTensor out, const MessageSpec& message) {
  const SampleRange samples(spec_.name, out.spec, message.samples.size());
  ensure_store(store_, spec_, "receiver", samples.spec());
  const auto slice = [&](std::size_t i) {
    return HostTensor{samples.spec(), static_cast<std::byte*>(out.data) + i * samples.bytes()};
  };
  const auto unpack = [&](const Frame& frame, std::size_t i) {
    require_visit(frame, message, i, samples.spec());
    if (frame.header.visit == Visit::difference)
      unpack_difference(frame, message, i, slice(i), out.spec);
    else
      unpack_first(frame, message, i, slice(i), out.spec);
  };
  return unpack_frames(bytes, message, {unpack, [&](std::size_t i) { fill_with_nan(slice(i)); }});
}

// Compares the frame with the one that the sender would write for this visit. A key says whose
// frame it is even if others are missing before it. A frame that stands alone has none: only its
// place in the message tells, so its number must be exactly the expected one.
void Receiver::require_visit(const Frame& frame, const MessageSpec& message, std::size_t index,
                             const TensorSpec& sample) {
  const Visit visit = frame.header.visit;
  const std::uint64_t key = message.samples[index];
  verdicts_.settle(key, *store_);
  const auto visits = visit == Visit::difference ? store_->visits_of(key) : std::nullopt;
  FrameHeader expected = frame_header(spec_, step_, message, sample,
                                      {index, visit, visits.value_or(frame.header.visits)});
  if (visit != Visit::alone) expected.sequence = frame.header.sequence;
  require_header(frame, expected);
  if (visit != Visit::difference) return;
  if (!visits) refuse_frame(frame, "visit", "a difference to a reference that is not here");
  if (frame.header.hash && *frame.header.hash != hash_of(store_->find(key)->bytes))
    refuse_frame(frame, "hash", fmt::format("the references differ after {} visits", *visits));
}

void Receiver::unpack_first(const Frame& frame, const MessageSpec& message, std::size_t index,
                            HostTensor out, const TensorSpec& whole) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = message.samples[index];
  const CodecInput input{.transform = first_basis_.current()};
  decode(delta.first, frame.payload, input, out);
  const std::size_t count = elements_of(out.spec);
  Scratch<float> decoded;
  const bool teaches = BasisMemory::teaches(delta.first, message, whole, frame.payload);
  if (teaches) {
    decoded.resize(count);
    decode_to_floats(delta.first, out.spec, frame.payload, input, decoded.data());
    first_basis_.learn(message, index, out.spec, decoded.data());
  }
  // The sender has no reference and no room for one. If there is one here the ends have come apart,
  // and it only takes up the place of another that the sender does have.
  if (frame.header.visit == Visit::alone) return forget(key);
  verdicts_.settle_for(key, *store_);
  const auto staged = store_->stage(key, 1);
  if (!staged) return;  // our budget is smaller: the next difference is refused
  if (!teaches) {
    decoded.resize(count);
    decode_to_floats(delta.first, out.spec, frame.payload, input, decoded.data());
  }
  write_record(delta.reference, decoded.data(), count, *staged);
  if (!is_finite(delta.reference, *staged, count)) store_->stage_forget(key);
}

void Receiver::unpack_difference(const Frame& frame, const MessageSpec& message, std::size_t index,
                                 HostTensor out, const TensorSpec& whole) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = frame.header.key;
  check_payload(spec_.codec, out.spec, frame.payload);
  const DeltaStore::Record record = store_->find(key).value();
  const std::span<std::byte> staged = store_->stage(key, record.visits + 1).value();
  ReferenceUpdate update(delta.reference, elements_of(out.spec), record.bytes, staged);
  decode_difference(spec_.codec, frame.payload, update.before(), update.after(),
                    {.transform = basis_.current()}, out);
  if (BasisMemory::teaches(spec_.codec, message, whole, frame.payload))
    learn_change(basis_, message, index, out.spec, update);
  const bool is_sound = is_finite(spec_.codec, out.spec, frame.payload) && update.finish();
  if (!is_sound) store_->stage_forget(key);
}

void Receiver::forget(std::uint64_t key) {
  verdicts_.drop(key);
  store_->forget(key);
}

void Receiver::save(const std::string& path) {
  LACONIC_ASSERT(!store_ || !store_->has_staged(),
                 fmt::format("{}: step {} is open", spec_.name, step_));
  save_bases(basis_, first_basis_, path);
  save_references(store_.get(), spec_, path);
}

void Receiver::load(const std::string& path) {
  store_ = load_references(spec_, "receiver", path);
  load_bases(basis_, first_basis_, path);
  verdicts_.clear();
}

}  // namespace laconic
