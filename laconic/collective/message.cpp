#include "laconic/collective/message.hpp"

#include <fmt/format.h>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/conversion.hpp"

namespace laconic {

namespace {

std::string text_of(const TensorSpec& tensor) {
  return fmt::format("[{}] {}", fmt::join(tensor.shape, ", "), name_of(tensor.dtype));
}

std::string text_of_sequence(std::uint64_t sequence) {
  return fmt::format("frame {} of step {}", number_of(sequence), step_of(sequence));
}

}  // namespace

// Offsets are those of docs/wire-format.md.
Frame read_expected(ByteView message, const FrameHeader& expected) {
  Frame frame = read_frame(message);
  const FrameHeader& header = frame.header;
  if (header.sequence != expected.sequence)
    throw WireError(16, "sequence",
                    fmt::format("{}, expected {}", text_of_sequence(header.sequence),
                                text_of_sequence(expected.sequence)));
  if (header.codec != expected.codec)
    throw WireError(5, "codec",
                    fmt::format("{}, expected {}", to_text(header.codec), to_text(expected.codec)));
  if (header.tensor != expected.tensor)
    throw WireError(
        header_bytes(header) - 8 * header.tensor.shape.size(), "shape",
        fmt::format("{}, expected {}", text_of(header.tensor), text_of(expected.tensor)));
  if (header.visit != Visit::alone) throw WireError(8, "visit", "a frame that needs a reference");
  if (frame.size != message.size())
    throw WireError(frame.size, "frame",
                    fmt::format("{} bytes follow", message.size() - frame.size));
  return frame;
}

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
