#include "laconic/store/reference_record.hpp"

#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/convert.hpp"

namespace laconic {

namespace {

// Small blocks: an outlier channel must not cost its neighbours their digits.
constexpr int kBlock = 64;
const CodecSpec kEightBits = Quantise{.bits = 8, .block = kBlock};

TensorSpec flat(std::uint64_t elements) {
  return {Dtype::f32, {static_cast<std::int64_t>(elements)}};
}

}  // namespace

std::uint64_t record_bytes(Reference kind, std::uint64_t elements) {
  switch (kind) {
    case Reference::f32: return elements * 4;
    case Reference::bf16: return elements * 2;
    case Reference::q8: return max_payload_bytes(kEightBits, flat(elements));
  }
  return 0;
}

CodecSpec record_codec(Reference kind) {
  switch (kind) {
    case Reference::f32: return Raw{};
    case Reference::bf16: return Half{.kind = Dtype::bf16};
    case Reference::q8: return kEightBits;
  }
  return Raw{};
}

TellingNumbers telling_numbers(Reference kind, std::uint64_t elements) {
  if (kind == Reference::q8) return {Dtype::f32, (elements + kBlock - 1) / kBlock};  // scales
  return {kind == Reference::bf16 ? Dtype::bf16 : Dtype::f32, elements};
}

void read_record(Reference kind, ByteView record, std::size_t count, float* out) {
  switch (kind) {
    case Reference::f32: return widen_bytes(Dtype::f32, record.data(), count, out);
    case Reference::bf16: return widen_bytes(Dtype::bf16, record.data(), count, out);
    case Reference::q8: {
      const TensorSpec tensor = flat(count);
      return decode(kEightBits, record, {}, {tensor, out});
    }
  }
}

void write_record(Reference kind, const float* values, std::size_t count,
                  std::span<std::byte> record) {
  switch (kind) {
    case Reference::f32: return narrow_bytes(Dtype::f32, values, count, record.data());
    case Reference::bf16: return narrow_bytes(Dtype::bf16, values, count, record.data());
    case Reference::q8: {
      const TensorSpec tensor = flat(count);
      encode(kEightBits, {tensor, values}, {}, record);
    }
  }
}

bool is_finite(Reference kind, ByteView record, std::size_t count) {
  TensorSpec tensor = flat(count);
  if (kind == Reference::q8) return is_finite(kEightBits, tensor, record);
  if (kind == Reference::bf16) tensor.dtype = Dtype::bf16;
  return is_finite(Raw{}, tensor, record);
}

bool is_record(Reference kind, ByteView record) {
  if (kind == Reference::f32) return record.size() % 4 == 0;
  if (kind == Reference::bf16) return record.size() % 2 == 0;
  constexpr std::size_t kBlockBytes = kBlock + sizeof(float);
  const std::size_t rest = record.size() % kBlockBytes;
  if (rest > 0 && rest <= sizeof(float)) return false;
  const std::size_t count =
      record.size() / kBlockBytes * kBlock + (rest > 0 ? rest - sizeof(float) : 0);
  try {
    check_payload(kEightBits, flat(count), record);
  } catch (const WireError&) {
    return false;
  }
  return true;
}

}  // namespace laconic
