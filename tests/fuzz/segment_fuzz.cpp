// Segments of a peer that may say anything: either they are refused, or the message that comes out
// cuts into segments that say the same. The input is a row of segments, each behind a u16 with its
// length.
#include <algorithm>
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/engine/segment.hpp"

using namespace laconic;

namespace {

void expect_same(const Bytes& message) {
  Assembly again;
  Bytes segment;
  std::size_t offset = 0;
  do {
    offset = cut_segment(message, offset, 7, segment);
    if (const auto whole = again.add(segment); whole.has_value() != (offset == message.size()))
      __builtin_trap();
    else if (whole && *whole != message)
      __builtin_trap();
  } while (offset < message.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Assembly assembly;
  try {
    while (size >= 2) {
      const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
      const auto* bytes = reinterpret_cast<const std::byte*>(data + 2);
      if (const auto message = assembly.add(Bytes(bytes, bytes + length))) {
        expect_same(*message);
        assembly = {};
      }
      data += 2 + length;
      size -= 2 + length;
    }
  } catch (const WireError&) {
  }
  return 0;
}
