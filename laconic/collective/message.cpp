#include "laconic/collective/message.hpp"

#include "laconic/base/denormals.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/conversion.hpp"

namespace laconic {

std::span<std::byte> payload_of(Bytes& message, const FrameHeader& header) {
  const std::size_t before = header_bytes(header);
  return std::span(message).subspan(before, message.size() - before - kFrameCrcBytes);
}

void add_elements(const TensorSpec& tensor, std::byte* sum, const std::byte* addend) {
  const std::uint64_t count = elements_of(tensor);
  if (tensor.dtype != Dtype::f32) {
    const std::uint64_t bytes = count * bytes_of(tensor.dtype);
    return add_payload(Raw{}, tensor, {sum, bytes}, {addend, bytes});
  }
  const ScopedDenormals flush(true);
  kernel::conversion().add(reinterpret_cast<float*>(sum), reinterpret_cast<const float*>(addend),
                           count);
}

}  // namespace laconic
