// codec/scale.hpp — the number that a group of quantised elements shares, and what follows from it.
//
// A scale here is always the f32 that the receiver will read, never the
// magnitude it was made from: it is rounded to its stored type before anything
// else, so both ends derive the same Level. Two scales are special:
// zero, and NaN for a group that held something not finite. The codes of such
// a dead group are fixed and `encode_factor` is zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

// The extremes of a group's elements by their bits, seen as i32: integers order floats of one sign
// as the floats are ordered, and NaN above infinity above the rest.
struct Extremes {
  std::int32_t magnitude = 0;  // the largest without its sign
  std::int32_t highest = 0;    // the largest with it; equal to magnitude if that one is positive
};

// The arithmetic of one group, see docs/wire-format.md.
struct Level {
  float encode_factor = 0;  // L / s or H / s; for the grid artefact the divisor d, for powers 1 / s
  float step = 0;           // what one code is worth; for powers the largest, s
  float middle = 0;         // the code, perhaps half a one, that decodes to zero
};

std::size_t scale_bytes(ScaleType type);

// What both ends do with each of `count` groups: the sender stores the scale that follows from the
// extremes at `out`, the receiver reads it from `in`.
void store_scales(const Quantise& codec, const Extremes* extremes, std::size_t count,
                  std::byte* out, Level* levels);
void load_levels(const Quantise& codec, const std::byte* in, std::size_t count,
                 Level* levels);  // encode_factor is left zero

float load_scale(ScaleType type, const std::byte* in);

// The code of every element of a dead group.
std::uint8_t dead_code(const Quantise& codec);

// Why no encoder writes such a scale; null if one does. Requires: scale_bytes() bytes at `in`.
const char* refuse_scale(const Quantise& codec, const std::byte* in);

// binary16 by integer arithmetic, for magnitudes: the processor's flushing of denormals and the
// instruction set have no say. Requires: the argument is positive and finite.
std::uint16_t f16_away_from_zero(float magnitude);  // at most 65504
std::uint16_t f16_nearest(float magnitude);         // 7C00 if it overflows
float f16_value(std::uint16_t half);

}  // namespace laconic
