#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "laconic/base/test_target.hpp"
#include "laconic/codec/index_code.hpp"
#include "laconic/codec/largest.hpp"
#include "laconic/codec/test_round_trip.hpp"

namespace laconic {
namespace {

using namespace test;

TopK keep_fraction(double fraction, ValueSpec values = Raw{}) {
  return {{fraction, 0}, values};
}
TopK keep_count(std::int64_t count, ValueSpec values = Raw{}) {
  return {{0.01, count}, values};
}

TEST(TopK, IsItsReferenceForEverySizeAndNumber) {
  for_each_target([&] {
    for (const std::int64_t size : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 333}) {
      const std::vector<float> x = normal_floats(static_cast<std::size_t>(size), 6);
      for (const std::int64_t k : {1, 2, 3, 5, 8, 20, 64, 100, 300, 1000})
        expect_like_reference(keep_count(k), vector_of(x));
      for (const double fraction : {0.001, 0.1, 0.5, 1.0})
        expect_like_reference(keep_fraction(fraction), vector_of(x));
    }
  });
}

TEST(TopK, IsItsReferenceForEveryShapeDtypeAndKindOfValue) {
  for_each_target([&] {
    for (const Dtype dtype : kFloats)
      for (const ValueSpec& values :
           {ValueSpec(Raw{}), ValueSpec(Half{Dtype::f16}), ValueSpec(Half{Dtype::bf16})})
        for (const auto& shape : kShapes) {
          const std::size_t count = elements_of(TensorSpec{dtype, shape});
          const Tensor x = tensor_of(dtype, shape, normal_floats(count, 7));
          for (const double fraction : {0.03, 0.3, 1.0})
            expect_like_reference(keep_fraction(fraction, values), x);
        }
  });
}

// Data on which a sample says nothing, or everything is a tie; large enough to be sampled.
std::vector<std::vector<float>> hostile_data(std::size_t n) {
  std::vector<std::vector<float>> all;
  const auto add = [&](auto make) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = make(i);
    all.push_back(std::move(x));
  };
  add([](std::size_t) { return 0.0f; });
  add([](std::size_t i) { return i % 3 == 0 ? -0.0f : 0.0f; });
  add([](std::size_t) { return -2.5f; });
  add([](std::size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; });
  add([](std::size_t i) { return i % 100 == 99 ? 2.0f : 1.0f; });
  add([n](std::size_t i) { return i + 5 > n ? 2.0f : 1.0f; });
  add([](std::size_t i) { return static_cast<float>(i); });
  add([n](std::size_t i) { return static_cast<float>(n - i); });
  add([](std::size_t i) { return i % 128 == 17 ? static_cast<float>(i) : 0.001f; });
  add([](std::size_t) { return std::nanf(""); });
  add([](std::size_t i) { return std::bit_cast<float>(0x7F800001u + static_cast<unsigned>(i)); });
  add([](std::size_t i) { return std::bit_cast<float>(static_cast<unsigned>(i)); });  // denormal
  add([](std::size_t i) { return std::bit_cast<float>(static_cast<unsigned>(i * 2654435761u)); });
  all.push_back(normal_floats(n, 8));
  // Large exactly where largest() looks for a sample, so that its guess is too high.
  all.push_back(std::vector<float>(n, 0.5f));
  for (std::uint64_t i = 0; i < 100; ++i)
    all.back()[i * 16 + ((i * 0x9E3779B97F4A7C15u >> 32) * 16 >> 32)] = 5.0f;
  return all;
}

TEST(TopK, HostileDataIsSelectedExactly) {
  const std::size_t n = (1 << 16) + 77;
  const auto data = hostile_data(n);
  for (std::size_t which = 0; which < data.size(); ++which) {
    SCOPED_TRACE(which);
    for (const std::size_t size :
         {std::size_t{1024}, std::size_t{1025}, n})  // three ways to select
      for (const std::int64_t k : {1, 100, 655, 1024, 20000, 65536}) {
        if (k > static_cast<std::int64_t>(size)) continue;
        const Tensor x = vector_of({data[which].begin(), data[which].begin() + size});
        const ScopedDenormals flush(true);
        const Bytes expected = reference::encode(keep_count(k), x.spec, floats_of(x), {});
        for_each_target([&] { EXPECT_EQ(encoded(keep_count(k), x), expected) << "k = " << k; });
        EXPECT_EQ(refusal(keep_count(k), x.spec, expected), "accepted");
      }
  }
}

double energy(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0, [](double sum, float v) { return sum + v * v; });
}

TEST(TopK, LosesNoMoreThanItsShareOfTheEnergy) {
  for (const std::size_t n : {10, 100, 5000})
    for (const double fraction : {0.01, 0.1, 0.5, 1.0})
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const std::vector<float> x = normal_floats(n, seed);
        const TopK codec = keep_fraction(fraction);
        const auto back =
            floats_of(decoded(codec, vector_of(x).spec, encoded(codec, vector_of(x))));
        std::vector<float> lost(n);
        for (std::size_t i = 0; i < n; ++i) lost[i] = x[i] - back[i];
        const double k = static_cast<double>(kept_count(codec.kept, n));
        EXPECT_LE(energy(lost), (1 - k / static_cast<double>(n)) * energy(x) + 1e-12);
      }
}

// The fractions of the model-parallel compression study, and what they keep of Gaussian data.
TEST(TopK, GaussianEnergyIsKeptAsTheStudySays) {
  const std::vector<float> x = normal_floats(400000, 9);
  const struct {
    double fraction, energy;
  } cases[] = {{0.0095, 0.08}, {0.019, 0.14}, {0.048, 0.27}, {0.095, 0.43}};
  for (const auto& c : cases) {
    const TopK codec = keep_fraction(c.fraction);
    const auto back = floats_of(decoded(codec, vector_of(x).spec, encoded(codec, vector_of(x))));
    EXPECT_NEAR(energy(back) / energy(x), c.energy, 0.01) << c.fraction;
  }
}

TEST(TopK, WhatIsNotFiniteIsKeptAndTravels) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = normal_floats(1000);
  x[10] = -inf, x[500] = std::nanf(""), x[999] = inf;
  x[700] = std::numeric_limits<float>::max();
  for_each_target([&] {
    for (const ValueSpec& values : {ValueSpec(Raw{}), ValueSpec(Half{})}) {
      const TopK codec = keep_count(3, values);
      expect_like_reference(codec, vector_of(x));
      const auto back = floats_of(decoded(codec, vector_of(x).spec, encoded(codec, vector_of(x))));
      EXPECT_EQ(back[10], -inf);
      EXPECT_TRUE(std::isnan(back[500]));
      EXPECT_EQ(back[999], inf);
      EXPECT_EQ(back[700], 0.0f);
    }
  });
}

// --- the bytes

std::vector<float> ones_at(std::size_t n, const std::vector<std::size_t>& indices) {
  std::vector<float> x(n);
  for (const std::size_t i : indices) x[i] = 1.0f;
  return x;
}

TEST(TopK, TheWorkedExamplesAreAsTheDocumentSpellsThem) {
  const struct {
    std::vector<float> x;
    std::int64_t k;
    const char* text;
  } cases[] = {
      {{5, 0, -7, 1, 9, 0, 8, -6}, 5, "00 00 D5 A0 40 E0 C0 10 41 00 41 C0 C0"},
      {ones_at(1000, {999}), 1, "01 0A F9 C0 80 3F"},
      {ones_at(1000, {3, 5, 10, 30}), 4, "02 02 66 3D 80 80 3F 80 3F 80 3F 80 3F"},
      {{1, -2}, 2, "00 00 80 3F 00 C0"},
  };
  for (const auto& c : cases) {
    const TopK codec = keep_count(c.k, Half{});
    EXPECT_EQ(hex_of(encoded(codec, vector_of(c.x))), c.text);
    EXPECT_EQ(refusal(codec, vector_of(c.x).spec, bytes_of_hex(c.text)), "accepted");
  }
}

// Every subset of up to ten elements: what is chosen is what a plain search chooses.
TEST(TopK, EverySmallSetIsItsReference) {
  for (std::size_t n = 2; n <= 10; ++n)
    for (unsigned set = 1; set + 1 < 1u << n; ++set) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = (set >> i & 1) != 0 ? 2.0f : 1.0f;
      const TopK codec = keep_count(std::popcount(set));
      const Tensor tensor = vector_of(x);
      expect_like_reference(codec, tensor);
    }
}

// Among all encodings in up to two bytes those that are accepted say each set once.
TEST(TopK, ASetHasOneEncoding) {
  constexpr std::int64_t kSize = 9;
  const TensorSpec spec{Dtype::f32, {kSize}};
  const std::pair<std::uint8_t, std::uint8_t> headers[] = {{0, 0}, {1, 4}, {2, 0}, {2, 1},
                                                           {2, 2}, {2, 3}, {2, 4}};
  for (const auto& [k, sets] : {std::pair<std::int64_t, std::size_t>{1, 9}, {2, 36}}) {
    std::map<std::vector<float>, Bytes> seen;
    for (const auto& [method, width] : headers)
      for (std::uint32_t code = 0; code < 256 * 18; ++code) {
        Bytes payload;
        put(payload, method), put(payload, width), put(payload, static_cast<std::uint8_t>(code));
        // No second byte, or one that is small or has bits at its beginning.
        const std::uint32_t second = code / 256;
        if (second > 0)
          put(payload, static_cast<std::uint8_t>(second == 17 ? 1 : 16 * (second - 1)));
        for (std::int64_t j = 0; j < k; ++j) put(payload, 1.0f);
        if (refusal(keep_count(k), spec, payload) != "accepted") continue;
        const auto set = floats_of(decoded(keep_count(k), spec, payload));
        EXPECT_TRUE(seen.emplace(set, payload).second) << hex_of(payload);
      }
    EXPECT_EQ(seen.size(), sets);
  }
}

// Sets with chosen gaps, where each method wins somewhere and ties in length occur.
TEST(TopK, MethodAndParameterAreTheShortest) {
  int used[3] = {};
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    const Key key = derive(key_of(12), trial);
    const std::size_t n = 2 + word_at(key, 0) % (trial % 3 == 0 ? 30 : 3000);
    std::vector<std::size_t> indices;
    const std::uint32_t spacing = 1u << word_at(key, 1) % 11;
    for (std::size_t i = word_at(key, 2) % n, j = 3; i < n; ++j) {
      indices.push_back(i);
      i += 1 + word_at(key, j) % spacing;
    }
    if (indices.size() == n) indices.pop_back();
    const std::vector<float> x = ones_at(n, indices);
    const TopK codec = keep_count(static_cast<std::int64_t>(indices.size()), Half{});
    expect_like_reference(codec, vector_of(x));
    ++used[std::to_integer<int>(encoded(codec, vector_of(x))[0])];
  }
  for (const int count : used) EXPECT_GT(count, 20);
}

TEST(TopK, HugeGapsAndRangesAreWrittenAndRead) {
  for (const std::uint64_t elements : {std::uint64_t{1} << 33, kMaxElements}) {
    const std::vector<std::uint64_t> indices = {0, 1, elements / 3, elements - 2, elements - 1};
    const IndexPlan plan = plan_indices(indices, elements);
    Bytes code(plan.bytes), header;
    put(header, plan.method), put(header, plan.width);
    write_indices(plan, indices, code.data());
    EXPECT_EQ(check_indices(header, code, elements, indices.size()), plan);
  }
}

TEST(TopK, DamageIsRefusedWithItsField) {
  const TensorSpec spec{Dtype::f32, {1000}};
  const auto refused = [&](std::int64_t k, const char* text) {
    return refusal(keep_count(k, Half{}), spec, bytes_of_hex(text));
  };
  EXPECT_EQ(refused(1, "01 0A F9 C0 80 3F"), "accepted");
  EXPECT_EQ(refused(1, "03 0A F9 C0 80 3F"), "payload.method@0");
  EXPECT_EQ(refused(1, "01 0B F9 C0 80 3F"), "payload.width@1");
  EXPECT_EQ(refused(1, "00 01 F9 C0 80 3F"), "payload.width@1");
  EXPECT_EQ(refused(1, "02 30 F9 C0 80 3F"), "payload.width@1");
  EXPECT_EQ(refused(1, "00 00 F9 C0 80 3F"), "payload.indices@2");  // too short for a bitmap
  EXPECT_EQ(refused(1, "01 0A FA 00 80 3F"), "payload.indices@2");  // index 1000
  EXPECT_EQ(refused(1, "01 0A F9 C1 80 3F"), "payload.indices@3");  // padding
  EXPECT_EQ(refused(1, "01 0A F9 C0 00 80 3F"), "payload.indices@2");
  EXPECT_EQ(refused(1, "01 0A F9 C0"), "payload.indices@2");
  EXPECT_EQ(refused(1, "01 0A"), "payload@0");
  EXPECT_EQ(refused(1, ""), "payload@0");
  EXPECT_EQ(refused(1, "01 0A F9 C0 81 FF"), "payload.values@4");  // a NaN nobody writes
  EXPECT_EQ(refused(1, "02 09 BC E0 80 3F"), "payload.method@0");  // gaps, but fixed is as short
  EXPECT_EQ(refused(4, "02 02 66 3F 80 3F 80 3F 80 3F 80 3F"), "payload.indices@3");  // cut off
  EXPECT_EQ(refused(3, "01 0A 00 00 00 00 80 3F 80 3F 80 3F"), "payload.indices@3");  // not rising
  EXPECT_EQ(refused(1, "02 00 FF FF 80 3F"), "payload.indices@2");  // ones without end
  EXPECT_EQ(refused(1, "02 00 00 00 80 3F"), "payload.indices@3");  // bytes after the last gap
  EXPECT_EQ(refused(1000, "00 00 00"), "payload@0");
  const TensorSpec two{Dtype::f32, {2}};
  EXPECT_EQ(refusal(keep_count(2, Half{}), two, bytes_of_hex("00 00 80 3F 80 3F")), "accepted");
  EXPECT_EQ(refusal(keep_count(2, Half{}), two, bytes_of_hex("01 00 80 3F 80 3F")),
            "payload.method@0");
  EXPECT_EQ(refusal(keep_count(2, Half{}), two, bytes_of_hex("00 01 80 3F 80 3F")),
            "payload.width@1");
  EXPECT_EQ(refusal(keep_count(2, Half{}), two, bytes_of_hex("00 00 03 80 3F 80 3F")),
            "payload.indices@2");
  EXPECT_EQ(refusal(keep_count(2), {Dtype::f32, {0}}, bytes_of_hex("00")), "payload@0");
}

TEST(TopK, BitmapsMustHoldExactlyTheRightBits) {
  const TensorSpec spec{Dtype::f32, {10}};
  const std::string values = "80 3F 80 3F 80 3F 80 3F 80 3F";
  const auto refused = [&](const char* bits) {
    return refusal(keep_count(5, Half{}), spec,
                   bytes_of_hex("00 00 " + std::string(bits) + values));
  };
  EXPECT_EQ(refused("55 02 "), "accepted");
  EXPECT_EQ(refused("54 02 "), "payload.indices@2");  // four bits
  EXPECT_EQ(refused("5D 02 "), "payload.indices@3");  // six
  EXPECT_EQ(refused("55 04 "), "payload.indices@3");  // padding
  EXPECT_EQ(refused("1F 00 "), "payload.method@0");   // as gaps, one byte
}

TEST(TopK, GapsWithAnotherParameterAreRefused) {
  const std::vector<std::uint64_t> indices = {3, 5, 10, 30};
  const IndexPlan best = plan_indices(indices, 1000);
  ASSERT_EQ(best.method, IndexMethod::gaps);
  for (int w = 0; w <= 20; ++w) {
    std::uint64_t bits = 0, next = 0;
    for (const std::uint64_t i : indices) bits += 1 + w + ((i - next) >> w), next = i + 1;
    const IndexPlan plan{IndexMethod::gaps, static_cast<std::uint8_t>(w), (bits + 7) / 8};
    Bytes code(plan.bytes), header;
    put(header, plan.method), put(header, plan.width);
    write_indices(plan, indices, code.data());
    if (w == best.width)
      EXPECT_EQ(check_indices(header, code, 1000, 4), best);
    else
      EXPECT_THROW(check_indices(header, code, 1000, 4), WireError) << w;
  }
}

TEST(TopK, RandomDamageNeverCrashes) {
  for (const std::size_t n : {5, 100, 3000})
    for (const double fraction : {0.01, 0.2, 0.6, 1.0}) {
      const Tensor x = vector_of(normal_floats(n, 10));
      expect_no_crash(keep_fraction(fraction), x, 1500);
      expect_no_crash(keep_fraction(fraction, Half{}), x, 500);
    }
}

// What is accepted is what encode() would have written: decode it and encode again.
TEST(TopK, WhatIsAcceptedIsCanonical) {
  const TensorSpec spec{Dtype::f32, {40}};
  const TopK codec = keep_count(6, Half{});
  int accepted = 0;
  for (std::uint64_t trial = 0; trial < 4000; ++trial) {
    const Key key = derive(key_of(13), trial);
    Bytes payload = encoded(codec, vector_of(normal_floats(40, trial % 50)));
    const std::size_t where = word_at(key, 0) % (payload.size() - 12);
    payload[where] ^= std::byte{1} << word_at(key, 1) % 8;
    if (refusal(codec, spec, payload) != "accepted") continue;
    ++accepted;
    std::vector<float> x = floats_of(decoded(codec, spec, payload));
    EXPECT_EQ(hex_of(encoded(codec, vector_of(x))), hex_of(payload));
  }
  EXPECT_GT(accepted, 100);
}

TEST(TopK, SectionsCoverThePayload) {
  for (const double fraction : {0.001, 0.05, 0.5, 1.0}) {
    const TopK codec = keep_fraction(fraction, Half{});
    const Tensor x = vector_of(normal_floats(2000));
    expect_sections_cover(codec, x);
  }
}

}  // namespace
}  // namespace laconic
