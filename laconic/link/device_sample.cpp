#include "laconic/link/device_sample.hpp"

#include <cstring>

#include "laconic/codec/convert.hpp"

namespace laconic {

namespace {

TensorSpec flat(std::uint64_t count) {
  return {Dtype::f32, {static_cast<std::int64_t>(count)}};
}

}  // namespace

DeviceReferenceUpdate::DeviceReferenceUpdate(Reference kind, std::uint64_t count,
                                             const DeltaStore::Room& room)
    : kind_(kind), count_(count), room_(room), record_(room.bytes.data()) {
  if (room.place != RecordPlace::device) {
    new_ = DeviceBuffer(room.bytes.size());
    record_ = new_.data();
  }
  if (kind != Reference::f32) floats_ = DeviceBuffer(count * sizeof(float));
  after_ = kind == Reference::f32 ? reinterpret_cast<float*>(record_) : floats_.floats();
}

const float* DeviceReferenceUpdate::before(const DeltaStore::Record& record) {
  const std::byte* bytes = record.bytes.data();
  if (record.place != RecordPlace::device) {
    old_ = DeviceBuffer(record.bytes.size());
    copy_to_device(bytes, record.bytes.size(), old_.data());
    bytes = old_.data();
  }
  if (kind_ == Reference::f32) return reinterpret_cast<const float*>(bytes);
  const CodecSpec codec = record_codec(kind_);
  const DeviceBuffer scratch(device_scratch_bytes(codec, flat(count_)));
  device_decode(codec, flat(count_), bytes, {}, {.out = after_}, scratch.data(), codec_stream());
  return after_;
}

void DeviceReferenceUpdate::finish(std::uint32_t* is_unsound) {
  if (kind_ != Reference::f32) {
    const CodecSpec codec = record_codec(kind_);
    const DeviceBuffer scratch(device_scratch_bytes(codec, flat(count_)));
    device_encode(codec, flat(count_), {.x = after_}, {}, record_, scratch.data(), codec_stream());
  }
  if (is_unsound != nullptr) {
    const TellingNumbers numbers = telling_numbers(kind_, count_);
    kernel::device_check_finite(numbers.dtype, record_, numbers.count, is_unsound, codec_stream());
  }
  if (room_.place != RecordPlace::device)
    copy_to_host(record_, room_.bytes.size(), room_.bytes.data());
}

bool is_marked(Download& download, std::uint64_t at) {
  std::uint32_t flag = 0;
  std::memcpy(&flag, download.host(at), sizeof flag);
  return flag != 0;
}

bool is_staged_finite(const CodecSpec& codec, const TensorSpec& tensor, const std::byte* staged) {
  const ByteView bytes(staged, staged_bytes(codec, tensor));
  const bool is_payload =
      !std::holds_alternative<TopK>(codec) && !std::holds_alternative<Huffman>(codec);
  if (is_payload) return is_finite(codec, tensor, bytes);
  Scratch<std::byte> payload(max_payload_bytes(codec, tensor));
  const std::span<std::byte> room(payload.data(), payload.size());
  return is_finite(codec, tensor, room.first(unstage(codec, tensor, bytes, room)));
}

}  // namespace laconic
