// collective/message.hpp — frames of collectives, added where they lie.
#pragma once

#include <cstddef>
#include <memory>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

// The payload of a message that was made here, or read already, with this header.
std::span<std::byte> payload_of(Bytes& message, const FrameHeader& header);

// sum += addend, element by element. Denormals are flushed and NaN is always the same, so that
// equal inputs give equal bits in every thread.
void add_elements(const TensorSpec& tensor, std::byte* sum, const std::byte* addend);

}  // namespace laconic
