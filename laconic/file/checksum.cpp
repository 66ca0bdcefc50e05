#include "laconic/file/checksum.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // a multiple of every page size

}  // namespace

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
  for (ByteView left = file.bytes(); !left.empty();) {
    const ByteView piece = left.first(std::min(left.size(), kPieceBytes));
    sum.update(piece);
    // Pages that were read count as this process's memory until it lets go of them.
    ::madvise(const_cast<std::byte*>(piece.data()), piece.size(), MADV_DONTNEED);
    left = left.subspan(piece.size());
  }
  return sum.hex();
}

}  // namespace laconic
