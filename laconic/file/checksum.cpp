#include "laconic/file/checksum.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "laconic/file/mapped_file.hpp"

namespace laconic {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}

Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&& other) noexcept = default;
Checksum& Checksum::operator=(Checksum&& other) noexcept = default;

void Checksum::update(ByteView bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->xxh);
}

std::string Checksum::hex() const {
  return fmt::format("{:016x}", value());
}

std::string checksum_of_file(const std::string& path) {
  const MappedFile file(path);
  Checksum sum;
  sum.update(file.bytes());
  return sum.hex();
}

}  // namespace laconic
