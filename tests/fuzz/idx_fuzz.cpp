// The index of a Megatron dataset: any bytes parse or raise FileError, and every range of what
// parses lies inside .bin. The first two bytes choose the size of .bin.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/data/indexed.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::uint16_t bin_bytes = 0;
  std::memcpy(&bin_bytes, data, 2);
  const laconic::ByteView bytes(reinterpret_cast<const std::byte*>(data) + 2, size - 2);
  try {
    const laconic::Index index = laconic::parse_index(bytes, bin_bytes, "fuzz.idx");
    const std::uint64_t limit = bin_bytes / laconic::size_of(index.type());
    for (std::uint64_t s = 0; s < index.sequences(); ++s) {
      const auto range = index.sequence(s);
      if (range.begin > range.end || range.end > limit) std::abort();
    }
    for (std::uint64_t d = 0; d < index.documents(); ++d) {
      const auto range = index.document(d);
      if (range.begin > range.end || range.end > limit) std::abort();
    }
  } catch (const laconic::FileError&) {
  }
  return 0;
}
