#include "laconic/link/codec_override.hpp"

namespace laconic {

// A bypassed class goes back to the configured codec, so that what its links are does not depend on
// what they were before.
CodecSpec effective_codec(const CodecOverride& treatment, const CodecSpec& configured) {
  return treatment.is_bypassed ? configured : treatment.codec.value_or(configured);
}

std::string to_text(const CodecOverride& treatment) {
  if (treatment.is_bypassed) return "bypassed";
  return treatment.codec ? to_text(*treatment.codec) : "as configured";
}

}  // namespace laconic
