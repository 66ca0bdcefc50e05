// The bytes of the quantise codec: examples made by hand, and what a reader refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/test_target.hpp"
#include "laconic/codec/kernel/pack.hpp"
#include "laconic/codec/scale.hpp"
#include "laconic/codec/test_quantise.hpp"

namespace laconic {
namespace {

Quantise codec_of(const char* text) {
  return std::get<Quantise>(parse_codec(text));
}

std::string packed(const std::vector<std::uint8_t>& codes, int bits) {
  Bytes out((codes.size() * static_cast<unsigned>(bits) + 7) / 8);
  kernel::pack().pack(codes.data(), codes.size(), bits, out.data());
  return hex(out);
}

TEST(QuantiseBytes, CodesArePackedFromTheHighestBit) {
  for_each_target([] {
    EXPECT_EQ(packed({1, 2, 3, 4, 5, 6, 7, 0}, 3), "29 CB B8");
    EXPECT_EQ(packed({1, 0, 1}, 1), "A0");
    EXPECT_EQ(packed({1, 2, 3, 0, 1}, 2), "6C 40");
    EXPECT_EQ(packed({0xA, 0xB, 0xC}, 4), "AB C0");
    EXPECT_EQ(packed({31, 0, 31}, 5), "F8 3E");
    EXPECT_EQ(packed({63, 1, 62}, 6), "FC 1F 80");
    EXPECT_EQ(packed({127, 1}, 7), "FE 04");
    EXPECT_EQ(packed({0xAB, 1}, 8), "AB 01");
  });
}

TEST(QuantiseBytes, PackAndUnpackAreAPair) {
  for_each_target([] {
    for (int bits = 1; bits <= 8; ++bits)
      for (std::size_t count = 0; count < 200; ++count) {
        std::vector<std::uint8_t> codes(count), back(count);
        for (std::size_t i = 0; i < count; ++i)
          codes[i] = static_cast<std::uint8_t>(word_at(key_of(5), i) >> (32 - bits));
        const Bytes bytes = from_hex(packed(codes, bits));
        kernel::pack().unpack(bytes.data(), count, bits, back.data());
        ASSERT_EQ(back, codes) << bits << " bits, " << count;
      }
  });
}

// The worked examples of docs/wire-format.md.
TEST(QuantiseBytes, TheExamplesOfTheDocument) {
  for_each_target([] {
    const Quantise tread = codec_of("quantise:bits=3,block=4");
    EXPECT_EQ(hex(encoded(tread, vector_of(6), {1, -0.5f, 0.25f, -1, 0, 0})),
              "00 00 80 BF 00 00 00 00 19 F9 00");
    EXPECT_EQ(decoded(tread, vector_of(6), from_hex("00 00 80 BF 00 00 00 00 19 F9 00")),
              (Floats{1, -0.5f, 0.25f, -0.75f, 0, 0}));
    const Quantise ends = codec_of("quantise:bits=2,group=row,scale=f16,grid=ends");
    const TensorSpec two_rows{Dtype::f32, {2, 3}};
    EXPECT_EQ(hex(encoded(ends, two_rows, {3, 1, -1, 0.5f, -0.25f, -0.5f})), "00 42 00 38 E7 40");
    EXPECT_EQ(decoded(ends, two_rows, from_hex("00 42 00 38 E7 40")),
              (Floats{3, 1, -1, 0.5f, -0.5f * (0.5f / 1.5f), -0.5f}));
    const Quantise powers = codec_of("quantise:bits=4,block=4,grid=powers");
    EXPECT_EQ(hex(encoded(powers, vector_of(8), {1, -0.4f, 0.01f, 0, -3, 2, 1, 0.02f})),
              "00 00 80 3F 00 00 40 40 F2 98 1E D8");
    EXPECT_EQ(decoded(powers, vector_of(8), from_hex("00 00 80 3F 00 00 40 40 F2 98 1E D8")),
              (Floats{1, -0.5f, 0.015625f, 0, -3, 1.5f, 0.75f, 0}));
  });
}

TEST(QuantiseBytes, OtherScalesAndGrids) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  struct Example {
    const char* codec;
    std::vector<std::int64_t> shape;
    Floats x;
    const char* bytes;
  };
  for (const Example& e : std::vector<Example>{
           {"quantise", {0}, {}, ""},
           {"quantise:rotate=true", {0}, {}, "01 00 00 00 00 00 00 00"},
           {"quantise", {}, {-2}, "00 00 00 40 00"},
           {"quantise", {2}, {2, -2}, "00 00 00 C0 00 FF"},
           {"quantise:bits=4", {3}, {nan, 1, 2}, "00 00 C0 7F 88 80"},
           {"quantise:bits=4,scale=f16", {2}, {-infinity, 1}, "00 7E 88"},
           {"quantise:bits=4,scale=pow2,grid=ends", {2}, {nan, 1}, "FF 00"},
           {"quantise:bits=4,scale=pow2", {2}, {-3, 1}, "81 2A"},
           {"quantise:bits=4,scale=pow2", {2}, {4, 1}, "81 FA"},
           {"quantise:bits=1,grid=ends",
            {9},
            {1, -1, 1, 1, -1, -1, -1, -1, 1},
            "00 00 80 3F B0 80"},
           {"quantise:bits=4,block=2",
            {4},
            {1e-31f, -1e-35f, 0, -0.f},
            "00 00 00 00 00 00 00 00 88 88"},
           {"quantise:bits=4", {1}, {-0x1p-100f}, "00 00 80 0D 00"},
           {"quantise:bits=4", {1}, {-0x1.fffffep-101f}, "00 00 00 00 80"},
           {"quantise:bits=4,scale=f16", {1}, {-1e-30f}, "01 00 80"},
           {"quantise:bits=4,scale=f16", {1}, {-1e30f}, "FF 7B 00"},
           {"quantise:bits=4", {1}, {-3e38f}, "00 00 00 7E 00"},
           {"quantise:bits=4,grid=powers", {3}, {nan, 1, 2}, "00 00 C0 7F 88 80"},
           {"quantise:bits=4,grid=powers", {3}, {3e38f, -3e38f, 0}, "00 00 00 7E F1 80"},
           // From the middle of two levels on the larger one is taken.
           {"quantise:bits=2,grid=powers", {5}, {1, 0.5f, 0.4999f, -0.5f, 0}, "00 00 80 3F F9 80"},
           {"quantise:bits=3,grid=powers",
            {6},
            {1, 0.75f, 0.7499f, -0.375f, 0.125f, -0.1249f},
            "00 00 80 3F FF 2B 00"},
           {"quantise:bits=2,group=channel,scale=f16,grid=artefact",
            {3, 2},
            {1, 0, -1, 1e-8f, .5f, -1e-8f},
            "00 3C 00 00 E2 E0"},
       }) {
    SCOPED_TRACE(e.codec + std::string(" ") + e.bytes);
    EXPECT_EQ(hex(encoded(codec_of(e.codec), {Dtype::f32, e.shape}, e.x)), e.bytes);
  }
}

TEST(QuantiseBytes, HalvesAreRoundedByTheBook) {
  for (unsigned half = 1; half < 0x7BFF; ++half) {
    const auto h = static_cast<std::uint16_t>(half), next = static_cast<std::uint16_t>(half + 1);
    const float low = f16_value(h), high = f16_value(next), middle = (low + high) / 2;
    ASSERT_EQ(f16_away_from_zero(low), h);
    ASSERT_EQ(f16_away_from_zero(std::nextafter(low, 1e9f)), next);
    ASSERT_EQ(f16_nearest(std::nextafter(middle, 0.0f)), h);
    ASSERT_EQ(f16_nearest(middle), half % 2 == 0 ? h : next);
    ASSERT_EQ(f16_nearest(std::nextafter(middle, 1e9f)), next);
  }
  EXPECT_EQ(f16_nearest(65519.99f), 0x7BFF);
  EXPECT_EQ(f16_nearest(65520.0f), 0x7C00);
  EXPECT_EQ(f16_away_from_zero(1e38f), 0x7BFF);
}

// --- what is refused

struct Refusal {
  std::string field;
  std::size_t offset;
  bool operator==(const Refusal&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
  return out << refusal.field << " at " << refusal.offset;
}

Refusal refusal(const char* codec, std::vector<std::int64_t> shape, const char* bytes) {
  try {
    check_payload(codec_of(codec), {Dtype::f32, std::move(shape)}, from_hex(bytes));
  } catch (const WireError& error) {
    return {error.field(), error.offset()};
  }
  return {"accepted", 0};
}

TEST(QuantiseBytes, WrongLengthsAreRefused) {
  const Refusal wrong{"payload", 0};
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9 00"), (Refusal{"accepted", 0}));
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9"), wrong);
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9 00 00"), wrong);
  EXPECT_EQ(refusal("quantise:bits=3", {6}, ""), wrong);
  EXPECT_EQ(refusal("quantise", {0}, "00"), wrong);
  EXPECT_EQ(refusal("quantise:rotate=true", {0}, "00 00 00 00"), wrong);
}

TEST(QuantiseBytes, PaddingMustBeZero) {
  const Refusal wrong{"payload.padding", 6};
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9 01"), wrong);
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9 20"), wrong);
  EXPECT_EQ(refusal("quantise:bits=3", {6}, "00 00 80 3F 0C F9 40"), (Refusal{"accepted", 0}));
}

TEST(QuantiseBytes, ScalesThatNoEncoderWritesAreRefused) {
  struct Example {
    const char* codec;
    const char* bytes;
    bool is_good;
  };
  for (const Example& e : std::vector<Example>{
           {"quantise", "00 00 80 3F 00", true},
           {"quantise", "00 00 80 BF 00", true},
           {"quantise:grid=ends", "00 00 80 BF 00", false},  // negative
           {"quantise:bits=4,grid=powers", "00 00 80 BF 00", false},
           {"quantise:bits=4,grid=powers", "00 00 80 3F 00", true},
           {"quantise", "00 00 80 7F 00", false},     // infinite
           {"quantise", "00 00 80 FF 00", false},     // infinite
           {"quantise", "01 00 80 7F 80", false},     // signalling NaN
           {"quantise", "00 00 C0 FF 80", false},     // negative NaN
           {"quantise", "00 00 C0 7F 80", true},      // NaN
           {"quantise", "00 00 00 80 80", false},     // -0
           {"quantise", "00 00 80 0D 00", true},      // 2^-100
           {"quantise", "FF FF 7F 0D 00", false},     // below
           {"quantise", "01 00 00 00 00", false},     // denormal
           {"quantise", "00 00 00 7E 00", true},      // 2^125
           {"quantise", "01 00 00 7E 00", false},     // above
           {"quantise:scale=f16", "00 BC 00", true},  // -1
           {"quantise:scale=f16,grid=ends", "00 BC 00", false},
           {"quantise:scale=f16", "00 7C 00", false},
           {"quantise:scale=f16", "00 80 80", false},
           {"quantise:scale=f16", "01 7E 80", false},
           {"quantise:scale=f16", "00 FE 80", false},
           {"quantise:scale=f16", "00 7E 80", true},
           {"quantise:scale=f16", "01 00 80", true},
           {"quantise:scale=pow2", "1A 00", false},  // 2^-101
           {"quantise:scale=pow2", "1B 00", true},
           {"quantise:scale=pow2", "FC 00", true},
           {"quantise:scale=pow2", "FD 00", false},
           {"quantise:scale=pow2", "FF 80", true},
           {"quantise:group=channel,scale=f16,grid=artefact", "00 BC 00", false},
       }) {
    SCOPED_TRACE(e.codec + std::string(" ") + e.bytes);
    EXPECT_EQ(refusal(e.codec, {1}, e.bytes),
              (Refusal{e.is_good ? "accepted" : "payload.scale", 0}));
  }
  EXPECT_EQ(refusal("quantise:bits=4,block=2", {4}, "00 00 80 3F 00 00 80 7F 00 00"),
            (Refusal{"payload.scale", 4}));
  EXPECT_EQ(refusal("quantise:bits=4,rotate=true", {2}, "00 00 00 00 00 00 00 00 00 00 80 7F 00"),
            (Refusal{"payload.scale", 8}));
}

TEST(QuantiseBytes, DeadGroupsHaveOneCode) {
  const Refusal good{"accepted", 0};
  EXPECT_EQ(refusal("quantise:bits=4", {3}, "00 00 00 00 88 80"), good);
  EXPECT_EQ(refusal("quantise:bits=4", {3}, "00 00 00 00 88 90"), (Refusal{"payload.code", 5}));
  EXPECT_EQ(refusal("quantise:bits=4", {3}, "00 00 C0 7F 80 80"), (Refusal{"payload.code", 4}));
  EXPECT_EQ(refusal("quantise:bits=4,grid=powers", {3}, "00 00 00 00 88 80"), good);
  EXPECT_EQ(refusal("quantise:bits=4,grid=powers", {3}, "00 00 00 00 88 90"),
            (Refusal{"payload.code", 5}));
  EXPECT_EQ(refusal("quantise:bits=4,grid=ends", {3}, "00 00 00 00 00 00"), good);
  EXPECT_EQ(refusal("quantise:bits=4,grid=ends", {3}, "00 00 00 00 00 80"),
            (Refusal{"payload.code", 5}));
  const char* rows = "quantise:bits=4,group=row,scale=pow2";
  EXPECT_EQ(refusal(rows, {2, 3}, "7F 00 12 38 88"), good);
  EXPECT_EQ(refusal(rows, {2, 3}, "7F 00 12 37 88"), (Refusal{"payload.code", 3}));
  const char* channels = "quantise:bits=4,group=channel,scale=pow2";
  EXPECT_EQ(refusal(channels, {3, 2}, "7F 00 18 28 38"), good);
  EXPECT_EQ(refusal(channels, {3, 2}, "7F 00 18 28 39"), (Refusal{"payload.code", 4}));
  EXPECT_EQ(refusal(channels, {2, 2}, "00 00 88 88"), good);
  EXPECT_EQ(refusal(channels, {2, 2}, "00 00 88 98"), (Refusal{"payload.code", 3}));
}

// Long dead groups are compared in larger pieces.
TEST(QuantiseBytes, OneFalseCodeInAZeroTensorIsFound) {
  for (const int bits : {2, 3, 8})
    for (const std::int64_t block : {std::int64_t{1000}, std::int64_t{1} << 20}) {
      const Quantise codec{.bits = bits, .block = block};
      const TensorSpec tensor = vector_of(2505);
      Bytes payload = encoded(codec, tensor, Floats(2505, 0.0f));
      EXPECT_NO_THROW(check_payload(codec, tensor, payload));
      const std::size_t scales = 4 * scale_count(codec, tensor);
      for (std::size_t at = scales; at + 1 < payload.size(); at += 13) {
        payload[at] ^= std::byte{1};
        EXPECT_THROW(check_payload(codec, tensor, payload), WireError) << at;
        payload[at] ^= std::byte{1};
      }
    }
}

TEST(QuantiseBytes, SectionsCoverThePayload) {
  const Quantise codec = codec_of("quantise:bits=4,block=64,scale=f16,rotate=true");
  const TensorSpec tensor = vector_of(130);
  const Bytes payload = encoded(codec, tensor, normal_data(130));
  const std::vector<Section> sections = payload_sections(codec, tensor, payload);
  ASSERT_EQ(sections.size(), 3u);
  std::uint64_t end = 0;
  for (const Section& section : sections) {
    EXPECT_EQ(section.offset, end);
    end += section.bytes;
  }
  EXPECT_EQ(end, payload.size());
  EXPECT_EQ(sections[1].name, "scales");
  EXPECT_EQ(sections[1].meaning, "3 f16, one per block of 64");
  EXPECT_EQ(sections[2].meaning, "130 of 4 bits");
}

}  // namespace
}  // namespace laconic
