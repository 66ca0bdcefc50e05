#include <algorithm>
#include <bit>
#include <bitset>
#include <cmath>
#include <numeric>
#include <set>

#include "laconic/base/philox.hpp"
#include "laconic/codec/reference/reference.hpp"
#include "laconic/codec/reference/reference_float.hpp"

namespace laconic::reference {

namespace {

using Indices = std::vector<std::uint64_t>;
using Bits = std::vector<bool>;

// --- values

void put_raw(Bytes& payload, Dtype dtype, float x) {
  if (dtype == Dtype::f32)
    put(payload, std::isnan(x) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x));
  else
    put(payload, narrowed(dtype, x));
}

Bytes encode_values(const ValueSpec& spec, const TensorSpec& values, const Floats& x,
                    const CodecInput& input) {
  if (const auto* half = std::get_if<Half>(&spec)) return encode(*half, values, x, input);
  if (const auto* quantise = std::get_if<Quantise>(&spec))
    return encode(*quantise, values, x, input);
  Bytes payload;
  for (const float v : x) put_raw(payload, values.dtype, v);
  return payload;
}

Floats decode_values(const ValueSpec& spec, const TensorSpec& values, ByteView payload,
                     const CodecInput& input) {
  if (const auto* half = std::get_if<Half>(&spec)) return decode(*half, values, payload, input);
  if (const auto* quantise = std::get_if<Quantise>(&spec))
    return decode(*quantise, values, payload, input);
  Floats x;
  for (std::uint64_t i = 0; i < elements_of(values); ++i)
    x.push_back(values.dtype == Dtype::f32
                    ? get<float>(payload, 4 * i)
                    : widened(values.dtype, get<std::uint16_t>(payload, 2 * i)));
  return x;
}

void append(Bytes& to, const Bytes& from) {
  to.insert(to.end(), from.begin(), from.end());
}

Floats at(const Floats& x, const Indices& indices) {
  Floats values;
  for (const std::uint64_t i : indices) values.push_back(x[i]);
  return values;
}

// --- top_k's choice

double size_of(float x) {
  if (std::isnan(x)) return INFINITY;
  if (std::isinf(x)) return 1e300;
  return std::fabs(x) < 0x1p-126f ? 0.0 : std::fabs(static_cast<double>(x));
}

Indices largest(const Floats& x, std::uint64_t k) {
  Indices order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return size_of(x[a]) > size_of(x[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

// --- indices as bits

void put_bits(Bits& bits, std::uint64_t value, int width) {
  for (int i = width - 1; i >= 0; --i) bits.push_back((value >> i & 1) != 0);
}

Bits bitmap(const Indices& indices, std::uint64_t elements) {
  Bits bits(elements);
  for (const std::uint64_t i : indices) bits[i] = true;
  return bits;
}

int width_of(std::uint64_t elements) {
  int width = 1;
  while ((std::uint64_t{1} << width) < elements) ++width;
  return width;
}

Bits fixed(const Indices& indices, int width) {
  Bits bits;
  for (const std::uint64_t i : indices) put_bits(bits, i, width);
  return bits;
}

Bits gaps(const Indices& indices, int w) {
  Bits bits;
  std::uint64_t next = 0;
  for (const std::uint64_t i : indices) {
    bits.insert(bits.end(), (i - next) >> w, true);
    bits.push_back(false);
    put_bits(bits, (i - next) & ((std::uint64_t{1} << w) - 1), w);
    next = i + 1;
  }
  return bits;
}

Bytes packed(const Bits& bits, bool lowest_first) {
  Bytes bytes;
  for (std::size_t begin = 0; begin < bits.size(); begin += 8) {
    unsigned byte = 0;
    for (std::size_t i = 0; i < 8 && begin + i < bits.size(); ++i)
      if (bits[begin + i]) byte |= lowest_first ? 1u << i : 0x80u >> i;
    put(bytes, static_cast<std::uint8_t>(byte));
  }
  return bytes;
}

int best_rice(const Indices& indices) {
  int best = 0;
  double least = INFINITY;
  for (int w = 0; w <= 47; ++w) {
    double bits = 0;
    std::uint64_t next = 0;
    for (const std::uint64_t i : indices) {
      bits += 1.0 + w + static_cast<double>((i - next) >> w);
      next = i + 1;
    }
    if (bits < least) least = bits, best = w;
  }
  return best;
}

Bytes header(int method, int width) {
  Bytes bytes;
  put(bytes, static_cast<std::uint8_t>(method));
  put(bytes, static_cast<std::uint8_t>(width));
  return bytes;
}

Bytes encode_indices(const Indices& indices, std::uint64_t elements) {
  if (indices.size() == elements) return header(0, 0);
  const int width = width_of(elements), w = best_rice(indices);
  Bytes options[] = {header(0, 0), header(1, width), header(2, w)};
  append(options[0], packed(bitmap(indices, elements), true));
  append(options[1], packed(fixed(indices, width), false));
  append(options[2], packed(gaps(indices, w), false));
  return *std::min_element(std::begin(options), std::end(options),
                           [](const Bytes& a, const Bytes& b) { return a.size() < b.size(); });
}

// A reader of bits, from the highest of each byte.
struct Reader {
  ByteView bytes;
  std::uint64_t position = 0;
  bool bit() {
    const auto byte = std::to_integer<unsigned>(bytes[position / 8]);
    return (byte >> (7 - position++ % 8) & 1) != 0;
  }
  std::uint64_t number(int width) {
    std::uint64_t value = 0;
    for (int i = 0; i < width; ++i) value = 2 * value + (bit() ? 1 : 0);
    return value;
  }
};

Indices decode_indices(ByteView payload, std::uint64_t elements, std::uint64_t k) {
  const auto method = get<std::uint8_t>(payload, 0);
  const int width = get<std::uint8_t>(payload, 1);
  Reader in{payload.subspan(2)};
  Indices indices;
  for (std::uint64_t i = 0; i < elements && method == 0; ++i)
    if (k == elements || (get<std::uint8_t>(in.bytes, i / 8) >> i % 8 & 1) != 0)
      indices.push_back(i);
  for (std::uint64_t j = 0, next = 0; j < k && method != 0; ++j) {
    std::uint64_t ones = 0;
    while (method == 2 && in.bit()) ++ones;
    const std::uint64_t number = in.number(width);
    indices.push_back(method == 1 ? number : next + (ones << width) + number);
    next = indices.back() + 1;
  }
  return indices;
}

// --- random_k's choice

std::uint64_t draw(Key key, std::uint64_t j, std::uint64_t elements) {
  if (elements <= std::uint64_t{1} << 32) return word_at(key, j) * elements >> 32;
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t word = word_at(key, 2 * j) | std::uint64_t{word_at(key, 2 * j + 1)} << 32;
  return static_cast<std::uint64_t>(Wide{word} * elements >> 64);
}

Indices choice(std::uint64_t seed, std::uint64_t elements, std::uint64_t k) {
  const Key key = derive(key_of(seed), 3);
  const bool is_few = 2 * k <= elements;
  std::set<std::uint64_t> drawn;
  for (std::uint64_t j = 0; drawn.size() < (is_few ? k : elements - k); ++j)
    drawn.insert(draw(key, j, elements));
  Indices indices;
  for (std::uint64_t i = 0; i < elements; ++i)
    if ((drawn.count(i) == 1) == is_few) indices.push_back(i);
  return indices;
}

Floats spread(const Indices& indices, const Floats& values, std::uint64_t elements) {
  Floats x(elements);
  for (std::size_t j = 0; j < indices.size(); ++j) x[indices[j]] = values[j];
  return x;
}

std::uint64_t k_of(const Kept& kept, std::uint64_t elements) {
  const double wanted =
      kept.count > 0 ? static_cast<double>(kept.count)
                     : std::max(std::ceil(kept.fraction * static_cast<double>(elements)), 1.0);
  return static_cast<std::uint64_t>(std::min(wanted, static_cast<double>(elements)));
}

}  // namespace

Bytes encode(const TopK& codec, const TensorSpec& tensor, const Floats& x,
             const CodecInput& input) {
  const std::uint64_t k = k_of(codec.kept, x.size());
  if (k == 0) return {};
  const Indices indices = largest(x, k);
  Bytes payload = encode_indices(indices, x.size());
  append(payload,
         encode_values(codec.values, value_tensor(tensor.dtype, k), at(x, indices), input));
  return payload;
}

Floats decode(const TopK& codec, const TensorSpec& tensor, ByteView payload,
              const CodecInput& input) {
  const std::uint64_t elements = elements_of(tensor), k = k_of(codec.kept, elements);
  if (k == 0) return {};
  const Indices indices = decode_indices(payload, elements, k);
  const std::size_t before = encode_indices(indices, elements).size();
  const Floats values =
      decode_values(codec.values, value_tensor(tensor.dtype, k), payload.subspan(before), input);
  return spread(indices, values, elements);
}

Bytes encode(const RandomK& codec, const TensorSpec& tensor, const Floats& x,
             const CodecInput& input) {
  const std::uint64_t k = k_of(codec.kept, x.size());
  Bytes payload;
  if (k == 0) return payload;
  put(payload, input.seed);
  const Floats values = at(x, choice(input.seed, x.size(), k));
  append(payload, encode_values(codec.values, value_tensor(tensor.dtype, k), values, input));
  return payload;
}

Floats decode(const RandomK& codec, const TensorSpec& tensor, ByteView payload,
              const CodecInput& input) {
  const std::uint64_t elements = elements_of(tensor), k = k_of(codec.kept, elements);
  if (k == 0) return {};
  Floats values =
      decode_values(codec.values, value_tensor(tensor.dtype, k), payload.subspan(8), input);
  const double factor = static_cast<double>(elements) / static_cast<double>(k);
  for (float& v : values) v *= codec.unbiased ? static_cast<float>(factor) : 1.0f;
  return spread(choice(get<std::uint64_t>(payload, 0), elements, k), values, elements);
}

}  // namespace laconic::reference
