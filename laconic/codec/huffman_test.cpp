#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/huffman_code.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr Dtype kKinds[] = {Dtype::f16, Dtype::bf16, Dtype::f32};

ByteCounts counts_of(std::initializer_list<std::pair<int, std::uint64_t>> list) {
  ByteCounts counts{};
  for (const auto& [byte, count] : list) counts[static_cast<std::size_t>(byte)] = count;
  return counts;
}

// --- the code

TEST(HuffmanCode, LengthsAreThoseOfTheTextbook) {
  // Huffman's own tree for 5, 9, 12, 13, 16, 45: one word of one bit, three of three, two of four.
  const CodeLengths lengths =
      huffman_lengths(counts_of({{7, 5}, {8, 9}, {9, 12}, {10, 13}, {11, 16}, {200, 45}}));
  EXPECT_EQ(lengths[200], 1);
  EXPECT_EQ(lengths[9], 3);
  EXPECT_EQ(lengths[10], 3);
  EXPECT_EQ(lengths[11], 3);
  EXPECT_EQ(lengths[7], 4);
  EXPECT_EQ(lengths[8], 4);
  const auto words = canonical_words(lengths);
  EXPECT_EQ(words[200], 0b0);
  EXPECT_EQ(words[9], 0b100);
  EXPECT_EQ(words[10], 0b101);
  EXPECT_EQ(words[11], 0b110);
  EXPECT_EQ(words[7], 0b1110);
  EXPECT_EQ(words[8], 0b1111);
}

TEST(HuffmanCode, OneByteOrNoneNeedsNoWords) {
  EXPECT_EQ(huffman_lengths({}), CodeLengths{});
  EXPECT_EQ(huffman_lengths(counts_of({{3, 1000}})), CodeLengths{});
}

// Fibonacci's numbers make the deepest trees.
TEST(HuffmanCode, NoWordIsTooLongAndTheCodeStaysComplete) {
  ByteCounts counts{};
  std::uint64_t a = 1, b = 1;
  for (std::size_t byte = 0; byte < 60; ++byte) {
    counts[byte] = a;
    b = std::exchange(a, a + b);
  }
  const CodeLengths lengths = huffman_lengths(counts);
  EXPECT_TRUE(is_complete_code(lengths));
  EXPECT_EQ(*std::ranges::max_element(lengths), kMaxCodeBits);
  EXPECT_LT(lengths[59], lengths[0]);
}

TEST(HuffmanCode, TheTableReadsEveryWord) {
  ByteCounts counts{};
  for (std::size_t byte = 0; byte < 256; ++byte) counts[byte] = 1 + byte * byte;
  const CodeLengths lengths = huffman_lengths(counts);
  const auto words = canonical_words(lengths);
  const DecodingTable table = decoding_table(lengths);
  ASSERT_EQ(table.entries.size(), std::size_t{1} << table.width);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const int free = table.width - lengths[byte];
    for (unsigned tail = 0; tail < 1u << free; ++tail) {
      const DecodingTable::Entry entry =
          table.entries[static_cast<std::size_t>(words[byte]) << free | tail];
      EXPECT_EQ(entry.byte, byte);
      EXPECT_EQ(entry.length, lengths[byte]);
    }
  }
}

TEST(HuffmanCode, TooManyOrTooFewWordsAreNoCode) {
  CodeLengths lengths{};
  EXPECT_FALSE(is_complete_code(lengths));
  lengths[1] = lengths[2] = 1;
  EXPECT_TRUE(is_complete_code(lengths));
  lengths[3] = 12;
  EXPECT_FALSE(is_complete_code(lengths));
  lengths[2] = 2;
  EXPECT_FALSE(is_complete_code(lengths));
  lengths[3] = 13;
  EXPECT_FALSE(is_complete_code(lengths));
}

// --- the codec

TEST(Huffman, IsItsReferenceForEverySizeShapeAndDtype) {
  std::vector<std::vector<std::int64_t>> shapes = kShapes;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 67, 300, 1001})
    shapes.push_back({n});
  for (const Dtype dtype : kFloats)
    for (const Dtype kind : kKinds)
      for (const auto& shape : shapes) {
        const std::size_t count = elements_of(TensorSpec{dtype, shape});
        const Tensor x = tensor_of(dtype, shape, normal_floats(count));
        expect_like_reference(Huffman{kind}, x);
        expect_sections_cover(Huffman{kind}, x);
      }
}

// Magnitudes over the whole range, so that words of all lengths occur; zeros, and one number only.
TEST(Huffman, IsItsReferenceForOddDistributions) {
  std::vector<float> wide = normal_floats(3000), constant(500, -0.75f), few(900);
  for (std::size_t i = 0; i < wide.size(); ++i)
    wide[i] = std::ldexp(wide[i], static_cast<int>(i % 97) - static_cast<int>(i % 13) * 9);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = i % 300 == 7 ? 1e-3f : 0.0f;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> bad = normal_floats(400);
  bad[0] = inf, bad[17] = -inf, bad[399] = std::nanf("");
  for (const Dtype kind : kKinds)
    for (const auto* x : {&wide, &constant, &few, &bad})
      expect_like_reference(Huffman{kind}, vector_of(*x));
}

// f32 comes back bit for bit, denormals and signed zeros included; f16 and bf16 as half does.
TEST(Huffman, LosesNothingBeyondTheRounding) {
  std::vector<float> x = normal_floats(5000);
  x[1] = 0x1p-140f, x[2] = -0.0f, x[3] = -0x1p-126f;
  const Tensor tensor = vector_of(x);
  const auto through = [&](const CodecSpec& codec) {
    return bits_of(floats_of(decoded(codec, tensor.spec, encoded(codec, tensor))));
  };
  EXPECT_EQ(through(Huffman{Dtype::f32}), bits_of(x));
  for (const Dtype kind : {Dtype::f16, Dtype::bf16})
    EXPECT_EQ(through(Huffman{kind}), through(Half{kind}));
}

// The entropy of a normal number's exponent is about 2.1 bits; three bits of an f16's fraction
// come with it into the coded byte.
TEST(Huffman, ShortensNormalNumbersByWhatTheirExponentsCarry) {
  const Tensor x = vector_of(normal_floats(100'000));
  const auto bits = [&](Dtype kind) {
    return 8.0 * static_cast<double>(encoded(Huffman{kind}, x).size()) / 1e5;
  };
  EXPECT_NEAR(bits(Dtype::bf16), 10.6, 0.1);
  EXPECT_NEAR(bits(Dtype::f16), 13.5, 0.1);
  EXPECT_NEAR(bits(Dtype::f32), 26.6, 0.1);
}

// Where exponents are noise, there is one byte more than half has, never more.
TEST(Huffman, IsNeverLongerThanThePlainNumbersByMoreThanAByte) {
  for (const Dtype kind : kKinds) {
    std::vector<float> x(4096);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto byte = static_cast<std::uint32_t>(i % 248);  // the coded one, all equally often
      const auto number = static_cast<std::uint16_t>(byte << 7);
      x[i] = std::bit_cast<float>(byte << 23);
      if (kind != Dtype::f32) widen(kind, &number, 1, &x[i]);
    }
    const Bytes payload = encoded(Huffman{kind}, vector_of(x));
    EXPECT_EQ(payload.size(), 1 + x.size() * bytes_of(kind));
    EXPECT_EQ(payload[0], std::byte{0});
  }
}

TEST(Huffman, KnowsWhatIsNotFinite) {
  for (const Dtype kind : kKinds)
    for (const std::size_t count : {std::size_t{2}, std::size_t{500}}) {  // plain and coded
      std::vector<float> x = normal_floats(count);
      const auto finite = [&] {
        const Tensor tensor = vector_of(x);
        return is_finite(Huffman{kind}, tensor.spec, encoded(Huffman{kind}, tensor));
      };
      EXPECT_TRUE(finite());
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        x[1] = bad;
        EXPECT_FALSE(finite()) << name_of(kind) << " " << count;
      }
    }
  EXPECT_TRUE(is_finite(Huffman{}, {Dtype::f32, {0}}, {}));
}

// Two exponents that take turns: 0.5 is 3F00 and 1.0 is 3F80, turned by one bit 7E00 and 7F00.
TEST(Huffman, TheWorkedExampleIsAsTheDocumentSpellsIt) {
  std::vector<float> x;
  for (int i = 0; i < 20; ++i) x.push_back(i % 2 == 0 ? 0.5f : -1.0f);
  EXPECT_EQ(hex_of(encoded(Huffman{Dtype::bf16}, vector_of(x))),
            "01 7E 7F 11 00 01 00 01 00 01 00 01 00 01 00 01 00 01 00 01 00 01 00 01 "
            "01 00 00 00 01 00 00 00 01 00 00 00 50 A8 50 A8");
  EXPECT_EQ(hex_of(encoded(Huffman{Dtype::bf16}, vector_of({0.5f, -1.0f}))), "00 00 3F 80 BF");
}

TEST(Huffman, DamageIsRefusedAndNamed) {
  std::vector<float> x;
  for (int i = 0; i < 20; ++i) x.push_back(i % 2 == 0 ? 0.5f : -1.0f);
  const Huffman codec{Dtype::bf16};
  const Tensor tensor = vector_of(x);
  const Bytes good = encoded(codec, tensor);
  const auto damaged = [&](std::size_t at, int value) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    return refusal(codec, tensor.spec, bad);
  };
  EXPECT_EQ(refusal(codec, tensor.spec, good), "accepted");
  EXPECT_EQ(refusal(codec, tensor.spec, {}), "payload@0");
  EXPECT_EQ(damaged(0, 2), "payload.form@0");
  EXPECT_EQ(damaged(0, 0), "payload@0");           // plain numbers are longer
  EXPECT_EQ(damaged(1, 0x80), "payload.first@1");  // after the last
  EXPECT_EQ(damaged(3, 0x10), "payload.lengths@3");
  EXPECT_EQ(damaged(3, 0x12), "payload.lengths@3");
  EXPECT_EQ(damaged(24, 5), "payload.stream_bytes@24");
  EXPECT_EQ(damaged(24, 2), "payload.codes@36");
  EXPECT_EQ(damaged(36, 0x51), "payload.codes@36");  // padding
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(refusal(codec, tensor.spec, ByteView(good).first(size)), "accepted") << size;
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(codec, tensor.spec, longer), "accepted");
  for (const Dtype kind : kKinds) {
    expect_no_crash(Huffman{kind}, vector_of(normal_floats(300)), 500);
    expect_no_crash(Huffman{kind}, vector_of({1.0f, 2.0f}), 100);
  }
}

TEST(Huffman, ANaNThatNobodyWritesIsRefused) {
  for (const Dtype kind : kKinds) {
    std::vector<float> x = normal_floats(500);
    x[250] = std::nanf("");
    const Tensor tensor = vector_of(x);
    Bytes payload = encoded(Huffman{kind}, tensor);
    ASSERT_EQ(payload[0], std::byte{1});
    EXPECT_EQ(refusal(Huffman{kind}, tensor.spec, payload), "accepted");
    const std::size_t rest = bytes_of(kind) - 1;
    const unsigned first = std::to_integer<unsigned>(payload[1]);
    const unsigned last = std::to_integer<unsigned>(payload[2]);
    const std::size_t at = 3 + (last - first + 2) / 2 + 250 * rest;
    payload[at] ^= std::byte{1};  // its sign
    EXPECT_EQ(refusal(Huffman{kind}, tensor.spec, payload), fmt::format("payload.values@{}", at));
  }
}

}  // namespace
}  // namespace laconic
