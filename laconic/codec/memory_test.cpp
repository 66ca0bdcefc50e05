// What every codec promises about memories, whether or not it handles them in one pass; and shapes
// that a frame may claim and nobody can hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

using Floats = std::vector<float>;

constexpr const char* kCodecs[] = {"raw",
                                   "half",
                                   "half:kind=f16",
                                   "huffman",
                                   "huffman:kind=f32",
                                   "transform",
                                   "quantise:bits=4,block=16",
                                   "quantise:bits=3,group=row,scale=f16,grid=ends",
                                   "quantise:bits=8,group=channel,scale=f16,grid=artefact",
                                   "quantise:bits=4,block=16,grid=powers",
                                   "quantise:bits=4,block=16,rotate=true",
                                   "sign:block=16",
                                   "top_k:keep=0.3",
                                   "top_k:keep=1+quantise:bits=4",
                                   "random_k:keep=0.3",
                                   "random_k:keep=0.9,unbiased=true+half",
                                   "low_rank:rank=2",
                                   "low_rank:rank=9,factors=f16",
                                   "auto_encoder:code=5"};

const std::vector<std::vector<std::int64_t>> kShapes = {{}, {1}, {0}, {0, 7}, {7, 0}, {3, 7, 9}};

enum class Odd { none, nan, infinite, opposite, huge, denormal };
constexpr Odd kAllOdd[] = {Odd::none,     Odd::nan,  Odd::infinite,
                           Odd::opposite, Odd::huge, Odd::denormal};

void spoil(Odd odd, Floats& x, Floats& before) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < x.size(); i += 11) {
    if (odd == Odd::nan) x[i] = -std::numeric_limits<float>::quiet_NaN();
    if (odd == Odd::infinite) x[i] = -infinity;
    if (odd == Odd::opposite) x[i] = infinity, before[i] = i % 2 == 0 ? infinity : -infinity;
    if (odd == Odd::huge) x[i] = 3e38f, before[i] = i % 2 == 0 ? 3e38f : -3e38f;
    if (odd == Odd::denormal) x[i] = 1e-40f, before[i] = -3e-41f;
  }
}

std::vector<std::uint32_t> with_one_nan(Floats x) {
  for (float& value : x)
    if (value != value) value = std::bit_cast<float>(0x7FC00000u);
  return bits_of(x);
}

// One message with everything it needs. The maps of auto_encoder are drawn.
struct Message {
  Message(const char* text, Dtype dtype, const std::vector<std::int64_t>& shape, Odd odd)
      : codec(parse_codec(text)), x(tensor_of(dtype, shape, {})) {
    const std::size_t count = elements_of(x.spec);
    Floats values = normal_floats(count, 1);
    before = normal_floats(count, 2);
    spoil(odd, values, before);
    x = tensor_of(dtype, shape, values);
    map = normal_floats(5 * std::max<std::size_t>(matrix_shape(x.spec).columns, 1), 3);
    payload.assign(max_payload_bytes(codec, x.spec), std::byte{0});
  }
  CodecInput input() const { return {.seed = 9, .maps = {map.data(), map.data()}}; }
  std::size_t count() const { return before.size(); }

  CodecSpec codec;
  Tensor x;
  Floats before, map;
  Bytes payload;
};

template <class Op>
void for_each_message(const Op& op) {
  for (const char* text : kCodecs)
    for (const Dtype dtype : kFloats)
      for (const auto& shape : kShapes)
        for (const Odd odd : kAllOdd) {
          SCOPED_TRACE(fmt::format("{} of {} [{}], {}", text, name_of(dtype),
                                   fmt::join(shape, ", "), static_cast<int>(odd)));
          ASSERT_NO_FATAL_FAILURE(op(Message(text, dtype, shape, odd)));
        }
}

TEST(Memory, BothEndsOfADifferenceRememberTheSameBits) {
  for_each_message([](Message m) {
    Floats sender = m.before;  // in place
    m.payload.resize(
        encode_difference(m.codec, m.x.view(), sender.data(), sender.data(), m.input(), m.payload));
    Floats elsewhere(m.count() + 1, 5.0f);
    Bytes again(max_payload_bytes(m.codec, m.x.spec));
    again.resize(encode_difference(m.codec, m.x.view(), m.before.data(), elsewhere.data(),
                                   m.input(), again));
    ASSERT_EQ(again, m.payload);
    ASSERT_EQ(elsewhere.back(), 5.0f);
    elsewhere.pop_back();
    ASSERT_EQ(bits_of(elsewhere), bits_of(sender));
    ASSERT_EQ(bits_of(sender), with_one_nan(sender));
    Floats receiver = m.before;
    Tensor out{m.x.spec, std::vector<double>(m.count() + 1)};
    decode_difference(m.codec, m.payload, receiver.data(), receiver.data(), m.input(),
                      {out.spec, out.data()});
    ASSERT_EQ(bits_of(receiver), bits_of(sender));
    ASSERT_EQ(bits_of(floats_of(out)),
              bits_of(floats_of(tensor_of(out.spec.dtype, out.spec.shape, receiver))));
  });
}

TEST(Memory, FeedbackIsTheSumLessWhatArrives) {
  for_each_message([](Message m) {
    const ScopedDenormals flush(true);
    Floats residual = m.before, sum = floats_of(m.x);
    for (std::size_t i = 0; i < m.count(); ++i) sum[i] += m.before[i];
    m.payload.resize(encode_with_feedback(m.codec, m.x.view(), residual.data(), residual.data(),
                                          m.input(), m.payload));
    ASSERT_EQ(refusal(m.codec, m.x.spec, m.payload), "accepted");
    // What arrives, before it is rounded to the tensor's own type: the difference to zero.
    Floats expected(m.count(), 0.0f);
    decode_difference(m.codec, m.payload, expected.data(), expected.data(), m.input(),
                      {m.x.spec, nullptr});
    for (std::size_t i = 0; i < m.count(); ++i) expected[i] = sum[i] - expected[i];
    ASSERT_EQ(bits_of(residual), with_one_nan(expected));
  });
}

// Whether the numbers of the payload are finite, not what surrounds them: a seed may look like
// anything.
TEST(Memory, APayloadIsFiniteUnlessANumberInItIsNot) {
  for (const char* text : kCodecs)
    for (const Dtype dtype : kFloats)
      for (const bool is_broken : {false, true}) {
        SCOPED_TRACE(fmt::format("{} of {}", text, name_of(dtype)));
        Floats values = normal_floats(3 * 63, 1);
        if (is_broken) std::fill(values.end() - 5, values.end(), -std::nanf(""));
        const Tensor x = tensor_of(dtype, {3, 7, 9}, values);
        const Floats map = normal_floats(45, 3);
        const CodecInput input{.seed = 0x7FC000007F807F80, .maps = {map.data(), map.data()}};
        const CodecSpec codec = parse_codec(text);
        const Bytes payload = encoded(codec, x, input);
        const Floats back = floats_of(decoded(codec, x.spec, payload, input));
        const bool is_sound = is_finite(back.data(), back.size());
        EXPECT_EQ(is_finite(codec, x.spec, payload), is_sound);
        if (!std::holds_alternative<RandomK>(codec)) {  // which may have left it out
          EXPECT_EQ(is_sound, !is_broken);
        }
      }
}

// Denormals are flushed within, and whoever called gets his own setting back.
TEST(Memory, TheCallersTreatmentOfDenormalsStays) {
  const Message m("quantise:bits=4,block=16", Dtype::f32, {3, 7, 9}, Odd::denormal);
  for (const bool flush : {false, true}) {
    const ScopedDenormals scope(flush);
    Bytes payload = encoded(m.codec, m.x);
    EXPECT_EQ(is_flushing_denormals(), flush);
    payload.pop_back();
    EXPECT_THROW(decoded(m.codec, m.x.spec, payload), WireError);
    EXPECT_EQ(is_flushing_denormals(), flush);
    Bytes code(max_payload_bytes(AutoEncoder{5}, m.x.spec));
    EXPECT_ANY_THROW(encode(AutoEncoder{5}, m.x.view(), {}, code));  // no maps: thrown inside
    EXPECT_EQ(is_flushing_denormals(), flush);
  }
}

// Numbers so small that sums, differences and products of them are denormal.
TEST(Memory, NothingDependsOnTheCallersTreatmentOfDenormals) {
  for (const char* text : kCodecs)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      SCOPED_TRACE(fmt::format("{} of {}", text, name_of(dtype)));
      Message m(text, dtype, {3, 7, 9}, Odd::none);
      Floats tiny = floats_of(m.x);
      for (float& x : tiny) x *= 2e-38f;
      for (float& x : m.before) x *= 2e-38f;
      m.x = tensor_of(dtype, {3, 7, 9}, tiny);
      std::vector<Bytes> bytes;
      std::vector<std::vector<std::uint32_t>> numbers;
      for (const bool flush : {false, true}) {
        const ScopedDenormals scope(flush);
        Floats residual = m.before, sender = m.before, receiver = m.before;
        bytes.push_back(encoded(m.codec, m.x, m.input()));
        numbers.push_back(bits_of(floats_of(decoded(m.codec, m.x.spec, bytes.back(), m.input()))));
        encode_with_feedback(m.codec, m.x.view(), residual.data(), residual.data(), m.input(),
                             m.payload);
        bytes.push_back(m.payload);
        m.payload.resize(encode_difference(m.codec, m.x.view(), sender.data(), sender.data(),
                                           m.input(), m.payload));
        bytes.push_back(m.payload);
        decode_difference(m.codec, m.payload, receiver.data(), receiver.data(), m.input(),
                          {m.x.spec, nullptr});
        for (const Floats& memory : {residual, sender, receiver})
          numbers.push_back(bits_of(memory));
        m.payload.assign(max_payload_bytes(m.codec, m.x.spec), std::byte{0});
      }
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(hex_of(bytes[i]), hex_of(bytes[3 + i])) << i;
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(numbers[i], numbers[4 + i]) << i;
    }
}

// --- claims that nobody can hold

TEST(HugeShapes, AreRefusedAtOnce) {
  const std::int64_t limit = kMaxElements;
  const std::vector<std::vector<std::int64_t>> shapes = {
      {limit},    {limit / 2, 2}, {2, limit / 2},          {limit / 8, 2, 2, 2}, {1 << 24, 1 << 24},
      {1, limit}, {limit, 1},     {std::int64_t{1} << 33}, {65536, 65536}};
  std::vector<const char*> codecs(std::begin(kCodecs), std::end(kCodecs));
  for (const char* text :
       {"quantise:block=2147483648", "sign:block=2147483648", "top_k:count=281474976710656",
        "top_k:keep=1e-300", "top_k:keep=5e-324+quantise:bits=2", "top_k:keep=0.999999999999",
        "random_k:count=9223372036854775807", "random_k:keep=1e-300", "low_rank:rank=65536",
        "auto_encoder:code=65536"})
    codecs.push_back(text);
  for (const char* text : codecs)
    for (const Dtype dtype : kFloats)
      for (const auto& shape : shapes)
        for (const std::size_t size : {0, 1, 2, 3, 7, 9, 10, 11, 14, 18, 64, 1000})
          for (const auto fill : {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{0xFF}}) {
            const CodecSpec codec = parse_codec(text);
            const TensorSpec tensor{dtype, shape};
            if (!check(codec, tensor).empty()) continue;
            SCOPED_TRACE(fmt::format("{} [{}] {}", text, fmt::join(shape, ", "), size));
            const Bytes payload(size, fill);
            const bool is_accepted = refusal(codec, tensor, payload) == "accepted";
            // Only sparse codecs say so much with so little.
            EXPECT_TRUE(!is_accepted || std::string_view(text).find("_k:") != std::string::npos);
            EXPECT_LE(max_payload_bytes(codec, tensor), std::uint64_t{1} << 52);
          }
}

TEST(HugeShapes, OfNothingTravelAsNothing) {
  const std::int64_t limit = kMaxElements;
  for (const char* text : kCodecs)
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {0, limit}, {limit, 0}, {0, limit, limit}, {limit, 1 << 15, 0}, {limit, 0, limit}}) {
      const TensorSpec tensor{Dtype::f32, shape};
      const CodecSpec codec = parse_codec(text);
      ASSERT_TRUE(check(codec, tensor).empty());
      SCOPED_TRACE(fmt::format("{} [{}]", text, fmt::join(shape, ", ")));
      const Bytes payload = encoded(codec, {tensor, std::vector<double>(1)}, {.seed = 4});
      EXPECT_LE(payload.size(), 8u);  // rotate's seed
      decoded(codec, tensor, payload);
      EXPECT_TRUE(is_finite(codec, tensor, payload));
      payload_sections(codec, tensor, payload);
    }
}

}  // namespace
}  // namespace laconic
