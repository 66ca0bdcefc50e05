// Samples with references that a GPU encodes and decodes. Frames and records are those that
// sender.cpp and receiver.cpp make; what is known late here, link/verdict.hpp brings to the store.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/link/device_sample.hpp"
#include "laconic/link/link.hpp"
#include "laconic/link/sample.hpp"

namespace laconic {

namespace {

std::uint64_t part_bytes(const CodecSpec& codec, const TensorSpec& sample) {
  return kMarkBytes + (staged_bytes(codec, sample) + 15) / 16 * 16;
}

// The next part's flag, cleared.
std::uint32_t* clear_flag(const Download& download, std::uint64_t at) {
  kernel::device_clear(download.device(at), kMarkBytes, codec_stream());
  return reinterpret_cast<std::uint32_t*>(download.device(at));
}

// Decoded numbers of the tensor's dtype as f32.
void widen_on_device(Dtype dtype, const void* values, std::uint64_t count, float* out) {
  kernel::device_widen(dtype, static_cast<const std::byte*>(values), count, {.out = out},
                       codec_stream());
}

Bytes nan_of(const TensorSpec& sample) {
  const std::size_t count = elements_of(sample);
  const std::vector<float> nan(count, std::numeric_limits<float>::quiet_NaN());
  Bytes bytes(count * bytes_of(sample.dtype));
  narrow_bytes(sample.dtype, nan.data(), count, bytes.data());
  return bytes;
}

}  // namespace

DeviceMessage Sender::pack_samples_on_device(ConstDeviceTensor x, const MessageSpec& message) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const SampleRange samples(spec_.name, x.spec, message.samples.size());
  require_encodable(spec_.name, spec_.codec, samples.spec());
  require_encodable(spec_.name, delta.first, samples.spec());
  ensure_store(store_, spec_, "sender", samples.spec());
  const std::uint64_t most =
      std::max(part_bytes(spec_.codec, samples.spec()), part_bytes(delta.first, samples.spec()));
  auto download = std::make_shared<Download>(message.samples.size() * most);
  std::vector<DeviceMessage::Part> parts;
  const auto* data = static_cast<const std::byte*>(x.data);
  for (std::size_t i = 0; i < message.samples.size(); ++i) {
    const ConstDeviceTensor sample{samples.spec(), data + i * samples.bytes()};
    const std::uint64_t key = message.samples[i];
    verdicts_.settle(key, *store_);
    const auto visits = store_->visits_of(key);
    parts.push_back(visits ? pack_difference_on_device(sample, message,
                                                       {i, Visit::difference, *visits}, download)
                           : pack_first_on_device(sample, message, i, download));
  }
  store_->mark_queued();
  return {std::move(download), std::move(parts)};
}

DeviceMessage::Part Sender::pack_first_on_device(ConstDeviceTensor x, const MessageSpec& message,
                                                 std::size_t index,
                                                 const std::shared_ptr<Download>& download) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = message.samples[index], count = elements_of(x.spec);
  verdicts_.settle_for(key, *store_);
  const auto room = store_->stage_for_device(key, 1, is_hashed(key, 1, delta.hash_every));
  const FrameHeader header =
      frame_header(spec_, step_, message, x.spec, {index, room ? Visit::first : Visit::alone, 0});
  const DeviceInput input{.seed = message_seed(spec_.seed, header.sequence)};
  const std::uint64_t at = download->take(part_bytes(delta.first, x.spec));
  std::byte* const staged = download->device(at + kMarkBytes);
  const DeviceBuffer scratch(device_scratch_bytes(delta.first, x.spec));
  device_encode(delta.first, x.spec, {x.spec.dtype, x.data}, input, staged, scratch.data(),
                codec_stream());
  if (room) {
    // The reference is what the receiver decodes, not x.
    const DeviceBuffer decoded(count * bytes_of(x.spec.dtype));
    device_decode(delta.first, x.spec, staged, input,
                  {.dtype = x.spec.dtype, .out = decoded.data()}, scratch.data(), codec_stream());
    DeviceReferenceUpdate update(delta.reference, count, *room);
    widen_on_device(x.spec.dtype, decoded.data(), count, update.after());
    update.finish(clear_flag(*download, at));
    verdicts_.add(key, [download, at] { return !is_marked(*download, at); });
  }
  return {header, at + kMarkBytes};
}

DeviceMessage::Part Sender::pack_difference_on_device(ConstDeviceTensor x,
                                                      const MessageSpec& message,
                                                      const SampleVisit& visit,
                                                      const std::shared_ptr<Download>& download) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const std::uint64_t key = message.samples[visit.index];
  FrameHeader header = frame_header(spec_, step_, message, x.spec, visit);
  // Such a record was not given to the GPU, so nobody waits here.
  if (is_hashed(key, visit.visits, delta.hash_every))
    header.hash = hash_of(store_->find(key)->bytes);
  const DeltaStore::Record record = store_->find_for_device(key).value();
  const std::uint32_t visits = visit.visits + 1;
  const DeltaStore::Room room =
      store_->stage_for_device(key, visits, is_hashed(key, visits, delta.hash_every)).value();
  DeviceReferenceUpdate update(delta.reference, elements_of(x.spec), room);
  const DeviceSource source{.dtype = x.spec.dtype,
                            .x = x.data,
                            .memory = kernel::Memory::difference,
                            .before = update.before(record),
                            .after = update.after()};
  const std::uint64_t at = download->take(part_bytes(spec_.codec, x.spec));
  const DeviceBuffer scratch(device_scratch_bytes(spec_.codec, x.spec));
  device_encode(spec_.codec, x.spec, source, {.seed = message_seed(spec_.seed, header.sequence)},
                download->device(at + kMarkBytes), scratch.data(), codec_stream());
  const bool is_rounded = delta.reference != Reference::f32;
  update.finish(is_rounded ? clear_flag(*download, at) : nullptr);
  verdicts_.add(key, [download, at, is_rounded, codec = spec_.codec, sample = x.spec] {
    if (is_rounded && is_marked(*download, at)) return false;
    return staged_bytes(codec, sample) == 0 ||
           is_staged_finite(codec, sample, download->host(at + kMarkBytes));
  });
  return {header, at + kMarkBytes};
}

Unpacked Receiver::unpack_samples_on_device(const SharedBytes& bytes, DeviceTensor out,
                                            const MessageSpec& message) {
  const SampleRange samples(spec_.name, out.spec, message.samples.size());
  ensure_store(store_, spec_, "receiver", samples.spec());
  const auto flags = std::make_shared<Download>(message.samples.size() * kMarkBytes);
  const auto slice = [&](std::size_t i) {
    return DeviceTensor{samples.spec(), static_cast<std::byte*>(out.data) + i * samples.bytes()};
  };
  const auto unpack = [&](const Frame& frame, std::size_t i) {
    require_visit(frame, message, i, samples.spec());
    if (frame.header.visit == Visit::difference)
      unpack_difference_on_device({frame, bytes}, slice(i), flags);
    else
      unpack_first_on_device({frame, bytes}, message.samples[i], slice(i), flags);
  };
  const auto spoil = [&](std::size_t i) {
    uploads_.upload(nan_of(samples.spec()), static_cast<std::byte*>(slice(i).data));
  };
  Unpacked unpacked = unpack_frames(*bytes, message, {unpack, spoil});
  flags->close();
  store_->mark_queued();
  return unpacked;
}

void Receiver::unpack_first_on_device(const SharedFrame& shared, std::uint64_t key,
                                      DeviceTensor out, const std::shared_ptr<Download>& flags) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const Frame& frame = shared.frame;
  check_payload(delta.first, out.spec, frame.payload);
  decode_on_device(shared, {.dtype = out.spec.dtype, .out = out.data});
  if (frame.header.visit == Visit::alone) return forget(key);  // see unpack_first()
  verdicts_.settle_for(key, *store_);
  const auto room = store_->stage_for_device(key, 1, is_hashed(key, 1, delta.hash_every));
  if (!room) return;
  const std::uint64_t count = elements_of(out.spec), at = flags->take(kMarkBytes);
  DeviceReferenceUpdate update(delta.reference, count, *room);
  widen_on_device(out.spec.dtype, out.data, count, update.after());
  update.finish(clear_flag(*flags, at));
  verdicts_.add(key, [flags, at] { return !is_marked(*flags, at); });
}

void Receiver::unpack_difference_on_device(const SharedFrame& shared, DeviceTensor out,
                                           const std::shared_ptr<Download>& flags) {
  const auto& delta = std::get<Delta>(spec_.memory);
  const Frame& frame = shared.frame;
  const std::uint64_t key = frame.header.key;
  check_payload(spec_.codec, out.spec, frame.payload);
  const DeltaStore::Record record = store_->find_for_device(key).value();
  const std::uint32_t visits = record.visits + 1;
  const DeltaStore::Room room =
      store_->stage_for_device(key, visits, is_hashed(key, visits, delta.hash_every)).value();
  DeviceReferenceUpdate update(delta.reference, elements_of(out.spec), room);
  decode_on_device(shared, {.kind = Delivery::difference,
                            .dtype = out.spec.dtype,
                            .out = out.data,
                            .before = update.before(record),
                            .after = update.after()});
  const bool is_rounded = delta.reference != Reference::f32;
  const std::uint64_t at = is_rounded ? flags->take(kMarkBytes) : 0;
  update.finish(is_rounded ? clear_flag(*flags, at) : nullptr);
  if (!is_finite(spec_.codec, out.spec, frame.payload))
    store_->stage_forget(key);
  else if (is_rounded)
    verdicts_.add(key, [flags, at] { return !is_marked(*flags, at); });
}

}  // namespace laconic
