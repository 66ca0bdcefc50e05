// The record of another rank may be damaged: it is refused, or says the same when written again; a
// verdict can be made of anything.
#include <cstdint>
#include <string_view>

#include "laconic/base/error.hpp"
#include "laconic/engine/recorder.hpp"

using namespace laconic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Flight flight = parse_flight(text);
    const std::string json = to_json(flight);
    if (to_json(parse_flight(json)) != json) __builtin_trap();
    if (verdict({flight}, 3).empty()) __builtin_trap();
  } catch (const FileError&) {
  }
  return 0;
}
