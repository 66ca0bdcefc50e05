// link/codec_override.hpp — how a class of messages is encoded instead of as configured, decided
// while training.
//
// A policy says how a class of messages is encoded. It may turn out not to pay (the
// link is faster than the codec: messages are bypassed) or not to be good enough
// (the guard raises the bits). Both are a CodecOverride: a value that all ranks agree
// on between two steps, and that is part of the checkpoint. Another codec is another
// lossy one: what shall travel raw is bypassed.
#pragma once

#include <optional>
#include <string>

#include "laconic/codec/spec.hpp"

namespace laconic {

struct CodecOverride {
  bool is_bypassed = false;        // travels raw; what links remember stays as it is
  std::optional<CodecSpec> codec;  // instead of the policy's; ignored when bypassed
  bool operator==(const CodecOverride&) const = default;
};

// Returns the codec of messages that are not bypassed.
CodecSpec effective_codec(const CodecOverride& change, const CodecSpec& configured);

std::string to_text(const CodecOverride& change);  // "as configured", "bypassed", "quantise:bits=6"

}  // namespace laconic
