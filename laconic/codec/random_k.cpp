#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/codec/choice.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

constexpr std::size_t kSeedBytes = 8;

struct RandomKLayout {
  std::uint64_t elements, kept;
  TensorSpec values;
  std::uint64_t bytes;  // of the payload
};

RandomKLayout layout_of(const RandomK& codec, const TensorSpec& tensor) {
  const std::uint64_t elements = elements_of(tensor);
  const std::uint64_t kept = kept_count(codec.kept, elements);
  return {elements, kept, value_tensor(tensor.dtype, kept), max_payload_bytes(codec, tensor)};
}

void rescale(const RandomKLayout& layout, Scratch<float>& values) {
  const auto factor =
      static_cast<float>(static_cast<double>(layout.elements) / static_cast<double>(layout.kept));
  for (float& value : values) value *= factor;
}

}  // namespace

std::size_t encode(const RandomK& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  const RandomKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return 0;
  Scratch<float> values(layout.kept);
  Choice(input.seed, layout.elements, layout.kept).gather(x, values.data());
  std::memcpy(out, &input.seed, kSeedBytes);
  return kSeedBytes +
         encode_values(codec.values, layout.values, values.data(), input, out + kSeedBytes);
}

void check_payload(const RandomK& codec, const TensorSpec& tensor, ByteView payload) {
  const RandomKLayout layout = layout_of(codec, tensor);
  if (payload.size() != layout.bytes)
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}", payload.size(), layout.bytes));
  if (layout.kept == 0) return;
  check_values(codec.values, layout.values, payload.subspan(kSeedBytes), kSeedBytes);
}

void decode(const RandomK& codec, const TensorSpec& tensor, ByteView payload,
            const CodecInput& input, float* out) {
  const RandomKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return;
  Scratch<float> values(layout.kept);
  decode_values(codec.values, layout.values, payload.subspan(kSeedBytes), input, values.data());
  if (codec.unbiased) rescale(layout, values);
  std::fill(out, out + layout.elements, 0.0f);
  Choice(get<std::uint64_t>(payload, 0), layout.elements, layout.kept).scatter(values.data(), out);
}

void kept_factors(const RandomK& codec, const TensorSpec& tensor, ByteView payload, float* out) {
  const RandomKLayout layout = layout_of(codec, tensor);
  std::fill(out, out + layout.elements, 0.0F);
  if (layout.kept == 0) return;
  Scratch<float> ones(layout.kept);
  std::fill(ones.begin(), ones.end(), 1.0F);
  if (codec.unbiased) rescale(layout, ones);
  Choice(get<std::uint64_t>(payload, 0), layout.elements, layout.kept).scatter(ones.data(), out);
}

std::vector<Section> sections(const RandomK& codec, const TensorSpec& tensor, ByteView payload) {
  const RandomKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return {};
  std::vector<Section> all = {
      {"seed", 0, kSeedBytes,
       fmt::format("chooses {} of {} elements", layout.kept, layout.elements)}};
  for (Section& section :
       value_sections(codec.values, layout.values, payload.subspan(kSeedBytes), kSeedBytes))
    all.push_back(std::move(section));
  return all;
}

}  // namespace laconic::part
