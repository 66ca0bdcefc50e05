// base/philox.hpp — counter-based randomness: Philox 4x32-10 (Salmon et al., 2011).
//
// There is no generator and no state. A draw is a pure function of a key and
// an index, so any rank can make any part of a random tensor without making
// the rest: that is how every layout trains the same model (docs/adr/0005).
//
//   word i     is  philox({i / 4, 0, 0}, key)[i % 4]
//   uniform i  is  made of words 2i and 2i+1, 53 bits, in the open interval (0, 1)
//   normal i   is  inverse_normal(uniform i)
//
// The vectorised fills give the same bits as the *_at functions on every
// machine: they use only correctly rounded operations, in the same order, and
// never a fused multiply-add.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace laconic {

struct Key {
  std::uint32_t lo = 0;
  std::uint32_t hi = 0;
  bool operator==(const Key&) const = default;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

PhiloxBlock philox(PhiloxBlock counter, Key key);

// Keys form a tree: a child is named by two numbers, or by a text.
Key key_of(std::uint64_t seed);
Key derive(Key parent, std::uint64_t a, std::uint64_t b = 0);
Key derive(Key parent, std::string_view name);

std::uint32_t word_at(Key key, std::uint64_t index);
double uniform_at(Key key, std::uint64_t index);

// Quantile function of the standard normal, |error| < 1e-15 relative (Wichura's AS 241).
// Requires: 0 < p < 1.
double inverse_normal(double p);

// out[j] = draw number first + j.
void fill_words(Key key, std::uint64_t first, std::span<std::uint32_t> out);
void fill_uniform(Key key, std::uint64_t first, std::span<double> out);
void fill_normal(Key key, std::uint64_t first, double mean, double deviation,
                 std::span<double> out);
void fill_normal(Key key, std::uint64_t first, double mean, double deviation, std::span<float> out);

// A permutation of [0, size) that can be asked at any point: a four-round
// Feistel network over the next power of four, walked until it lands inside.
// Requires: index < size.
std::uint64_t permuted(Key key, std::uint64_t index, std::uint64_t size);

}  // namespace laconic
