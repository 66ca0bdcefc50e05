// Any bytes either are frames that keep the promises of wire/frame.hpp or raise WireError, and
// what is a frame can be explained, and decoded or refused. The check sum would be a wall for a
// fuzzer, so it is mended first, unless the last byte of the input is odd. Explaining takes longest
// and is done for a quarter of the inputs.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/wire/explain.hpp"
#include "laconic/wire/frame.hpp"

using namespace laconic;

namespace {

constexpr std::uint64_t kMaxDecoded = 65536;  // elements

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// What was read, written again.
void check_rewrite(const Frame& frame, ByteView bytes) {
  Bytes again;
  if (max_payload_bytes(frame.header.codec, frame.header.tensor) > 1 << 20) return;
  const auto payload = open_frame(again, frame.header);
  std::copy(frame.payload.begin(), frame.payload.end(), payload.begin());
  close_frame(again, 0, frame.payload.size());
  require(std::ranges::equal(again, bytes));
}

void try_decode(const Frame& frame) {
  const FrameHeader& h = frame.header;
  // Maps and bases are not in the frame.
  if (std::holds_alternative<AutoEncoder>(h.codec) || std::holds_alternative<Transform>(h.codec))
    return;
  const std::uint64_t elements = elements_of(h.tensor);
  if (elements > kMaxDecoded) return;
  Bytes out(elements * bytes_of(h.tensor.dtype));
  decode(h.codec, frame.payload, {}, {h.tensor, out.data()});
}

void read_all(ByteView message) {
  for (std::size_t offset = 0; offset < message.size();) {
    const Frame frame = read_frame(message, offset);
    require(frame.size > 0 && frame.size <= message.size() - offset);
    require(frame.payload_offset + frame.payload.size() + kFrameCrcBytes == offset + frame.size);
    require(check(frame.header).empty());
    check_rewrite(frame, message.subspan(offset, frame.size));
    try_decode(frame);
    offset += frame.size;
  }
}

// Rows lie one after the other, up to the end or the fault, and there is a fault when read_all()
// says so.
void check_explanation(ByteView message, bool is_good) {
  const Explanation e = explain(message);
  std::uint64_t at = 0;
  for (const ExplainedField& row : e.rows) {
    require(row.offset == at);
    at += row.bytes;
  }
  require(e.fault ? at <= message.size() : at == message.size());
  require(is_good || e.fault);
}

bool is_readable(ByteView message) {
  try {
    read_all(message);
    return true;
  } catch (const WireError&) {
    return false;
  }
}

// Puts a check sum where the lengths say it is, or at the end.
void mend(Bytes& message) {
  if (message.size() < kFrameFixedBytes + kFrameCrcBytes) return;
  const std::uint64_t before = kFrameFixedBytes + get<std::uint8_t>(message, 9) +
                               8 * get<std::uint8_t>(message, 7) +
                               (get<std::uint16_t>(message, 10) & 1 ? 8 : 0);
  const auto payload = get<std::uint64_t>(message, 32);
  const std::uint64_t room = message.size() - kFrameCrcBytes;
  if (before > room || payload > room - before) return;
  const std::uint32_t crc = crc32c(ByteView(message).first(before + payload));
  std::memcpy(message.data() + before + payload, &crc, sizeof crc);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes message(size);
  if (size > 0) std::memcpy(message.data(), data, size);
  const std::uint8_t last = size == 0 ? 0 : data[size - 1];
  if (last % 2 == 0) mend(message);
  const bool is_good = is_readable(message);
  if (last / 2 % 4 == 0) check_explanation(message, is_good);
  return 0;
}
