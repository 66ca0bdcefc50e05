// codec/spec.hpp — which encoding, as a value.
//
// A spec is data: it compares, prints, parses, travels in every frame and names
// a run. It knows sizes but holds no tensor and no memory, so a simulator can
// cost a codec without one. What the bytes look like is fixed by
// docs/wire-format.md; what the options mean, and when to use which, is told in
// docs/codecs.md.
//
// To add a codec: a struct here, a line in the variant and in the tables of
// spec.cpp, a file codec/<name>.cpp with its encode and decode, a section in
// docs/wire-format.md, golden bytes, a reference and a row in the bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "laconic/base/dtype.hpp"
#include "laconic/base/problem.hpp"

namespace laconic {

struct TensorSpec {
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  bool operator==(const TensorSpec&) const = default;
};

inline constexpr std::size_t kMaxDims = 8;
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;  // sizes never overflow

// The bytes of the tensor itself. The only codec for integers, and the only one that loses nothing.
struct Raw {
  bool operator==(const Raw&) const = default;
};

// Rounded to the nearest 16-bit number, ties to even. f16 overflows to infinity above 65504.
struct Half {
  Dtype kind = Dtype::bf16;  // or f16
  bool operator==(const Half&) const = default;
};

// Which elements share a scale. A channel is an index of the last dim, a row all of one.
enum class ScaleGroup : std::uint8_t { block = 0, row = 1, channel = 2 };
// How a scale is stored. f16 and pow2 are rounded away from zero, so that nothing is cut off.
enum class ScaleType : std::uint8_t { f32 = 0, f16 = 1, pow2 = 2 };
enum class Rounding : std::uint8_t { nearest = 0, stochastic = 1 };
// Where the 2^bits levels lie, in units of the scale s. See docs/wire-format.md for the formulas.
enum class Grid : std::uint8_t {
  tread = 0,     // k / L, k = -L ... L-1, L = 2^(bits-1): zero is a level; s has the sign that
                 // makes the largest element a level too
  ends = 1,      // evenly from -s to s: no zero, nothing cut off, so rounding can be unbiased
  artefact = 2,  // the published AC-SGD code: tread with s > 0 in f16 and 1e-6 in the divisor
  powers = 3,    // zero, and s, s / 2, s / 4 ... of both signs: small numbers keep their size. Of 4
                 // bits one is the sign and three the exponent (E3M0)
};

struct Quantise {
  int bits = 8;
  ScaleGroup group = ScaleGroup::block;
  std::int64_t block = 256;  // elements per scale with ScaleGroup::block; elsewhere 0
  ScaleType scale = ScaleType::f32;
  Rounding rounding = Rounding::nearest;
  Grid grid = Grid::tread;
  bool rotate = false;  // random signs and a Hadamard transform of every block first
  bool operator==(const Quantise&) const = default;
};

// The sign of every element, and the mean magnitude of every block.
struct Sign {
  std::int64_t block = 256;
  bool operator==(const Sign&) const = default;
};

// How the kept values of a sparse codec travel. A Quantise here has groups of kind block and does
// not rotate.
using ValueSpec = std::variant<Raw, Half, Quantise>;

// How many of n elements a sparse codec keeps: a fraction of them, or a number.
struct Kept {
  double fraction = 0.01;  // used when count is 0
  std::int64_t count = 0;
  bool operator==(const Kept&) const = default;
};

// The elements of largest magnitude, with their indices. Of equals, those that come first.
struct TopK {
  Kept kept;
  ValueSpec values = Raw{};
  bool operator==(const TopK&) const = default;
};

// A choice that follows from the seed, so that indices need not travel; the same on all ranks that
// use the same seed, hence summable (with raw values).
struct RandomK {
  Kept kept;
  bool unbiased = false;  // decode multiplies by n / k
  ValueSpec values = Raw{};
  bool operator==(const RandomK&) const = default;
};

// The tensor as a matrix (all dims but the last are rows) times one step of subspace iteration:
// two factors of `rank` columns travel.
struct LowRank {
  std::int64_t rank = 16;
  Dtype factors = Dtype::f32;  // or f16, bf16
  bool operator==(const LowRank&) const = default;
};

// A learned linear map of the last dim to `code` numbers, and one back.
struct AutoEncoder {
  std::int64_t code = 50;
  Dtype values = Dtype::f32;  // or f16, bf16
  bool operator==(const AutoEncoder&) const = default;
};

// The numbers of half, or f32, without loss beyond that rounding: the bits around the exponent get
// Huffman's code. What it saves depends on the data: about a fifth of f16 and f32, a third of bf16.
struct Huffman {
  Dtype kind = Dtype::bf16;  // or f16, f32
  bool operator==(const Huffman&) const = default;
};

// Rows in the principal directions of rows that both ends have seen (codec/transform_basis.hpp),
// each direction in as many bits as its energy asks for. Without a basis, and in some messages that
// the next one is made of: 8 bits in blocks.
struct Transform {
  int bits = 6;              // the error is that of so many everywhere
  std::int64_t span = 128;   // rows of a direction that share a scale
  std::int64_t refresh = 8;  // steps between messages that a new basis is made of
  ScaleType scale = ScaleType::f32;
  bool operator==(const Transform&) const = default;
};

// The position in this list plus one is the codec's number on the wire: append only.
using CodecSpec = std::variant<Raw, Half, Quantise, Sign, TopK, RandomK, LowRank, AutoEncoder,
                               Huffman, Transform>;

std::string_view name_of(const CodecSpec& codec);  // "top_k"
std::string_view name_of(ScaleGroup group);
std::string_view name_of(ScaleType scale);
std::string_view name_of(Rounding rounding);
std::string_view name_of(Grid grid);

// Every reason why the spec makes no sense by itself; the second asks whether it can encode such a
// tensor (an integer tensor can only travel raw).
Problems check(const CodecSpec& codec);
Problems check(const CodecSpec& codec, const TensorSpec& tensor);

// --- sizes. Requires, for all of them: check(codec, tensor) is empty.

std::uint64_t elements_of(const TensorSpec& tensor);
std::uint64_t kept_count(const Kept& kept, std::uint64_t elements);
// Rows and columns of the matrix that low_rank and auto_encoder see; a 0-D tensor is 1 x 1.
struct MatrixShape {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  bool operator==(const MatrixShape&) const = default;
};
MatrixShape matrix_shape(const TensorSpec& tensor);
std::uint64_t scale_count(const Quantise& codec, const TensorSpec& tensor);
std::uint64_t effective_rank(const LowRank& codec, const TensorSpec& tensor);  // min(n, m, rank)
// Elements of low_rank's warm start, columns * rank; 0 for other codecs.
std::uint64_t basis_size(const CodecSpec& codec, const TensorSpec& tensor);
// What raw values of a sparse codec are stored as: the tensor's own type, but f64 as f32.
Dtype value_dtype(Dtype tensor);
TensorSpec value_tensor(Dtype tensor, std::uint64_t count);  // 1-D

// The size when has_fixed_size(), otherwise an upper bound.
std::uint64_t max_payload_bytes(const CodecSpec& codec, const TensorSpec& tensor);
bool has_fixed_size(const CodecSpec& codec);

// True for all codecs but raw.
bool is_lossy(const CodecSpec& codec);

// True if some elements do not travel at all: top_k, random_k.
bool is_sparse(const CodecSpec& codec);

// True if the sum of two payloads (add_payload, codec/codec.hpp) decodes to the sum of the tensors,
// so that a collective may add in flight without decoding.
bool is_summable(const CodecSpec& codec);

// --- texts: "quantise:bits=4,block=64", "top_k:keep=0.01+quantise:bits=4". Options that have their
// default are not printed; parse(to_text(c)) == c.
std::string to_text(const CodecSpec& codec);
CodecSpec parse_codec(std::string_view text);  // throws ConfigError with every reason

// Every codec with its options, for help texts.
struct OptionHelp {
  std::string name, values, fallback, help;
};
struct CodecHelp {
  std::string name, help;
  std::vector<OptionHelp> options;
};
const std::vector<CodecHelp>& codec_help();

}  // namespace laconic
