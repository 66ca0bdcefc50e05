// policy/planned_codec.hpp — what messages of a codec are expected to weigh, before any is sent.
// Pure.
#pragma once

#include "laconic/codec/spec.hpp"

namespace laconic {

// A codec whose messages weigh at most what this one's are expected to. The bound of transform is
// that of messages without a basis, which are few; with one it has the error of its bits in no more
// than those.
inline CodecSpec planned_codec(const CodecSpec& codec) {
  const auto* transform = std::get_if<Transform>(&codec);
  if (transform == nullptr) return codec;
  return Quantise{.bits = transform->bits, .block = 64, .scale = transform->scale};
}

}  // namespace laconic
