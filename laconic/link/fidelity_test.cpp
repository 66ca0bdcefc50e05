#include "laconic/link/fidelity.hpp"

#include <cmath>
#include <limits>

#include "laconic/codec/convert.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

constexpr const char* kCodecs[] = {
    "half",
    "quantise:bits=1,grid=ends",
    "quantise:bits=4,block=64",
    "quantise:bits=4,block=64,grid=powers",
    "quantise:bits=3,block=64,rotate=true,grid=ends,rounding=stochastic",
    "sign",
    "top_k:keep=0.1",
    "top_k:keep=0.05+quantise:bits=4",
    "random_k:keep=0.5",
    "low_rank:rank=4"};

// A step of three messages of four samples each, of one dtype, and what a receiver makes of them.
struct Watched {
  Fidelity seen, expected;

  Watched(const LinkSpec& spec, Dtype dtype, std::uint64_t steps) {
    const TensorSpec tensor{dtype, {4, 6, 40}};
    const std::size_t count = elements_of(tensor);
    LinkPair link(spec, tensor);
    const bool has_samples = std::holds_alternative<Delta>(spec.memory);
    for (std::uint64_t step = 0; step < steps; ++step) {
      seen = expected = {};
      link.sender.measure_fidelity(&seen);
      link.begin();
      for (std::uint64_t m = 0; m < 3; ++m) {
        const Keys keys = {4 * m, 4 * m + 1, 4 * m + 2, 4 * m + 3};
        const MessageSpec message{.samples = has_samples ? std::span<const std::uint64_t>(keys)
                                                         : std::span<const std::uint64_t>()};
        Scratch<std::uint64_t> x(count), y(count);  // room for any dtype
        narrow(dtype, normal(count, 10 * step + m).data(), count, x.data());
        const Bytes bytes = link.sender.pack({tensor, x.data()}, message);
        link.receiver.unpack(bytes, {tensor, y.data()}, message);
        add(tensor, x.data(), y.data(), has_samples ? 4 : 1, link.sender);
      }
      link.commit();
    }
  }

  // Message by message, as what was seen was added up: doubles round.
  void add(const TensorSpec& tensor, const void* x, const void* y, std::size_t messages,
           const Sender& sender) {
    const std::size_t count = elements_of(tensor), each = count / messages;
    Floats truth(count), decoded(count);
    widen(tensor.dtype, x, count, truth.data());
    widen(tensor.dtype, y, count, decoded.data());
    for (std::size_t i = 0; i < messages; ++i) {
      Fidelity one = compare(std::span(truth).subspan(i * each, each),
                             std::span(decoded).subspan(i * each, each));
      one.residual = square_of(sender.residual());
      expected += one;
    }
  }
};

TEST(Fidelity, IsWhatAReceiverGetsWithEveryCodecAndMemory) {
  const MemorySpec memories[] = {
      NoMemory{},
      ErrorFeedback{},
      ErrorFeedback{Reset::step},
      Delta{.first = parse_codec("half"), .reference = Reference::f32},
      Delta{.first = parse_codec("quantise:bits=8"), .reference = Reference::bf16},
      Delta{.first = parse_codec("half"), .reference = Reference::q8},
      Delta{.first = parse_codec("half"), .budget_bytes = 4000}};  // room for some samples only
  int links = 0;
  for (const char* codec : kCodecs)
    for (const MemorySpec& memory : memories)
      for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
        for (const std::uint64_t steps : {1U, 3U}) {  // delta: first visits, and changes
          const LinkSpec spec{"test.link", parse_codec(codec), memory};
          if (!check(spec).empty() || !check(spec.codec, {dtype, {4, 6, 40}}).empty()) continue;
          SCOPED_TRACE(std::string(codec) + " " + to_text(memory) + " " +
                       std::string(name_of(dtype)) + " " + std::to_string(steps));
          const Watched watched(spec, dtype, steps);
          EXPECT_EQ(watched.seen, watched.expected);
          EXPECT_EQ(watched.seen.messages, std::holds_alternative<Delta>(memory) ? 12U : 3U);
          const bool is_exact = dtype == Dtype::bf16 && spec.codec == CodecSpec(Half{});
          EXPECT_EQ(watched.seen.residual > 0,
                    std::holds_alternative<ErrorFeedback>(memory) && !is_exact);
          ++links;
        }
  EXPECT_GT(links, 200);
}

TEST(Fidelity, LearnedMapsAreTheReceivers) {
  const TensorSpec tensor{Dtype::f32, {24, 40}};
  const Floats encoder = normal(10 * 40, 1, 0.2), decoder = normal(40 * 10, 2, 0.2);
  const MessageSpec message{.maps = {encoder.data(), decoder.data()}};
  LinkPair link({"test.link", parse_codec("auto_encoder:code=10")}, tensor);
  Fidelity seen;
  link.sender.measure_fidelity(&seen);
  const Floats x = normal(24 * 40, 3);
  const Floats got = link.step(x, message);
  EXPECT_EQ(seen, compare(x, got));
  EXPECT_LT(seen.cosine(), 0.99);
  link.begin();
  link.pack(x, {.maps = {encoder.data(), nullptr}});  // a sender that has no decoder cannot tell
  EXPECT_EQ(seen.messages, 1U);
}

TEST(Fidelity, WhatTravelsRawOrIsNotFiniteIsNotCounted) {
  const TensorSpec tensor{Dtype::f32, {2, 8}};
  Floats x = normal(16, 3);
  Fidelity seen;
  LinkPair raw({"test.link", Raw{}}, tensor);
  raw.sender.measure_fidelity(&seen);
  raw.step(x);
  LinkPair half({"test.link", Half{}}, tensor);
  half.sender.measure_fidelity(&seen);
  half.begin();
  half.send(x, {.use = Use::bypass});
  half.send(x, {.use = Use::evaluation});
  EXPECT_EQ(seen, Fidelity{});
  half.send(x);
  EXPECT_EQ(seen.messages, 1U);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  half.send(x);
  EXPECT_EQ(seen.messages, 1U);
  half.sender.measure_fidelity(nullptr);
  x[3] = 0;
  half.send(x);
  EXPECT_EQ(seen.messages, 1U);
}

// f16 makes infinities of what it cannot hold: that is the codec's fault, and is counted.
TEST(Fidelity, AnOverflowOfTheCodecIsSeen) {
  const TensorSpec tensor{Dtype::f32, {4}};
  Fidelity seen;
  LinkPair link({"test.link", Half{Dtype::f16}}, tensor);
  link.sender.measure_fidelity(&seen);
  link.step({1, 2, 1e6F, 3});
  EXPECT_EQ(seen.messages, 1U);
  EXPECT_TRUE(std::isfinite(seen.truth));
  EXPECT_FALSE(seen.relative_error() <= 1);
  EXPECT_FALSE(seen.cosine() >= 0.5);
}

TEST(Fidelity, WatchingChangesNoMessage) {
  const TensorSpec tensor{Dtype::f32, {24, 40}};
  for (const char* codec : kCodecs)
    for (const MemorySpec& memory : {MemorySpec(NoMemory{}), MemorySpec(ErrorFeedback{})}) {
      const LinkSpec spec{"test.link", parse_codec(codec), memory};
      LinkPair watched(spec, tensor), plain(spec, tensor);
      Fidelity seen;
      watched.sender.measure_fidelity(&seen);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const Floats x = normal(24 * 40, step);
        EXPECT_TRUE(same_bits(watched.step(x), plain.step(x))) << codec;
        EXPECT_EQ(watched.last, plain.last) << codec;
      }
    }
}

TEST(Fidelity, NumbersAreThoseOfTheVectors) {
  const float x[] = {3, 0, 4}, y[] = {3, 4, 0};
  Fidelity f = compare(x, y);
  EXPECT_EQ(f, (Fidelity{.messages = 1, .truth = 25, .decoded = 25, .product = 9, .error = 32}));
  EXPECT_DOUBLE_EQ(f.cosine(), 9.0 / 25);
  EXPECT_DOUBLE_EQ(f.relative_error(), std::sqrt(32.0) / 5);
  f.residual = 100;
  EXPECT_DOUBLE_EQ(f.residual_ratio(), 2);
  const float zero[] = {0, 0, 0};
  EXPECT_EQ(Fidelity{}.cosine(), 1);
  EXPECT_EQ(Fidelity{}.relative_error(), 0);
  EXPECT_EQ(compare(x, zero).cosine(), 0);
  EXPECT_EQ(compare(x, zero).relative_error(), 1);
  EXPECT_EQ(compare(zero, x).cosine(), 0);
  EXPECT_TRUE(std::isinf(compare(zero, x).relative_error()));
  Fidelity twice = f;
  twice += f;
  EXPECT_EQ(twice.messages, 2U);
  EXPECT_DOUBLE_EQ(twice.cosine(), f.cosine());
}

}  // namespace
}  // namespace laconic
