#include "laconic/wire/frame.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/wire/parameter.hpp"

namespace laconic {

namespace {

// Offsets of the fixed fields.
enum : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kCodecAt = 5,
  kDtypeAt = 6,
  kDimsAt = 7,
  kVisitAt = 8,
  kParameterBytesAt = 9,
  kFlagsAt = 10,
  kVisitsAt = 12,
  kSequenceAt = 16,
  kKeyAt = 24,
  kPayloadBytesAt = 32,
};
static_assert(kPayloadBytesAt + 8 == kFrameFixedBytes);

constexpr std::uint16_t kHashFlag = 1;

template <class T>
void set(std::span<std::byte> bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The rules of the table that tie visit, visits, key and hash together.
Problems check_visit(const FrameHeader& h) {
  Problems problems;
  const auto visit = static_cast<int>(h.visit);
  if (h.visit != Visit::alone && !is_float(h.tensor.dtype))
    problems.push_back({"visit", fmt::format("{}, but {} is not a float and has no differences",
                                             visit, name_of(h.tensor.dtype))});
  if (h.visit == Visit::alone && h.key != 0)
    problems.push_back({"key", fmt::format("{}, but visit 0 has none", h.key)});
  if (h.visit == Visit::difference ? h.visits == 0 : h.visits != 0)
    problems.push_back({"visits", fmt::format("{}, but visit is {}", h.visits, visit)});
  if (h.visit != Visit::difference && h.hash)
    problems.push_back({"flags", fmt::format("a hash of the reference, but visit is {}", visit)});
  return problems;
}

// --- reading

// The fields that say where the check sum is.
struct Layout {
  std::size_t parameters = 0;  // offsets from the start of the frame
  std::size_t shape = 0;
  std::size_t hash = 0;
  std::size_t payload = 0;
  std::size_t crc = 0;
  std::size_t dims = 0;
};

void check_start(ByteView rest, std::size_t offset) {
  if (rest.size() >= kVersionAt && get<std::uint32_t>(rest, kMagicAt) != kFrameMagic)
    throw WireError(
        offset + kMagicAt, "magic",
        fmt::format("{:08x} instead of {:08x}", get<std::uint32_t>(rest, kMagicAt), kFrameMagic));
  if (rest.size() < kFrameFixedBytes)
    throw WireError(offset + rest.size(), "header",
                    fmt::format("ends after {} of {} bytes", rest.size(), kFrameFixedBytes));
  if (get<std::uint8_t>(rest, kVersionAt) != kFrameVersion)
    throw WireError(offset + kVersionAt, "version",
                    fmt::format("{}; this program reads version {}",
                                get<std::uint8_t>(rest, kVersionAt), kFrameVersion));
  if (get<std::uint8_t>(rest, kDimsAt) > kMaxDims)
    throw WireError(
        offset + kDimsAt, "dims",
        fmt::format("{} is not in 0 ... {}", get<std::uint8_t>(rest, kDimsAt), kMaxDims));
}

// From a header that passed check_start(), without the payload's size.
Layout layout_of(ByteView header) {
  Layout l;
  l.dims = get<std::uint8_t>(header, kDimsAt);
  l.parameters = kFrameFixedBytes;
  l.shape = l.parameters + get<std::uint8_t>(header, kParameterBytesAt);
  l.hash = l.shape + 8 * l.dims;
  l.payload = l.hash + (get<std::uint16_t>(header, kFlagsAt) & kHashFlag ? 8 : 0);
  return l;
}

Layout read_layout(ByteView rest, std::size_t offset) {
  check_start(rest, offset);
  Layout l = layout_of(rest);
  const auto payload_bytes = get<std::uint64_t>(rest, kPayloadBytesAt);
  const std::size_t overhead = l.payload + kFrameCrcBytes;
  if (rest.size() < overhead || payload_bytes > rest.size() - overhead)
    throw WireError(offset + rest.size(), "frame",
                    fmt::format("ends after {} bytes; {} around a payload of {} are announced",
                                rest.size(), overhead, payload_bytes));
  l.crc = l.payload + payload_bytes;
  return l;
}

void check_crc(ByteView rest, const Layout& l, std::size_t offset) {
  const auto stored = get<std::uint32_t>(rest, l.crc);
  const std::uint32_t computed = crc32c(rest.first(l.crc));
  if (stored != computed)
    throw WireError(offset + l.crc, "CRC-32C",
                    fmt::format("{:08x} is stored, but the {} bytes before it have {:08x}: they "
                                "changed on the way",
                                stored, l.crc, computed));
}

template <class E>
E read_enum(ByteView rest, std::size_t at, std::size_t offset, const char* field, int least,
            int most) {
  const int number = get<std::uint8_t>(rest, at);
  if (number < least || number > most)
    throw WireError(offset + at, field, fmt::format("{} is not in {} ... {}", number, least, most));
  return static_cast<E>(number);
}

std::vector<std::int64_t> read_shape(ByteView rest, const Layout& l, std::size_t offset) {
  std::vector<std::int64_t> shape(l.dims);
  for (std::size_t i = 0; i < l.dims; ++i) {
    const auto size = get<std::uint64_t>(rest, l.shape + 8 * i);
    if (size > kMaxElements)
      throw WireError(offset + l.shape + 8 * i, "shape",
                      fmt::format("dim {} is {}; at most 2^48", i, size));
    shape[i] = static_cast<std::int64_t>(size);
  }
  return shape;
}

// Where a field of a header is.
std::size_t offset_of(std::string_view field, const Layout& l) {
  const std::pair<std::string_view, std::size_t> fields[] = {
      {"codec", kCodecAt}, {"dtype", kDtypeAt},   {"visit", kVisitAt},
      {"flags", kFlagsAt}, {"visits", kVisitsAt}, {"sequence", kSequenceAt},
      {"key", kKeyAt},     {"shape", l.shape},    {"hash", l.hash}};
  for (const auto& [name, at] : fields)
    if (name == field) return at;
  return l.parameters;
}

FrameHeader read_header(ByteView rest, const Layout& l, std::size_t offset) {
  FrameHeader h;
  h.codec = read_parameters(get<std::uint8_t>(rest, kCodecAt),
                            rest.subspan(l.parameters, l.shape - l.parameters),
                            {offset + kCodecAt, offset + kParameterBytesAt, offset + l.parameters});
  h.tensor.dtype = read_enum<Dtype>(rest, kDtypeAt, offset, "dtype", 1, kDtypes);
  h.visit = read_enum<Visit>(rest, kVisitAt, offset, "visit", 0, 2);
  const auto flags = get<std::uint16_t>(rest, kFlagsAt);
  if ((flags & ~kHashFlag) != 0)
    throw WireError(offset + kFlagsAt, "flags",
                    fmt::format("{:04x} has bits that mean nothing yet", flags));
  h.visits = get<std::uint32_t>(rest, kVisitsAt);
  h.sequence = get<std::uint64_t>(rest, kSequenceAt);
  h.key = get<std::uint64_t>(rest, kKeyAt);
  h.tensor.shape = read_shape(rest, l, offset);
  if (l.payload != l.hash) h.hash = get<std::uint64_t>(rest, l.hash);
  if (const Problems problems = check(h); !problems.empty())
    throw WireError(offset + offset_of(problems[0].where, l), problems[0].where, problems[0].what);
  return h;
}

void check_payload_bytes(const FrameHeader& h, std::uint64_t bytes, std::size_t offset) {
  const std::uint64_t most = max_payload_bytes(h.codec, h.tensor);
  if (bytes > most || (bytes < most && has_fixed_size(h.codec)))
    throw WireError(offset + kPayloadBytesAt, "payload bytes",
                    fmt::format("{} instead of {}{} for {} of [{}] {}", bytes,
                                has_fixed_size(h.codec) ? "" : "at most ", most, to_text(h.codec),
                                fmt::join(h.tensor.shape, ", "), name_of(h.tensor.dtype)));
}

// --- writing

void require_valid(const FrameHeader& header) {
  const Problems problems = check(header);
  LACONIC_ASSERT(problems.empty(), to_text(problems));
}

void write_header(std::span<std::byte> out, const FrameHeader& h) {
  const auto p = static_cast<std::uint8_t>(parameter_bytes(h.codec));
  set(out, kMagicAt, kFrameMagic);
  set(out, kVersionAt, kFrameVersion);
  set(out, kCodecAt, codec_number(h.codec));
  set(out, kDtypeAt, h.tensor.dtype);
  set(out, kDimsAt, static_cast<std::uint8_t>(h.tensor.shape.size()));
  set(out, kVisitAt, h.visit);
  set(out, kParameterBytesAt, p);
  set(out, kFlagsAt, h.hash ? kHashFlag : std::uint16_t{0});
  set(out, kVisitsAt, h.visits);
  set(out, kSequenceAt, h.sequence);
  set(out, kKeyAt, h.key);
  set(out, kPayloadBytesAt, std::uint64_t{0});  // close_frame() knows
  write_parameters(h.codec, out.subspan(kFrameFixedBytes, p));
  std::size_t at = kFrameFixedBytes + p;
  for (const std::int64_t size : h.tensor.shape) {
    set(out, at, size);
    at += 8;
  }
  if (h.hash) set(out, at, *h.hash);
}

}  // namespace

namespace {

// --- comparing

Layout layout_of(const FrameHeader& h) {
  Layout l{.parameters = kFrameFixedBytes, .dims = h.tensor.shape.size()};
  l.shape = l.parameters + parameter_bytes(h.codec);
  l.hash = l.shape + 8 * l.dims;
  return l;
}

std::string text_of(const TensorSpec& tensor) {
  return fmt::format("[{}] {}", fmt::join(tensor.shape, ", "), name_of(tensor.dtype));
}

std::string text_of_sequence(std::uint64_t sequence) {
  return fmt::format("frame {} of step {}", number_of(sequence), step_of(sequence));
}

}  // namespace

std::uint64_t make_sequence(std::uint64_t step, std::uint32_t number) {
  LACONIC_ASSERT(number < kFramesPerStep && step < (std::uint64_t{1} << 40),
                 fmt::format("step {}, number {}", step, number));
  return step * kFramesPerStep + number;
}

Problems check(const FrameHeader& header) {
  Problems problems = check(header.codec, header.tensor);
  Problems more = check_visit(header);
  problems.insert(problems.end(), more.begin(), more.end());
  return problems;
}

std::size_t header_bytes(const FrameHeader& header) {
  return kFrameFixedBytes + parameter_bytes(header.codec) + 8 * header.tensor.shape.size() +
         (header.hash ? 8 : 0);
}

std::size_t max_frame_bytes(const FrameHeader& header) {
  return header_bytes(header) + max_payload_bytes(header.codec, header.tensor) + kFrameCrcBytes;
}

std::span<std::byte> open_frame(Bytes& message, const FrameHeader& header) {
  require_valid(header);
  const std::size_t start = message.size(), before = header_bytes(header);
  message.resize(start + max_frame_bytes(header));
  const auto frame = std::span(message).subspan(start);
  write_header(frame, header);
  return frame.subspan(before, frame.size() - before - kFrameCrcBytes);
}

void close_frame(Bytes& message, std::size_t start, std::size_t payload_bytes) {
  const Layout l = layout_of(ByteView(message).subspan(start));
  const std::size_t room = message.size() - start - l.payload - kFrameCrcBytes;
  LACONIC_ASSERT(payload_bytes <= room, fmt::format("{} bytes in {}", payload_bytes, room));
  set(std::span(message).subspan(start), kPayloadBytesAt, std::uint64_t{payload_bytes});
  message.resize(start + l.payload + payload_bytes);
  put(message, crc32c(ByteView(message).subspan(start)));
}

Frame read_frame(ByteView message, std::size_t offset) {
  LACONIC_ASSERT(offset <= message.size(), fmt::format("{} in {}", offset, message.size()));
  const ByteView rest = message.subspan(offset);
  const Layout l = read_layout(rest, offset);
  check_crc(rest, l, offset);
  Frame frame{.header = read_header(rest, l, offset),
              .payload = rest.subspan(l.payload, l.crc - l.payload),
              .payload_offset = offset + l.payload,
              .size = l.crc + kFrameCrcBytes};
  check_payload_bytes(frame.header, frame.payload.size(), offset);
  return frame;
}

void refuse_frame(const Frame& frame, const std::string& field, const std::string& why) {
  const std::size_t start = frame.payload_offset - header_bytes(frame.header);
  throw WireError(start + offset_of(field, layout_of(frame.header)), field, why);
}

// What says which frame it is comes first: the rest of another frame differs as a consequence.
void require_header(const Frame& frame, const FrameHeader& expected) {
  const FrameHeader& h = frame.header;
  const auto differs = [&](const char* field, const auto& text, const auto& wanted) {
    refuse_frame(frame, field, fmt::format("{}, expected {}", text, wanted));
  };
  if (h.sequence != expected.sequence)
    differs("sequence", text_of_sequence(h.sequence), text_of_sequence(expected.sequence));
  if (h.visit != expected.visit)
    differs("visit", static_cast<int>(h.visit), static_cast<int>(expected.visit));
  if (h.key != expected.key) differs("key", h.key, expected.key);
  if (h.codec != expected.codec) differs("codec", to_text(h.codec), to_text(expected.codec));
  if (h.tensor != expected.tensor) differs("shape", text_of(h.tensor), text_of(expected.tensor));
  if (h.visits != expected.visits) differs("visits", h.visits, expected.visits);
}

void require_end(const Frame& frame, ByteView message) {
  if (frame.size != message.size())
    throw WireError(frame.size, "frame",
                    fmt::format("{} bytes follow", message.size() - frame.size));
}

Frame read_expected(ByteView message, const FrameHeader& expected) {
  Frame frame = read_frame(message);
  require_header(frame, expected);
  require_end(frame, message);
  return frame;
}

}  // namespace laconic
