// The quantise codec is the same on every instruction set, as the plain reference, and in one pass
// with a memory as in several.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/denormals.hpp"
#include "laconic/base/test_target.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/reference/reference.hpp"
#include "laconic/codec/test_quantise.hpp"

namespace laconic {
namespace {

// Every combination of options that makes sense, with this block where groups are blocks.
std::vector<Quantise> all_codecs(std::int64_t block) {
  std::vector<Quantise> codecs;
  for (int bits = 1; bits <= 8; ++bits)
    for (const ScaleGroup group : {ScaleGroup::block, ScaleGroup::row, ScaleGroup::channel})
      for (const ScaleType scale : {ScaleType::f32, ScaleType::f16, ScaleType::pow2})
        for (const Grid grid : {Grid::tread, Grid::ends, Grid::artefact, Grid::powers})
          for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
            for (const bool rotate : {false, true}) {
              const Quantise codec{bits,  group,    group == ScaleGroup::block ? block : 0,
                                   scale, rounding, grid,
                                   rotate};
              if (check(codec).empty()) codecs.push_back(codec);
            }
  return codecs;
}

enum class Data { normal, tiny, denormal, zero, outlier, huge, largest, nan, infinite };
constexpr Data kAllData[] = {Data::normal,  Data::tiny,    Data::denormal,
                             Data::zero,    Data::outlier, Data::huge,
                             Data::largest, Data::nan,     Data::infinite};

// What is unusual is at one place or in one stretch: other groups stay ordinary.
Floats make_data(Data kind, std::size_t size) {
  const double deviation = kind == Data::tiny ? 1e-7 : kind == Data::huge ? 1e5 : 1;
  Floats x = normal_data(size, deviation);
  const std::size_t odd = size * 2 / 3;
  for (std::size_t i = 0; i < size; ++i) {
    if (kind == Data::denormal && i % 3 != 0) x[i] = i % 2 == 0 ? 1e-40f : -0x1p-110f;
    if (kind == Data::zero && i < odd) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    if (kind == Data::largest && i >= odd)
      x[i] = std::copysign(std::numeric_limits<float>::max(), x[i]);
  }
  if (odd >= size) return x;
  if (kind == Data::outlier) x[odd] = -1e4f;
  if (kind == Data::nan) x[odd] = -std::numeric_limits<float>::signaling_NaN();
  if (kind == Data::infinite) x[odd] = -std::numeric_limits<float>::infinity();
  return x;
}

struct Case {
  Quantise codec;
  TensorSpec tensor;
  Floats x;
  Bytes payload;   // of the reference, as are
  Floats decoded;  // these
};

Case make_case(const Quantise& codec, std::vector<std::int64_t> shape, Data kind) {
  const ScopedDenormals flush(true);
  CodecInput input;
  input.seed = 1;
  Case c{codec, {Dtype::f32, std::move(shape)}, {}, {}, {}};
  c.x = make_data(kind, elements_of(c.tensor));
  c.payload = reference::encode(codec, c.tensor, c.x, input);
  c.decoded = reference::decode(codec, c.tensor, c.payload, input);
  return c;
}

void expect_like_reference(const Case& c) {
  const Bytes payload = encoded(c.codec, c.tensor, c.x);
  ASSERT_EQ(payload.size(), max_payload_bytes(c.codec, c.tensor));
  ASSERT_TRUE(payload == c.payload) << hex(payload) << "\nis not " << hex(c.payload);
  ASSERT_EQ(bits_of(decoded(c.codec, c.tensor, payload)), bits_of(c.decoded));
}

void expect_all_like_reference(const std::vector<Case>& cases) {
  for_each_target([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(to_text(c.codec) + " of " + std::to_string(c.x.size()));
      ASSERT_NO_FATAL_FAILURE(expect_like_reference(c));
    }
  });
}

TEST(Quantise, EveryTargetAgreesWithTheReferenceOnBlocks) {
  for (const std::int64_t block : {8, 7, 64}) {
    std::vector<Case> cases;
    for (const Quantise& codec : all_codecs(block))
      if (codec.group == ScaleGroup::block)
        for (const std::int64_t size :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7},
              std::int64_t{8}, std::int64_t{9}, block - 1, block, block + 1, 3 * block + 5})
          for (const Data kind : kAllData)
            if (size > 3 || kind == Data::normal) cases.push_back(make_case(codec, {size}, kind));
    expect_all_like_reference(cases);
  }
}

TEST(Quantise, EveryTargetAgreesWithTheReferenceOnShapes) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {5}, {3, 1}, {1, 37}, {17, 5}, {2, 3, 16}, {2, 3, 2, 21}, {0, 4}, {4, 0}};
  std::vector<Case> cases;
  for (const Quantise& codec : all_codecs(16))
    for (const auto& shape : shapes)
      for (const Data kind : kAllData)
        if (codec.group != ScaleGroup::block || kind == Data::normal)
          cases.push_back(make_case(codec, shape, kind));
  expect_all_like_reference(cases);
}

// Sizes around the 1024 or 4096 elements that are packed at a time, and groups that do not divide
// them.
TEST(Quantise, EveryTargetAgreesWithTheReferenceAcrossTiles) {
  std::vector<Case> cases;
  for (const int bits : {2, 3, 4, 8})
    for (const char* text : {"quantise:block=256", "quantise:block=1000", "quantise:block=9001",
                             "quantise:block=4096,rotate=true", "quantise:block=256,rotate=true",
                             "quantise:grid=ends,rounding=stochastic,block=77",
                             "quantise:group=row", "quantise:group=channel,grid=ends,scale=pow2",
                             "quantise:group=channel,scale=f16,grid=artefact"}) {
      auto codec = std::get<Quantise>(parse_codec(text));
      codec.bits = bits;
      for (const std::int64_t size : {1023, 1024, 1025, 4095, 4096, 4097, 3 * 4096 + 77})
        cases.push_back(make_case(codec, {size}, Data::nan));
      for (const std::vector<std::int64_t>& shape :
           {std::vector<std::int64_t>{4097, 3}, {31, 700}, {3, 5000}})
        cases.push_back(make_case(codec, shape, Data::infinite));
    }
  expect_all_like_reference(cases);
}

TEST(Quantise, LargeTensorsAtAnyAlignment) {
  const Quantise codec{.bits = 3};
  const Case c = make_case(codec, {(1 << 20) + 4099}, Data::outlier);
  for_each_target([&] {
    ASSERT_NO_FATAL_FAILURE(expect_like_reference(c));
    Floats room(c.x.size() + 16);
    for (std::size_t shift = 0; shift < 16; shift += 3) {
      decode(codec, c.payload, {}, {c.tensor, room.data() + shift});
      const auto begin = room.begin() + static_cast<std::ptrdiff_t>(shift);
      ASSERT_TRUE(std::equal(c.decoded.begin(), c.decoded.end(), begin));
    }
  });
}

// --- with a memory

struct Memory {
  Bytes payload;
  Floats after;
};

Memory composed_feedback(const Quantise& codec, const TensorSpec& tensor, Floats x,
                         const Floats& before) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += before[i];
  Memory memory{encoded(codec, tensor, x), {}};
  memory.after = decoded(codec, tensor, memory.payload);
  for (std::size_t i = 0; i < x.size(); ++i) memory.after[i] = x[i] - memory.after[i];
  return memory;
}

Memory composed_difference(const Quantise& codec, const TensorSpec& tensor, Floats x,
                           const Floats& before) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= before[i];
  Memory memory{encoded(codec, tensor, x), {}};
  memory.after = decoded(codec, tensor, memory.payload);
  for (std::size_t i = 0; i < x.size(); ++i) memory.after[i] = before[i] + memory.after[i];
  return memory;
}

CodecInput seed_one() {
  CodecInput input;
  input.seed = 1;
  return input;
}

void expect_feedback_like_composed(const Quantise& codec, const TensorSpec& tensor, const Floats& x,
                                   const Floats& before) {
  const Memory wanted = composed_feedback(codec, tensor, x, before);
  Memory got{Bytes(wanted.payload.size()), Floats(x.size())};
  encode_with_feedback(codec, {tensor, x.data()}, before.data(), got.after.data(), seed_one(),
                       got.payload);
  ASSERT_TRUE(got.payload == wanted.payload);
  ASSERT_EQ(bits_of(got.after), bits_with_one_nan(wanted.after));
  Floats in_place = before;
  encode_with_feedback(codec, {tensor, x.data()}, in_place.data(), in_place.data(), seed_one(),
                       got.payload);
  ASSERT_EQ(bits_of(in_place), bits_of(got.after));
}

void expect_difference_like_composed(const Quantise& codec, const TensorSpec& tensor,
                                     const Floats& x, const Floats& before) {
  const Memory wanted = composed_difference(codec, tensor, x, before);
  Memory got{Bytes(wanted.payload.size()), before};
  encode_difference(codec, {tensor, x.data()}, got.after.data(), got.after.data(), seed_one(),
                    got.payload);
  ASSERT_TRUE(got.payload == wanted.payload);
  ASSERT_EQ(bits_of(got.after), bits_with_one_nan(wanted.after));
  Floats received(x.size()), out(x.size()), in_place = before;
  decode_difference(codec, got.payload, before.data(), received.data(), {}, {tensor, out.data()});
  ASSERT_EQ(bits_of(received), bits_of(got.after));
  ASSERT_EQ(bits_of(out), bits_of(got.after));
  decode_difference(codec, got.payload, in_place.data(), in_place.data(), {}, {tensor, nullptr});
  ASSERT_EQ(bits_of(in_place), bits_of(got.after));
}

TEST(Quantise, AMemoryInOnePassIsAMemoryInSeveral) {
  const ScopedDenormals flush(true);
  for_each_target([&] {
    for (const Quantise& codec : all_codecs(33)) {
      if (!part::is_fusable(codec)) continue;
      SCOPED_TRACE(to_text(codec));
      for (const Data kind : kAllData) {
        const TensorSpec tensor{Dtype::f32, {13, 41}};
        const Floats x = make_data(kind, 13 * 41);
        const Floats before = normal_data(x.size(), 0.5, 8);
        ASSERT_NO_FATAL_FAILURE(expect_feedback_like_composed(codec, tensor, x, before));
        ASSERT_NO_FATAL_FAILURE(expect_difference_like_composed(codec, tensor, x, before));
      }
    }
  });
}

// In place too, where a group is longer than what is written at a time.
TEST(Quantise, AMemoryAcrossTilesIsTheSame) {
  const ScopedDenormals flush(true);
  const TensorSpec tensor{Dtype::f32, {5, 1501}};
  const Floats x = make_data(Data::outlier, 5 * 1501), before = normal_data(x.size(), 0.5, 8);
  for_each_target([&] {
    for (const char* text : {"quantise:bits=3,block=3000", "quantise:bits=3,group=row",
                             "quantise:bits=4,group=channel", "quantise:bits=5,block=100",
                             "quantise:bits=4,block=1000,grid=ends,rounding=stochastic"}) {
      SCOPED_TRACE(text);
      const auto codec = std::get<Quantise>(parse_codec(text));
      expect_feedback_like_composed(codec, tensor, x, before);
      expect_difference_like_composed(codec, tensor, x, before);
    }
  });
}

TEST(Quantise, EverythingButRotationIsFusable) {
  for (const Quantise& codec : all_codecs(64)) EXPECT_EQ(part::is_fusable(codec), !codec.rotate);
}

TEST(Quantise, ALargeMemoryIsWrittenPastTheCacheTheSame) {
  const ScopedDenormals flush(true);
  const TensorSpec tensor = vector_of((1 << 20) + 4099);
  const Floats x = normal_data((1 << 20) + 4099), before = normal_data(x.size(), 0.5, 8);
  for_each_target([&] {
    expect_feedback_like_composed({.bits = 4}, tensor, x, before);
    expect_difference_like_composed({.bits = 4}, tensor, x, before);
  });
}

}  // namespace
}  // namespace laconic
