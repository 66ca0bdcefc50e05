// Any bytes either parse to a header that keeps its promises or raise FileError.
#include <algorithm>
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors.hpp"

using namespace laconic;

namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// The promises of file/safetensors.hpp, checked without its code.
void check(const SafetensorsHeader& header, ByteView file) {
  std::uint64_t end = 8 + get<std::uint64_t>(file, 0);
  for (const SafetensorsEntry& entry : header.entries) {
    require(entry.begin == end && entry.end >= entry.begin);
    end = entry.end;
    unsigned __int128 bytes = bytes_of(entry.dtype);
    for (const std::int64_t size : entry.shape) {
      require(size >= 0);
      bytes *= static_cast<std::uint64_t>(size);
    }
    require(bytes == entry.end - entry.begin);
    require(header.find(entry.name) == &entry);
  }
  require(end == file.size());
  require(header.by_name.size() == header.entries.size());
  require(header.find("a name that no seed has") == nullptr ||
          std::ranges::any_of(header.entries, [](const SafetensorsEntry& entry) {
            return entry.name == "a name that no seed has";
          }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView file(reinterpret_cast<const std::byte*>(data), size);
  try {
    check(parse_safetensors(file, "fuzz"), file);
  } catch (const FileError&) {
  }
  return 0;
}
