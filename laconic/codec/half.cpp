#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

std::size_t encode(const Half& codec, const TensorSpec& tensor, const float* x, const CodecInput&,
                   std::byte* out) {
  const std::size_t count = elements_of(tensor);
  narrow_bytes(codec.kind, x, count, out);
  return 2 * count;
}

void check_payload(const Half& codec, const TensorSpec& tensor, ByteView payload) {
  const std::size_t count = elements_of(tensor);
  if (payload.size() != 2 * count)
    throw WireError(0, "payload", fmt::format("{} bytes instead of {}", payload.size(), 2 * count));
  const std::size_t odd = find_odd_nan(codec.kind, payload.data(), count);
  if (odd < count)
    throw WireError(
        2 * odd, "payload.values",
        fmt::format("{:04x} is not the NaN that is written", get<std::uint16_t>(payload, 2 * odd)));
}

void decode(const Half& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&,
            float* out) {
  widen_bytes(codec.kind, payload.data(), elements_of(tensor), out);
}

std::vector<Section> sections(const Half& codec, const TensorSpec& tensor, ByteView payload) {
  return {{"values", 0, payload.size(),
           fmt::format("{} {}, row-major", elements_of(tensor), name_of(codec.kind))}};
}

}  // namespace laconic::part
