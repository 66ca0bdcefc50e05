// The index of a sharded model never names a file outside its folder.
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/file/sharded.hpp"

using namespace laconic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& [name, file] : parse_weight_map(text, "fuzz"))
      if (file.empty() || file == ".." || file.find('/') != std::string::npos) __builtin_trap();
  } catch (const FileError&) {
  }
  return 0;
}
