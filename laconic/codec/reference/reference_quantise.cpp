#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "laconic/base/philox.hpp"
#include "laconic/codec/reference/reference.hpp"

namespace laconic::reference {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// --- f16: by its definition, and rounding by looking for the neighbours

double half_value(unsigned half) {
  const int exponent = static_cast<int>(half >> 10 & 31);
  const double fraction = half & 1023;
  const double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -value : value;
}

constexpr unsigned kLargestHalf = 0x7BFF;

unsigned first_half_not_below(double magnitude) {
  unsigned low = 0, high = kLargestHalf;
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (half_value(middle) < magnitude)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// As a float; infinite from the middle between the largest f16 and what would come next.
float nearest_half(double magnitude) {
  if (magnitude >= 65520) return std::numeric_limits<float>::infinity();
  const unsigned above = first_half_not_below(magnitude);
  if (above == 0) return 0;
  const unsigned below = above - 1;
  const double up = half_value(above) - magnitude, down = magnitude - half_value(below);
  const bool take_above = up < down || (up == down && above % 2 == 0);
  return static_cast<float>(half_value(take_above ? above : below));
}

// --- groups

std::uint64_t group_of(const Quantise& codec, const TensorSpec& tensor, std::uint64_t element) {
  const std::uint64_t columns = matrix_shape(tensor).columns;
  switch (codec.group) {
    case ScaleGroup::block: return element / static_cast<std::uint64_t>(codec.block);
    case ScaleGroup::row: return element / columns;
    case ScaleGroup::channel: return element % columns;
  }
  return 0;
}

struct Group {
  float largest = 0;  // magnitude
  bool is_finite = true;
  bool has_positive_largest = false;
};

std::vector<Group> find_groups(const Quantise& codec, const TensorSpec& tensor, const Floats& x) {
  std::vector<Group> groups(scale_count(codec, tensor));
  for (std::size_t i = 0; i < x.size(); ++i) {
    Group& group = groups[group_of(codec, tensor, i)];
    const float magnitude = std::abs(x[i]);
    if (!std::isfinite(x[i])) group.is_finite = false;
    if (magnitude > group.largest) group = {magnitude, group.is_finite, false};
    if (magnitude == group.largest && x[i] > 0) group.has_positive_largest = true;
  }
  return groups;
}

float scale_magnitude(const Quantise& codec, float largest) {
  if (codec.grid == Grid::artefact) {
    const float scale = nearest_half(largest);
    return std::isinf(scale) ? kNan : scale;
  }
  if (codec.scale == ScaleType::f16)
    return static_cast<float>(half_value(first_half_not_below(largest)));
  if (codec.scale == ScaleType::f32) return std::min(largest, 0x1p125f);
  float power = 0x1p-100f;
  while (power < largest && power < 0x1p125f) power *= 2;
  return power;
}

float scale_of(const Quantise& codec, const Group& group) {
  if (!group.is_finite) return kNan;
  if (group.largest < 0x1p-100f) return 0;
  const float scale = scale_magnitude(codec, group.largest);
  const bool has_sign = codec.grid == Grid::tread && codec.scale != ScaleType::pow2;
  return has_sign && group.has_positive_largest ? -scale : scale;
}

void put_scale(const Quantise& codec, float scale, Bytes& out) {
  const bool is_nan = std::isnan(scale);
  if (codec.scale == ScaleType::f32) return put(out, is_nan ? kNan : scale);
  if (codec.scale == ScaleType::f16) {
    const unsigned half = first_half_not_below(std::abs(scale)) + (scale < 0 ? 0x8000 : 0);
    return put(out, static_cast<std::uint16_t>(is_nan ? 0x7E00 : half));
  }
  const int exponent = is_nan ? 255 : scale == 0 ? 0 : std::ilogb(scale) + 127;
  put(out, static_cast<std::uint8_t>(exponent));
}

float get_scale(const Quantise& codec, ByteView payload, std::size_t at, std::uint64_t group) {
  if (codec.scale == ScaleType::f32) return get<float>(payload, at + 4 * group);
  if (codec.scale == ScaleType::f16) {
    const auto half = get<std::uint16_t>(payload, at + 2 * group);
    return half == 0x7E00 ? kNan : static_cast<float>(half_value(half));
  }
  const int exponent = get<std::uint8_t>(payload, at + group);
  return exponent == 255 ? kNan : exponent == 0 ? 0 : std::ldexp(1.0f, exponent - 127);
}

// --- codes

bool is_dead(float scale) {
  return scale == 0 || std::isnan(scale);
}

float limited(float value, float low, float high) {
  return std::min(std::max(value, low), high);
}

float ends_code(const Quantise& codec, float x, float scale, std::uint64_t i, Key rounding) {
  const float top = static_cast<float>((1 << codec.bits) - 1), half = top / 2;
  const float y = x * (half / scale) + half;
  if (codec.rounding == Rounding::nearest) return limited(std::nearbyint(y), 0, top);
  const float u = static_cast<float>(word_at(rounding, i) >> 8) * 0x1p-24f;
  return limited(std::floor(y + u), 0, top);
}

// Of zero and 2^(2 - L) ... 1/2, 1 the number of the nearest, with the sign of y: one after the
// other is tried, and taken if it is not farther than the one before.
int nearest_power(float y, int levels) {
  const float magnitude = std::min(std::abs(y), 1.0f);
  int k = 0;
  for (int up = 1; up < levels; ++up) {
    const float here = k == 0 ? 0 : std::ldexp(1.0f, k - levels + 1);
    const float next = std::ldexp(1.0f, up - levels + 1);
    if (next - magnitude <= magnitude - here) k = up;
  }
  return y < 0 ? -k : k;
}

float code_of(const Quantise& codec, float x, float scale, std::uint64_t i, Key rounding) {
  const float levels = static_cast<float>(1 << codec.bits) / 2;
  if (is_dead(scale)) return codec.grid == Grid::ends ? 0 : levels;
  if (codec.grid == Grid::ends) return ends_code(codec, x, scale, i, rounding);
  if (codec.grid == Grid::powers)
    return levels + static_cast<float>(nearest_power(x * (1 / scale), 1 << (codec.bits - 1)));
  float q = x * (levels / scale);
  if (codec.grid == Grid::artefact) q = (x / nearest_half(scale + 1e-6f)) * levels;
  return limited(std::nearbyint(q), -levels, levels - 1) + levels;
}

float value_of(const Quantise& codec, float code, float scale) {
  if (std::isnan(scale)) return kNan;
  if (scale == 0) return 0;
  const float levels = static_cast<float>(1 << codec.bits) / 2, half = levels - 0.5f;
  if (codec.grid == Grid::ends) return (code - half) * (scale / half);
  if (codec.grid == Grid::artefact) return ((code - levels) / levels) * scale;
  if (codec.grid == Grid::powers && code != levels) {
    const int k = static_cast<int>(std::abs(code - levels) - levels) + 1;
    return std::copysign(std::ldexp(1.0f, k), code - levels) * scale;
  }
  return (code - levels) * (scale / levels);
}

struct BitStream {
  Bytes bytes;
  std::size_t bits = 0;
  void put(unsigned code, int width) {
    for (int k = width - 1; k >= 0; --k, ++bits) {
      if (bits % 8 == 0) bytes.push_back(std::byte{0});
      bytes.back() |= static_cast<std::byte>((code >> k & 1) << (7 - bits % 8));
    }
  }
};

unsigned get_code(ByteView payload, std::size_t at, std::uint64_t element, int width) {
  unsigned code = 0;
  for (int k = 0; k < width; ++k) {
    const std::uint64_t bit = element * static_cast<unsigned>(width) + static_cast<unsigned>(k);
    code = code * 2 + (std::to_integer<unsigned>(payload[at + bit / 8]) >> (7 - bit % 8) & 1);
  }
  return code;
}

// --- rotation

void transform(float* values, std::size_t size) {
  for (std::size_t h = 1; h < size; h *= 2)
    for (std::size_t run = 0; run < size; run += 2 * h)
      for (std::size_t i = run; i < run + h; ++i) {
        const float a = values[i], b = values[i + h];
        values[i] = a + b;
        values[i + h] = a - b;
      }
  const float norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  for (std::size_t i = 0; i < size; ++i) values[i] *= norm;
}

void transform_blocks(const Quantise& codec, Floats& values) {
  for (std::size_t i = 0; i < values.size();) {
    std::size_t power = static_cast<std::size_t>(codec.block);
    while (power > values.size() - i) power /= 2;
    transform(values.data() + i, power);
    i += power;
  }
}

void turn_signs(std::uint64_t seed, Floats& values) {
  const Key key = derive(key_of(seed), 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((word_at(key, i / 32) >> (i % 32) & 1) != 0) values[i] = -values[i];
}

}  // namespace

Bytes encode(const Quantise& codec, const TensorSpec& tensor, const Floats& x,
             const CodecInput& input) {
  Bytes out;
  Floats values = x;
  if (codec.rotate) {
    put(out, input.seed);
    turn_signs(input.seed, values);
    transform_blocks(codec, values);
  }
  std::vector<float> scales;
  for (const Group& group : find_groups(codec, tensor, values)) {
    scales.push_back(scale_of(codec, group));
    put_scale(codec, scales.back(), out);
  }
  BitStream codes;
  const Key rounding = derive(key_of(input.seed), 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale = scales[group_of(codec, tensor, i)];
    const float code = code_of(codec, values[i], scale, i, rounding);
    codes.put(static_cast<unsigned>(code), codec.bits);
  }
  out.insert(out.end(), codes.bytes.begin(), codes.bytes.end());
  return out;
}

Floats decode(const Quantise& codec, const TensorSpec& tensor, ByteView payload,
              const CodecInput&) {
  Floats out(elements_of(tensor));
  const std::size_t scales_at = codec.rotate ? 8 : 0;
  const std::size_t codes_at =
      payload.size() - (out.size() * static_cast<unsigned>(codec.bits) + 7) / 8;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float scale = get_scale(codec, payload, scales_at, group_of(codec, tensor, i));
    out[i] = value_of(codec, static_cast<float>(get_code(payload, codes_at, i, codec.bits)), scale);
  }
  if (codec.rotate) {
    transform_blocks(codec, out);
    turn_signs(get<std::uint64_t>(payload, 0), out);
    for (float& value : out)
      if (std::isnan(value)) value = kNan;
  }
  return out;
}

}  // namespace laconic::reference
