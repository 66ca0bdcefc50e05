#include "laconic/engine/segment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kMagic = 0x3147534c;  // "LSG1"
constexpr std::uint32_t kFirst = 1;
constexpr std::uint32_t kLast = 2;

// `at` is the field's offset in the trailer.
[[noreturn]] void refuse(const Bytes& slice, std::size_t at, const char* field,
                         const std::string& why) {
  throw WireError(slice.size() + at, field, why);
}

}  // namespace

std::size_t cut_segment(ByteView message, std::size_t offset, std::size_t segment_bytes,
                        Bytes& out) {
  const std::size_t slice = std::min(message.size() - offset, segment_bytes);
  const std::size_t end = offset + slice;
  const bool is_first = offset == 0;
  out.reserve(slice + kSegmentTrailer);
  out.resize(slice);
  if (slice > 0) std::memcpy(out.data(), message.data() + offset, slice);
  put(out, kMagic);
  put(out, (is_first ? kFirst : 0) | (end == message.size() ? kLast : 0));
  put(out, std::uint64_t{is_first ? message.size() : offset});
  return end;
}

std::optional<Bytes> Assembly::add(Bytes segment) {
  if (segment.size() < kSegmentTrailer)
    throw WireError(
        0, "segment.size",
        fmt::format("{} bytes are less than a trailer of {}", segment.size(), kSegmentTrailer));
  const std::size_t slice = segment.size() - kSegmentTrailer;
  const auto magic = get<std::uint32_t>(segment, slice);
  const auto flags = get<std::uint32_t>(segment, slice + 4);
  const auto place = get<std::uint64_t>(segment, slice + 8);
  segment.resize(slice);
  if (magic != kMagic)
    refuse(segment, 0, "segment.magic", fmt::format("{:08x}, expected {:08x}", magic, kMagic));
  require_place(segment, flags, place);
  if ((flags & kFirst) != 0) total_ = place;
  is_begun_ = true;
  wire_ += slice + kSegmentTrailer;
  if (flags == (kFirst | kLast)) return segment;
  append(segment);
  if ((flags & kLast) == 0) return std::nullopt;
  return std::move(message_);
}

void Assembly::require_place(const Bytes& slice, std::uint32_t flags, std::uint64_t place) const {
  if (flags > (kFirst | kLast))
    refuse(slice, 4, "segment.flags", fmt::format("{:08x} is not of this version", flags));
  const bool is_first = (flags & kFirst) != 0;
  if (is_first == is_begun_)
    refuse(slice, 4, "segment.flags",
           is_begun_ ? "a message begins inside another" : "a message without its beginning");
  if (!is_first && place != message_.size())
    refuse(slice, 8, "segment.offset", fmt::format("{}, expected {}", place, message_.size()));
  const std::uint64_t total = is_first ? place : total_;
  const std::uint64_t end = message_.size() + slice.size();
  const bool is_last = (flags & kLast) != 0;
  if (is_last ? end != total : end >= total)
    refuse(slice, 8, "segment.total",
           fmt::format("{} segment ends at byte {} of {}", is_last ? "the last" : "an early", end,
                       total));
  if (!is_last && slice.empty()) refuse(slice, 8, "segment.size", "an early segment is empty");
}

void Assembly::append(const Bytes& slice) {
  const std::size_t needed = message_.size() + slice.size();
  if (needed > message_.capacity())
    message_.reserve(std::max<std::size_t>(
        needed, std::min<std::uint64_t>(total_, std::max(kMaxAdvance, 2 * message_.capacity()))));
  const std::size_t offset = message_.size();
  message_.resize(needed);
  if (!slice.empty()) std::memcpy(message_.data() + offset, slice.data(), slice.size());
}

}  // namespace laconic
