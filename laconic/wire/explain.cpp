#include "laconic/wire/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/wire/frame.hpp"
#include "laconic/wire/parameter.hpp"

namespace laconic {

namespace {

constexpr std::size_t kHexBytes = 8;

std::string hex_of(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes.first(std::min(bytes.size(), kHexBytes)))
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", std::to_integer<int>(b));
  return bytes.size() > kHexBytes ? text + " ..." : text;
}

// Adds one field after the other, each where the last one ended.
class Rows {
 public:
  Rows(Explanation& out, ByteView message, std::size_t at)
      : out_(out), message_(message), at_(at) {}

  void add(std::uint64_t bytes, std::string field, std::string meaning) {
    out_.rows.push_back({out_.frames, at_, bytes, std::move(field),
                         hex_of(message_.subspan(at_, bytes)), std::move(meaning)});
    at_ += bytes;
  }
  std::size_t at() const { return at_; }

 private:
  Explanation& out_;
  ByteView message_;
  std::size_t at_;
};

std::string meaning_of(Visit visit) {
  switch (visit) {
    case Visit::alone: return "stands alone";
    case Visit::first: return "first visit: sets the reference of the key";
    case Visit::difference: return "difference to the reference of the key";
  }
  return "";
}

void add_fixed(Rows& rows, const Frame& frame) {
  const FrameHeader& h = frame.header;
  rows.add(4, "magic", "\"LCNF\"");
  rows.add(1, "version", fmt::format("{}", kFrameVersion));
  rows.add(1, "codec", std::string(name_of(h.codec)));
  rows.add(1, "dtype", std::string(name_of(h.tensor.dtype)));
  rows.add(1, "dims", fmt::format("{}", h.tensor.shape.size()));
  rows.add(1, "visit", meaning_of(h.visit));
  rows.add(1, "parameter bytes", fmt::format("{}", parameter_bytes(h.codec)));
  rows.add(2, "flags", h.hash ? "a hash of the reference is present" : "none");
  rows.add(4, "visits", fmt::format("{}", h.visits));
  rows.add(8, "sequence",
           fmt::format("step {}, frame {}", step_of(h.sequence), number_of(h.sequence)));
  rows.add(8, "key", fmt::format("{}", h.key));
  rows.add(8, "payload bytes", fmt::format("{}", frame.payload.size()));
}

void add_header(Rows& rows, const Frame& frame) {
  add_fixed(rows, frame);
  const FrameHeader& h = frame.header;
  for (ParameterField& p : parameter_fields(h.codec))
    rows.add(p.bytes, std::move(p.name), std::move(p.meaning));
  if (!h.tensor.shape.empty())
    rows.add(8 * h.tensor.shape.size(), "shape",
             fmt::format("[{}], {} elements", fmt::join(h.tensor.shape, ", "),
                         with_commas(static_cast<std::int64_t>(elements_of(h.tensor)))));
  if (h.hash) rows.add(8, "hash", fmt::format("{:016x}, XXH3-64 of the reference", *h.hash));
}

void add_payload(Rows& rows, const Frame& frame) {
  for (Section& s : payload_sections(frame.header.codec, frame.header.tensor, frame.payload))
    if (s.bytes > 0) rows.add(s.bytes, "payload: " + s.name, std::move(s.meaning));
}

// Throws WireError when the payload is not what its codec makes; its offset counts from the start
// of the payload.
void add_frame(Rows& rows, const Frame& frame) {
  add_header(rows, frame);
  add_payload(rows, frame);
  rows.add(kFrameCrcBytes, "CRC-32C", "of everything before it; it is right");
}

// The fixed fields that are there before the fault, as bare numbers: what they mean is not sure.
void add_bare(Rows& rows, ByteView rest, std::size_t before) {
  constexpr std::pair<const char*, std::size_t> kFields[] = {
      {"magic", 4}, {"version", 1},         {"codec", 1}, {"dtype", 1},  {"dims", 1},
      {"visit", 1}, {"parameter bytes", 1}, {"flags", 2}, {"visits", 4}, {"sequence", 8},
      {"key", 8},   {"payload bytes", 8}};
  std::size_t at = 0;
  for (const auto& [name, bytes] : kFields) {
    if (at + bytes > std::min(rest.size(), before)) break;
    std::uint64_t value = 0;
    std::memcpy(&value, rest.data() + at, bytes);
    rows.add(bytes, name, fmt::format("{}", value));
    at += bytes;
  }
  if (const std::size_t end = std::min(rest.size(), before); end > at)
    rows.add(end - at, "rest", "not explained because of the fault");
}

}  // namespace

Explanation explain(ByteView message, std::size_t max_frames) {
  Explanation result;
  for (std::size_t offset = 0; offset < message.size() && result.frames < max_frames;) {
    Rows rows(result, message, offset);
    Frame frame;
    try {
      frame = read_frame(message, offset);
    } catch (const WireError& error) {
      add_bare(rows, message.subspan(offset), error.offset() - offset);
      result.fault = {result.frames, error.offset(), error.field(), error.what()};
      return result;
    }
    try {
      add_frame(rows, frame);
    } catch (const WireError& error) {
      const std::size_t at = frame.payload_offset + error.offset();
      const std::string what = error.what();
      result.fault = {
          result.frames, at, error.field(),
          fmt::format("{} (of the payload, which begins at byte {})", what, frame.payload_offset)};
      return result;
    }
    offset += frame.size;
    ++result.frames;
  }
  return result;
}

}  // namespace laconic
