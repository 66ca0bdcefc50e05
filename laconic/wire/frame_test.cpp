#include "laconic/wire/frame.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/wire/explain.hpp"
#include "laconic/wire/parameter.hpp"

namespace laconic {
namespace {

// Every codec, and every option with a value that is not its default.
const char* const kTexts[] = {
    "raw",
    "half",
    "half:kind=f16",
    "quantise",
    "quantise:bits=4,block=64",
    "quantise:bits=3,group=row,scale=f16",
    "quantise:bits=2,group=channel,scale=f16,grid=artefact",
    "quantise:bits=1,scale=pow2,grid=ends",
    "quantise:bits=4,block=64,grid=powers",
    "quantise:bits=4,rounding=stochastic,grid=ends,rotate=true",
    "sign",
    "sign:block=2147483648",
    "top_k",
    "top_k:keep=0.05",
    "top_k:count=7",
    "top_k:keep=0.02+quantise:bits=4,block=32",
    "top_k+half",
    "random_k:keep=0.1,unbiased=true+half:kind=f16",
    "random_k:count=3+quantise:bits=2",
    "low_rank",
    "low_rank:rank=4,factors=bf16",
    "auto_encoder",
    "auto_encoder:code=100,values=f16",
};

const std::vector<std::int64_t> kFrameShapes[] = {
    {}, {0}, {1}, {7}, {2, 3}, {0, 5}, {4, 0}, {2, 3, 4, 5}, {1, 1, 1, 1, 1, 1, 1, 300}};

// A frame whose payload is zeros, as long as it may be.
void append(Bytes& message, const FrameHeader& header, std::size_t drop = 0) {
  const std::size_t start = message.size();
  const auto payload = open_frame(message, header);
  std::fill(payload.begin(), payload.end(), std::byte{0});
  close_frame(message, start, payload.size() - drop);
}

Bytes frame_of(const FrameHeader& header) {
  Bytes message;
  append(message, header);
  return message;
}

FrameHeader header_of(const char* text, TensorSpec tensor) {
  return {.codec = parse_codec(text), .tensor = std::move(tensor), .sequence = make_sequence(3, 5)};
}

// A header in which every optional thing is there.
FrameHeader full_header() {
  FrameHeader h = header_of("quantise:bits=4,block=8", {Dtype::bf16, {2, 9}});
  h.visit = Visit::difference;
  h.visits = 2;
  h.key = 77;
  h.hash = 0x0123456789ABCDEF;
  return h;
}

void fix_crc(Bytes& frame) {
  frame.resize(frame.size() - kFrameCrcBytes);
  put(frame, crc32c(frame));
}

// "field at byte N", or "accepted".
std::string refusal(ByteView message, std::size_t offset = 0) {
  try {
    read_frame(message, offset);
  } catch (const WireError& error) {
    EXPECT_LE(error.offset(), message.size());
    return fmt::format("{} at byte {}", error.field(), error.offset());
  }
  return "accepted";
}

TEST(Frame, EveryCodecShapeAndDtypeComesBack) {
  for (const char* text : kTexts)
    for (const auto& shape : kFrameShapes)
      for (int d = 1; d <= kDtypes; ++d) {
        const FrameHeader header = header_of(text, {static_cast<Dtype>(d), shape});
        if (!check(header).empty()) continue;
        SCOPED_TRACE(fmt::format("{} [{}] {}", text, fmt::join(shape, ","), d));
        const Bytes message = frame_of(header);
        EXPECT_EQ(message.size(), max_frame_bytes(header));
        const Frame frame = read_frame(message);
        EXPECT_EQ(frame.header, header);
        EXPECT_EQ(frame.size, message.size());
        EXPECT_EQ(frame.payload_offset, header_bytes(header));
        EXPECT_EQ(frame.payload.data(), message.data() + frame.payload_offset);
        EXPECT_EQ(frame.payload.size(), max_payload_bytes(header.codec, header.tensor));
      }
}

TEST(Frame, VisitsComeBack) {
  FrameHeader h = header_of("half", {Dtype::f32, {3}});
  h.sequence = ~std::uint64_t{0};
  EXPECT_EQ(read_frame(frame_of(h)).header, h);
  h.visit = Visit::first;
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    h.key = key;
    EXPECT_EQ(read_frame(frame_of(h)).header, h);
  }
  h.visit = Visit::difference;
  h.visits = ~std::uint32_t{0};
  EXPECT_EQ(read_frame(frame_of(h)).header, h);
  h.hash = 0;  // a hash that is zero is a hash
  EXPECT_EQ(read_frame(frame_of(h)).header, h);
  EXPECT_EQ(read_frame(frame_of(full_header())).header, full_header());
}

TEST(Frame, SequencesArePairs) {
  for (const std::uint64_t step :
       {std::uint64_t{0}, std::uint64_t{1}, (std::uint64_t{1} << 40) - 1})
    for (const std::uint32_t number : {0u, 1u, kFramesPerStep - 1}) {
      EXPECT_EQ(step_of(make_sequence(step, number)), step);
      EXPECT_EQ(number_of(make_sequence(step, number)), number);
    }
  EXPECT_THROW(make_sequence(0, kFramesPerStep), std::logic_error);
  EXPECT_THROW(make_sequence(std::uint64_t{1} << 40, 0), std::logic_error);
}

TEST(Frame, SeveralFramesFormAMessageInOneAllocation) {
  std::vector<FrameHeader> headers;
  std::size_t room = 0;
  for (const char* text : kTexts) headers.push_back(header_of(text, {Dtype::f32, {5, 6}}));
  for (const FrameHeader& h : headers) room += max_frame_bytes(h);
  Bytes message;
  message.reserve(room);
  const std::byte* const begin = message.data();
  for (const FrameHeader& h : headers) append(message, h);
  EXPECT_EQ(message.data(), begin);
  std::size_t offset = 0;
  for (const FrameHeader& h : headers) {
    const Frame frame = read_frame(message, offset);
    EXPECT_EQ(frame.header, h);
    offset += frame.size;
  }
  EXPECT_EQ(offset, message.size());
  EXPECT_EQ(refusal(message, offset), fmt::format("header at byte {}", offset));
}

TEST(Frame, AShorterPayloadIsForCodecsWithoutAFixedSize) {
  Bytes message = frame_of(header_of("raw", {Dtype::u8, {3}}));
  const std::size_t second = message.size();
  append(message, header_of("top_k:count=2", {Dtype::f32, {9}}), 1);
  EXPECT_EQ(read_frame(message, second).payload.size(), 2u + 1 + 8 - 1);
  const std::size_t third = message.size();
  append(message, header_of("sign", {Dtype::f32, {9}}), 1);
  EXPECT_EQ(refusal(message, third), fmt::format("payload bytes at byte {}", third + 32));
}

TEST(Frame, EverySingleBitFlipIsRefused) {
  for (const FrameHeader& header :
       {header_of("raw", {Dtype::f32, {}}), header_of("raw", {Dtype::i64, {2, 0}}), full_header(),
        header_of("top_k:count=3+quantise:bits=3", {Dtype::f16, {5, 5}})}) {
    Bytes message = frame_of(header);
    ASSERT_EQ(refusal(message), "accepted");
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      const std::byte mask{static_cast<unsigned char>(1u << bit % 8)};
      message[bit / 8] ^= mask;
      EXPECT_NE(refusal(message), "accepted") << bit;
      message[bit / 8] ^= mask;
    }
  }
}

TEST(Frame, AFlippedBitIsReportedAsTheCheckSumWhereNothingMoves) {
  const Bytes good = frame_of(full_header());
  const std::string crc = fmt::format("CRC-32C at byte {}", good.size() - kFrameCrcBytes);
  for (const std::size_t byte : {5, 6, 8, 11, 12, 16, 24, 40, 45, 50, 60, 66, 74, 76}) {
    Bytes message = good;
    message[byte] ^= std::byte{1};
    EXPECT_EQ(refusal(message), crc) << byte;
  }
}

TEST(Frame, EveryTruncationIsRefused) {
  for (const FrameHeader& header : {header_of("raw", {Dtype::f32, {}}), full_header()}) {
    const Bytes whole = frame_of(header);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(refusal(part),
                fmt::format("{} at byte {}", size < kFrameFixedBytes ? "header" : "frame", size));
    }
  }
}

// One wrong thing in a frame that is right otherwise, check sum included.
struct Damage {
  const char* what;
  FrameHeader header;
  std::size_t at;
  std::uint64_t value;
  std::size_t bytes;
  const char* refusal;
};

TEST(Frame, EachRuleOfTheTableIsKept) {
  const FrameHeader raw = header_of("raw", {Dtype::f32, {2}}), full = full_header();
  const FrameHeader ids = header_of("raw", {Dtype::i64, {2}});
  const FrameHeader top = header_of("top_k:count=2+half", {Dtype::f32, {9}});
  const FrameHeader powers = header_of("quantise:bits=4,grid=powers", {Dtype::f32, {2}});
  FrameHeader first = raw;
  first.visit = Visit::first;
  const std::uint64_t huge = ~std::uint64_t{0}, limit = kMaxElements;
  const Damage cases[] = {
      {"magic", raw, 0, 'X', 1, "magic at byte 0"},
      {"older version", raw, 4, 0, 1, "version at byte 4"},
      {"newer version", raw, 4, 2, 1, "version at byte 4"},
      {"no codec", raw, 5, 0, 1, "codec at byte 5"},
      {"a codec of the future", raw, 5, 11, 1, "codec at byte 5"},
      {"another codec's parameters", raw, 5, 2, 1, "parameter bytes at byte 9"},
      {"parameters of another length", full, 5, 4, 1, "parameter bytes at byte 9"},
      {"no dtype", raw, 6, 0, 1, "dtype at byte 6"},
      {"a dtype of the future", raw, 6, 11, 1, "dtype at byte 6"},
      {"an integer in a lossy codec", full, 6, 5, 1, "dtype at byte 6"},
      {"nine dims", raw, 7, 9, 1, "dims at byte 7"},
      {"visit 3", raw, 8, 3, 1, "visit at byte 8"},
      {"a first visit of integers", ids, 8, 1, 1, "visit at byte 8"},
      {"a difference that is none", full, 8, 0, 1, "key at byte 24"},
      {"a first visit with visits", full, 8, 1, 1, "visits at byte 12"},
      {"a difference without visits", full, 12, 0, 4, "visits at byte 12"},
      {"a first visit that is not", first, 12, 1, 4, "visits at byte 12"},
      {"visits of a lone frame", raw, 12, 7, 4, "visits at byte 12"},
      {"unknown flag", raw, 10, 2, 2, "flags at byte 10"},
      {"unknown high flag", full, 10, 0x8001, 2, "flags at byte 10"},
      {"a key of a lone frame", raw, 24, 1, 8, "key at byte 24"},
      {"payload beyond the message", raw, 32, 9, 8, "frame at byte 60"},
      {"payload bytes that overflow", raw, 32, huge, 8, "frame at byte 60"},
      {"payload bytes that overflow with the header", raw, 32, huge - 51, 8, "frame at byte 60"},
      {"bits", full, 40, 9, 1, "quantise.bits at byte 40"},
      {"no bits", full, 40, 0, 1, "quantise.bits at byte 40"},
      {"group", full, 41, 3, 1, "quantise.group at byte 41"},
      {"a row with a block", full, 41, 1, 1, "quantise.block at byte 46"},
      {"scale", full, 42, 3, 1, "quantise.scale at byte 42"},
      {"rounding", full, 43, 2, 1, "quantise.rounding at byte 43"},
      {"rounding without its grid", full, 43, 1, 1, "quantise.rounding at byte 43"},
      {"grid", full, 44, 4, 1, "quantise.grid at byte 44"},
      {"powers of two in eight bits", powers, 40, 8, 1, "quantise.grid at byte 44"},
      {"rotate", full, 45, 2, 1, "quantise.rotate at byte 45"},
      {"no block", full, 46, 0, 4, "quantise.block at byte 46"},
      {"block", full, 46, 0x80000001, 4, "quantise.block at byte 46"},
      {"fraction", top, 40, huge, 8, "top_k.keep at byte 40"},
      {"no fraction", top, 40, 0, 8, "top_k.keep at byte 40"},
      {"count", top, 48, huge, 8, "top_k.count at byte 48"},
      {"values", top, 56, 4, 1, "top_k.values at byte 56"},
      {"values of another length", top, 56, 1, 1, "parameter bytes at byte 9"},
      {"kind of values", top, 57, 1, 1, "half.kind at byte 57"},
      {"shape", raw, 40, limit + 1, 8, "shape at byte 40"},
      {"negative shape", raw, 40, huge, 8, "shape at byte 40"},
      {"product of the shape", full, 50, limit / 8, 8, "shape at byte 50"},
      {"another shape", raw, 40, 3, 8, "payload bytes at byte 32"},
  };
  for (const Damage& c : cases) {
    SCOPED_TRACE(c.what);
    Bytes message = frame_of(c.header);
    std::memcpy(message.data() + c.at, &c.value, c.bytes);
    fix_crc(message);
    EXPECT_EQ(refusal(message), c.refusal);
  }
}

TEST(Frame, LengthsThatMoveTheRestAreRefused) {
  // More parameters or dims, or a hash, than there are bytes for; and fewer.
  const struct {
    std::size_t at;
    std::uint8_t value;
  } cases[] = {{9, 255}, {9, 0}, {7, 8}, {7, 0}, {10, 0}};
  for (const auto& c : cases) {
    Bytes message = frame_of(full_header());
    message[c.at] = std::byte{c.value};
    fix_crc(message);
    EXPECT_NE(refusal(message), "accepted") << c.at << " " << int{c.value};
  }
}

TEST(Frame, AFrameThatFitsABiggerSizeIsStillRefused) {
  // Numbers that agree with each other and with no memory.
  FrameHeader h = header_of("raw", {Dtype::f64, {static_cast<std::int64_t>(kMaxElements)}});
  EXPECT_TRUE(check(h).empty());
  EXPECT_EQ(max_frame_bytes(h), 48 + 8 * kMaxElements + 4);
  h = header_of("auto_encoder:code=65536", {Dtype::f32, {std::int64_t{1} << 48, 1}});
  EXPECT_FALSE(check(h).empty()) << "2^64 values";
  h = header_of("low_rank:rank=65536", {Dtype::f32, {1 << 24, 1 << 24}});
  EXPECT_TRUE(check(h).empty());
}

TEST(Frame, AnOffsetCountsFromTheStartOfTheMessage) {
  Bytes message = frame_of(header_of("raw", {Dtype::f32, {2}}));
  const std::size_t second = message.size();
  append(message, full_header());
  message[second] = std::byte{'X'};
  EXPECT_EQ(refusal(message, second), fmt::format("magic at byte {}", second));
}

TEST(Frame, AHeaderThatNoFrameHasIsABugOfTheWriter) {
  Bytes message;
  FrameHeader h = header_of("raw", {Dtype::f32, {2}});
  h.key = 1;
  EXPECT_EQ(to_text(check(h)), "key: 1, but visit 0 has none");
  EXPECT_THROW(open_frame(message, h), std::logic_error);
  h = header_of("half", {Dtype::i64, {2}});
  EXPECT_THROW(open_frame(message, h), std::logic_error);
  EXPECT_TRUE(message.empty());
}

// "field at byte N", or "accepted", by somebody who expects a certain frame and nothing behind it.
std::string refusal_of_other(ByteView message, const FrameHeader& expected) {
  try {
    read_expected(message, expected);
  } catch (const WireError& error) {
    return fmt::format("{} at byte {}", error.field(), error.offset());
  }
  return "accepted";
}

TEST(Frame, OnlyTheFrameThatIsExpectedIsTaken) {
  const FrameHeader expected = full_header();
  EXPECT_EQ(refusal_of_other(frame_of(expected), expected), "accepted");
  const auto refusal_after = [&](const auto& change) {
    FrameHeader other = expected;
    change(other);
    return refusal_of_other(frame_of(other), expected);
  };
  EXPECT_EQ(refusal_after([](FrameHeader& h) { --h.sequence; }), "sequence at byte 16");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { ++h.sequence; }), "sequence at byte 16");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { --h.visits; }), "visits at byte 12");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { ++h.visits; }), "visits at byte 12");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { ++h.key; }), "key at byte 24");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { h.codec = parse_codec("half"); }),
            "codec at byte 5");
  EXPECT_EQ(refusal_after([](FrameHeader& h) { h.tensor.shape = {9, 2}; }), "shape at byte 50");
  EXPECT_EQ(refusal_after([](FrameHeader& h) {
              h.visit = Visit::first;
              h.visits = 0;
              h.hash.reset();
            }),
            "visit at byte 8");
  Bytes message = frame_of(expected);
  const std::size_t end = message.size();
  message.push_back(std::byte{0});
  EXPECT_EQ(refusal_of_other(message, expected), fmt::format("frame at byte {}", end));
}

// --- parameters and explanations

TEST(Parameter, BytesAndCodecsArePairs) {
  for (const char* text : kTexts) {
    SCOPED_TRACE(text);
    const CodecSpec codec = parse_codec(text);
    Bytes bytes(parameter_bytes(codec));
    write_parameters(codec, bytes);
    EXPECT_EQ(read_parameters(codec_number(codec), bytes, {}), codec);
    std::size_t end = 0;
    for (const ParameterField& field : parameter_fields(codec)) {
      EXPECT_EQ(field.offset, end) << field.name;
      end += field.bytes;
    }
    EXPECT_EQ(end, bytes.size());
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_THROW(read_parameters(codec_number(codec), ByteView(bytes).first(size), {}),
                   WireError);
    bytes.push_back(std::byte{0});
    EXPECT_THROW(read_parameters(codec_number(codec), bytes, {}), WireError);
  }
}

// The rows of each frame cover it without gaps.
void expect_cover(const Explanation& e, std::size_t end) {
  std::uint64_t at = 0;
  for (const ExplainedField& row : e.rows) {
    EXPECT_EQ(row.offset, at) << row.field;
    EXPECT_GT(row.bytes, 0u) << row.field;
    at += row.bytes;
  }
  EXPECT_EQ(at, end);
}

TEST(Explain, EveryByteOfAMessageIsSomething) {
  Bytes message = frame_of(header_of("raw", {Dtype::f32, {2}}));
  FrameHeader h = header_of("raw", {Dtype::bf16, {3}});
  h.visit = Visit::difference;
  h.visits = 1;
  h.hash = 5;
  append(message, h);
  const Explanation e = explain(message);
  EXPECT_FALSE(e.fault);
  EXPECT_EQ(e.frames, 2u);
  expect_cover(e, message.size());
  EXPECT_EQ(e.rows.front().hex, "4c 43 4e 46");
  EXPECT_EQ(e.rows.back().frame, 1u);
  EXPECT_EQ(explain(message, 1).frames, 1u);
  EXPECT_EQ(explain({}).frames, 0u);
}

TEST(Explain, DamagedInputIsExplainedUpToTheFault) {
  const Bytes whole = frame_of(header_of("raw", {Dtype::f32, {2}}));
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const Explanation e = explain(ByteView(whole).first(size));
    ASSERT_TRUE(e.fault) << size;
    EXPECT_EQ(e.fault->offset, size);
    expect_cover(e, size);
  }
  Bytes damaged = whole;
  damaged[50] ^= std::byte{1};
  const Explanation e = explain(damaged);
  ASSERT_TRUE(e.fault);
  EXPECT_EQ(e.fault->field, "CRC-32C");
  expect_cover(e, whole.size() - 4);
}

}  // namespace
}  // namespace laconic
