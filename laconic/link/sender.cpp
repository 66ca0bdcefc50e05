#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/link/link.hpp"
#include "laconic/link/sample.hpp"
#include "laconic/store/delta_checkpoint.hpp"
#include "laconic/store/reference_record.hpp"

namespace laconic {

// Delta coding (AC-SGD). Of every sample k both ends keep a reference r, what the receiver saw of
// it last. Activations x of a sample change little from epoch to epoch, so the difference is small,
// and a codec C that loses a share of what it encodes loses a share of little:
//
//   first visit   y = C'(x)          C' is Delta::first, good enough by itself
//   later ones    y = r + C(x - r)   the error is that of C on x - r, not on x
//
// In both cases the receiver hands on y, and both ends keep y, rounded to the kind of reference, as
// the next r. The sender does not keep x: what is lost now would be lost for good, while x - r of
// the next visit holds it again. Both ends compute y by the same operations from the same bytes, so
// references agree bit by bit as long as every message arrives; `visits` in each frame and a hash
// of r in some of them find out when they do not (receiver.cpp).
//
// A frame is written in the order: find the `record` of the sample, stage() room for the next one,
// encode into the frame with the memory updated in the same pass (ReferenceUpdate: before() is r,
// after() is y), and forget the sample if y is not finite. What is staged is visible to later
// messages of the step and becomes the reference at commit().

namespace {

void require_valid(const LinkSpec& spec) {
  refuse(check(spec));
}

}  // namespace

Sender::Sender(LinkSpec spec) : spec_(std::move(spec)) {
  require_valid(spec_);
}

void Sender::begin(std::uint64_t step) {
  abandon();
  step_ = step;
  const auto* feedback = std::get_if<ErrorFeedback>(&spec_.memory);
  if (feedback == nullptr || feedback->reset != Reset::step) return;
  feedback_.drop_residual();
  if (device_feedback_) device_feedback_->drop_residual();
}

void Sender::commit() {
  feedback_.commit();
  if (device_feedback_) device_feedback_->commit();
  commit_bases(spec_, basis_, first_basis_);
  if (!store_) return;
  verdicts_.settle_all(*store_);
  store_->commit();
}

void Sender::abandon() {
  feedback_.abandon();
  if (device_feedback_) device_feedback_->abandon();
  basis_.abandon();
  first_basis_.abandon();
  verdicts_.clear();
  // Without a step under way there is nothing to end, and what was prefetched for the next stays.
  if (store_ && store_->has_staged()) store_->abandon();
}

void Sender::forget(std::span<const std::uint64_t> keys) {
  if (!keys.empty()) {
    basis_.refused();
    first_basis_.refused();
  }
  for (const std::uint64_t key : keys) {
    verdicts_.drop(key);
    if (store_) store_->forget(key);
  }
}

void Sender::prefetch(std::span<const std::uint64_t> keys) {
  if (store_) store_->prefetch(keys);
}

void Sender::set_codec(const CodecSpec& codec) {
  require_closed();
  LinkSpec changed = spec_;
  changed.codec = codec;
  require_valid(changed);
  if (codec.index() != spec_.codec.index()) {
    feedback_.drop_basis();
    if (device_feedback_) device_feedback_->drop_basis();
  }
  if (codec != spec_.codec) basis_.forget();
  spec_ = std::move(changed);
}

void Sender::set_residual(const std::vector<std::int64_t>& shape, std::span<const float> values) {
  require_closed();
  bring_home();  // a warm start stays
  feedback_.set_residual(shape, values);
}

void Sender::set_basis(std::span<const float> values) {
  require_closed();
  feedback_.set_basis(values);
}

void Sender::require_closed() const {
  LACONIC_ASSERT(!feedback_.has_open() && !(device_feedback_ && device_feedback_->has_open()) &&
                     (!store_ || !store_->has_staged()),
                 fmt::format("{}: step {} is open", spec_.name, step_));
}

Bytes Sender::pack(ConstHostTensor x, const MessageSpec& message) {
  if (goes_by_sample(spec_, message)) return pack_samples(x, message);
  const bool is_remembered = message.use == Use::train;
  const FrameHeader header = frame_header(spec_, step_, message, x.spec);
  require_encodable(spec_.name, header.codec, x.spec);
  Bytes out;
  const std::span<std::byte> room = open_frame(out, header);
  const CodecInput input{.seed = message_seed(spec_.seed, header.sequence), .maps = message.maps};
  const std::size_t bytes = is_remembered ? encode_remembering(x, input, message, room)
                                          : encode_forgetting(x, input, header.codec, room);
  close_frame(out, 0, bytes);
  return out;
}

// Begins where the last message ended, and leaves that as it is.
std::size_t Sender::encode_forgetting(ConstHostTensor x, CodecInput input, const CodecSpec& codec,
                                      std::span<std::byte> room) const {
  std::vector<float> start;
  if (spec_.has_warm_start && std::holds_alternative<LowRank>(codec)) {
    start.assign(basis().begin(), basis().end());
    input.basis = &start;
  }
  const bool is_first = std::holds_alternative<Delta>(spec_.memory);
  input.transform = (is_first ? first_basis_ : basis_).current();
  return encode(codec, x, input, room);
}

// Encodes with what is remembered, and remembers it anew: the residual with ErrorFeedback, the warm
// start with low_rank.
std::size_t Sender::encode_remembering(ConstHostTensor x, CodecInput input,
                                       const MessageSpec& message, std::span<std::byte> room) {
  input.transform = basis_.basis_for(spec_.codec, step_, message, x.spec);
  const bool with_residual = std::holds_alternative<ErrorFeedback>(spec_.memory);
  if (with_residual) require_float(spec_.name, x.spec.dtype);
  std::size_t bytes = 0;
  const bool is_warm = spec_.has_warm_start && std::holds_alternative<LowRank>(spec_.codec);
  if (with_residual || is_warm) {
    bring_home();
    const Feedback::Attempt attempt = feedback_.attempt(x.spec.shape, with_residual);
    if (is_warm) input.basis = attempt.basis;
    bytes = with_residual
                ? encode_with_feedback(spec_.codec, x, attempt.before, attempt.after, input, room)
                : encode(spec_.codec, x, input, room);
    const bool is_sound =
        with_residual ? is_finite(attempt.after, elements_of(x.spec)) : !attempt.basis->empty();
    if (is_sound) feedback_.accept();
  } else {
    bytes = encode(spec_.codec, x, input, room);
  }
  if (BasisMemory::teaches(spec_.codec, message, x.spec, room.first(bytes))) {
    Scratch<float> decoded(elements_of(x.spec));
    decode_to_floats(spec_.codec, x.spec, room.first(bytes), input, decoded.data());
    basis_.learn(message, 0, x.spec, decoded.data());
  }
  if (fidelity_ != nullptr && is_lossy(spec_.codec))
    measure_payload(spec_.codec, x, room.first(bytes), input,
                    with_residual ? square_of(feedback_.residual()) : 0);
  return bytes;
}

// Decodes the payload as the receiver will; a sender may lack the decoder of learned maps, and then
// cannot.
void Sender::measure_payload(const CodecSpec& codec, ConstHostTensor x, ByteView payload,
                             const CodecInput& input, double residual) const {
  if (std::holds_alternative<AutoEncoder>(codec) && input.maps.decoder == nullptr) return;
  Scratch<float> decoded(elements_of(x.spec));
  decode_to_floats(codec, x.spec, payload, {.maps = input.maps, .transform = input.transform},
                   decoded.data());
  measure(x, decoded.data(), residual);
}

void Sender::measure(ConstHostTensor x, const float* decoded, double residual) const {
  const std::size_t count = elements_of(x.spec);
  Scratch<float> wide;
  if (x.spec.dtype != Dtype::f32) {
    wide.resize(count);
    widen(x.spec.dtype, x.data, count, wide.data());
  }
  const float* truth = wide.empty() ? static_cast<const float*>(x.data) : wide.data();
  Fidelity found = compare({truth, count}, {decoded, count});
  if (!std::isfinite(found.truth)) return;
  found.residual = residual;
  *fidelity_ += found;
}

// One frame for each sample: its first visit, or the difference to its reference.
Bytes Sender::pack_samples(ConstHostTensor x, const MessageSpec& message) {
  const SampleRange samples(spec_.name, x.spec, message.samples.size());
  require_encodable(spec_.name, spec_.codec, samples.spec());
  require_encodable(spec_.name, std::get<Delta>(spec_.memory).first, samples.spec());
  ensure_store(store_, spec_, "sender", samples.spec());
  Bytes out;
  out.reserve(max_bytes(samples.spec(), message));
  const auto* data = static_cast<const std::byte*>(x.data);
  for (std::size_t i = 0; i < message.samples.size(); ++i) {
    const ConstHostTensor sample{samples.spec(), data + i * samples.bytes()};
    verdicts_.settle(message.samples[i], *store_);
    if (const auto record = store_->find(message.samples[i]))
      pack_difference(sample, message, i, x.spec, *record, out);
    else
      pack_first(sample, message, i, x.spec, out);
  }
  return out;
}

// What the frames of a message take at most, so that it is allocated once.
std::size_t Sender::max_bytes(const TensorSpec& sample, const MessageSpec& message) const {
  if (message.samples.empty()) return 0;
  FrameHeader longest = frame_header(spec_, step_, message, sample, {0, Visit::difference, 1});
  longest.hash = 0;
  const std::size_t difference_bytes = max_frame_bytes(longest);
  longest.codec = std::get<Delta>(spec_.memory).first;
  const std::size_t first_bytes = max_frame_bytes(longest);
  std::size_t bytes = 0;
  for (const std::uint64_t key : message.samples)
    bytes += store_->contains(key) ? difference_bytes : first_bytes;
  return bytes;
}

void Sender::pack_first(ConstHostTensor x, const MessageSpec& message, std::size_t index,
                        const TensorSpec& whole, Bytes& out) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = message.samples[index];
  const std::size_t start = out.size();
  const std::size_t count = elements_of(x.spec);
  verdicts_.settle_for(key, *store_);
  // Without room for another reference the sample stands alone, now and at every later visit.
  const auto staged = store_->stage(key, 1);
  const FrameHeader header =
      frame_header(spec_, step_, message, x.spec, {index, staged ? Visit::first : Visit::alone, 0});
  const CodecInput input{.seed = message_seed(spec_.seed, header.sequence),
                         .transform = first_basis_.basis_for(delta.first, step_, message, whole)};
  const std::span<std::byte> room = open_frame(out, header);
  const std::size_t bytes = encode(delta.first, x, input, room);
  const ByteView payload = room.first(bytes);
  const bool teaches = BasisMemory::teaches(delta.first, message, whole, payload);
  if (staged || teaches) {
    // The reference is what the receiver decodes, not x.
    Scratch<float> decoded(count);
    decode_to_floats(delta.first, x.spec, payload, input, decoded.data());
    if (teaches) first_basis_.learn(message, index, x.spec, decoded.data());
    if (staged) write_record(delta.reference, decoded.data(), count, *staged);
    if (staged && !is_finite(delta.reference, *staged, count)) store_->stage_forget(key);
  }
  if (fidelity_ != nullptr && is_lossy(delta.first))
    measure_payload(delta.first, x, payload, input, 0);
  close_frame(out, start, bytes);
}

void Sender::pack_difference(ConstHostTensor x, const MessageSpec& message, std::size_t index,
                             const TensorSpec& whole, const DeltaStore::Record& record,
                             Bytes& out) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = message.samples[index];
  const std::size_t start = out.size();
  FrameHeader header =
      frame_header(spec_, step_, message, x.spec, {index, Visit::difference, record.visits});
  if (is_hashed(key, record.visits, delta.hash_every)) header.hash = hash_of(record.bytes);
  const CodecInput input{.seed = message_seed(spec_.seed, header.sequence),
                         .transform = basis_.basis_for(spec_.codec, step_, message, whole)};
  const std::span<std::byte> room = open_frame(out, header);
  const std::span<std::byte> staged = store_->stage(key, record.visits + 1).value();  // known key
  ReferenceUpdate update(delta.reference, elements_of(x.spec), record.bytes, staged);
  const std::size_t bytes =
      encode_difference(spec_.codec, x, update.before(), update.after(), input, room);
  if (BasisMemory::teaches(spec_.codec, message, whole, room.first(bytes)))
    learn_change(basis_, message, index, x.spec, update);
  if (fidelity_ != nullptr && is_lossy(spec_.codec)) measure_update(x, update.after());
  const bool is_sound = is_finite(spec_.codec, x.spec, room.first(bytes)) && update.finish();
  if (!is_sound) store_->stage_forget(key);
  close_frame(out, start, bytes);
}

// Compares with what the receiver hands on: the new reference, before it is rounded for keeping, in
// the tensor's own dtype.
void Sender::measure_update(ConstHostTensor x, const float* after) const {
  if (x.spec.dtype == Dtype::f32) return measure(x, after, 0);
  const std::size_t count = elements_of(x.spec);
  Scratch<std::uint64_t> narrowed(count * bytes_of(x.spec.dtype) / 8 + 1);  // aligned for any dtype
  Scratch<float> decoded(count);
  narrow(x.spec.dtype, after, count, narrowed.data());
  widen(x.spec.dtype, narrowed.data(), count, decoded.data());
  measure(x, decoded.data(), 0);
}

void Sender::save(const std::string& path) {
  require_closed();
  bring_home();
  feedback_.save(path);
  save_bases(basis_, first_basis_, path);
  save_references(store_.get(), spec_, path);
}

void Sender::load(const std::string& path) {
  Feedback feedback;
  feedback.load(path);
  store_ = load_references(spec_, "sender", path);
  load_bases(basis_, first_basis_, path);
  verdicts_.clear();
  feedback_ = std::move(feedback);
  device_feedback_ = nullptr;
}

}  // namespace laconic
