#include "laconic/link/treatment.hpp"

namespace laconic {

// A bypassed class goes back to the configured codec, so that what its links are does not depend on
// what they were before.
CodecSpec codec_under(const Treatment& treatment, const CodecSpec& configured) {
  return treatment.is_bypassed ? configured : treatment.codec.value_or(configured);
}

std::string to_text(const Treatment& treatment) {
  if (treatment.is_bypassed) return "bypassed";
  return treatment.codec ? to_text(*treatment.codec) : "as configured";
}

}  // namespace laconic
