// What is kept of a log can be kept again: nothing more is taken off, whatever the log was.
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/report/jsonl.hpp"

using namespace laconic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string kept = kept_lines(text, 10, "fuzz");
    if (kept_lines(kept, 10, "fuzz") != kept) __builtin_trap();
    if (!kept.empty() && kept.back() != '\n') __builtin_trap();
  } catch (const FileError&) {
  }
  return 0;
}
