// A compressed input that may be anything: it is decompressed or refused, the same each time, and a
// refusal names an offset within it. The libraries have their own fuzzers; this is about the loop
// around them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/file/decompress.hpp"
#include "laconic/file/descriptor.hpp"

using namespace laconic;

namespace {

struct TooMuch {};  // a few bytes may stand for gigabytes

struct Outcome {
  std::string text;
  std::string refusal;
  bool operator==(const Outcome&) const = default;
};

Outcome decompress_whole(ByteView bytes) {
  Outcome outcome;
  const int file = ::memfd_create("fuzz", 0);
  write_all(file, bytes, "fuzz");
  ::lseek(file, 0, SEEK_SET);
  try {
    decompress(file, "fuzz", [&](ByteView piece) {
      outcome.text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      if (outcome.text.size() > (1 << 20)) throw TooMuch{};
    });
  } catch (const FileError& error) {
    outcome.refusal = error.what();
  } catch (const TooMuch&) {
  }
  ::close(file);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
  const Outcome outcome = decompress_whole(bytes);
  if (decompress_whole(bytes) != outcome) __builtin_trap();
  const bool is_plain = compression_of(bytes) == Compression::none;
  if (is_plain && (outcome.text.size() != size || !outcome.refusal.empty()) && size <= (1 << 20))
    __builtin_trap();
  const std::string before = "fuzz: byte ";
  if (!outcome.refusal.empty() && (!outcome.refusal.starts_with(before) ||
                                   std::stoul(outcome.refusal.substr(before.size())) > size))
    __builtin_trap();
  return 0;
}
