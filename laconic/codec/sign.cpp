#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/sign_pass.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

// Where the parts of the payload lie.
struct SignLayout {
  std::size_t count, block, blocks, scale_bytes, bytes;
};

SignLayout layout_of(const Sign& codec, const TensorSpec& tensor) {
  const std::size_t count = elements_of(tensor);
  const auto block = static_cast<std::size_t>(codec.block);
  const std::size_t blocks = count / block + (count % block != 0 ? 1 : 0);
  return {count, block, blocks, 4 * blocks, max_payload_bytes(codec, tensor)};
}

// A mean of magnitudes: NaN as we write it, zero, or a positive normal number.
bool is_scale(std::uint32_t bits) {
  return bits == 0x7FC00000u || bits == 0 || (bits >= 0x00800000u && bits < 0x7F800000u);
}

void check_padding(const SignLayout& layout, ByteView payload) {
  if (layout.count % 8 == 0) return;
  const auto last = std::to_integer<unsigned>(payload.back());
  if (last >> layout.count % 8 != 0)
    throw WireError(
        payload.size() - 1, "payload.signs",
        fmt::format("{:02x} has bits after the last of {} elements", last, layout.count));
}

const std::uint8_t* raw(ByteView payload) {
  return reinterpret_cast<const std::uint8_t*>(payload.data());
}

}  // namespace

std::size_t encode(const Sign& codec, const TensorSpec& tensor, const float* x, const CodecInput&,
                   std::byte* out) {
  const SignLayout layout = layout_of(codec, tensor);
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  kernel::sign_pass().encode(x, layout.count, layout.block, bytes, bytes + layout.scale_bytes);
  return layout.bytes;
}

void check_payload(const Sign& codec, const TensorSpec& tensor, ByteView payload) {
  const SignLayout layout = layout_of(codec, tensor);
  if (payload.size() != layout.bytes)
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}", payload.size(), layout.bytes));
  for (std::size_t i = 0; i < layout.blocks; ++i) {
    const auto bits = get<std::uint32_t>(payload, 4 * i);
    if (!is_scale(bits))
      throw WireError(4 * i, "payload.scale",
                      fmt::format("{:08x} is not the mean magnitude of anything", bits));
  }
  check_padding(layout, payload);
}

void decode(const Sign& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&,
            float* out) {
  const SignLayout layout = layout_of(codec, tensor);
  kernel::sign_pass().decode(raw(payload), raw(payload) + layout.scale_bytes, layout.count,
                             layout.block, out);
}

std::vector<Section> sections(const Sign& codec, const TensorSpec& tensor, ByteView payload) {
  const SignLayout layout = layout_of(codec, tensor);
  return {{"scales", 0, layout.scale_bytes,
           fmt::format("{} f32, one per block of {}", layout.blocks, layout.block)},
          {"signs", layout.scale_bytes, payload.size() - layout.scale_bytes,
           fmt::format("{} bits, the first element in the lowest bit", layout.count)}};
}

}  // namespace laconic::part
