#include "laconic/link/codec_override.hpp"

namespace laconic {

// A bypassed class goes back to the configured codec, so that what its links are does not depend on
// what they were before.
CodecSpec effective_codec(const CodecOverride& change, const CodecSpec& configured) {
  return change.is_bypassed ? configured : change.codec.value_or(configured);
}

std::string to_text(const CodecOverride& change) {
  if (change.is_bypassed) return "bypassed";
  return change.codec ? to_text(*change.codec) : "as configured";
}

}  // namespace laconic
