#include "laconic/codec/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace laconic {

namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // clang 14 does not find this by itself

constexpr std::int64_t kMaxBlock = std::int64_t{1} << 31;
constexpr std::int64_t kMaxRank = 1 << 16;
constexpr int kMostPowerBits = 5;
constexpr std::int64_t kMinRotated = 8;
constexpr std::int64_t kMaxRotated = 4096;

// Formats only when there is something to say: readers check every frame.
template <class... Values>
void require(Problems& problems, bool condition, const char* where,
             fmt::format_string<Values...> what, Values&&... values) {
  if (!condition) problems.push_back({where, fmt::format(what, std::forward<Values>(values)...)});
}

bool is_half(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

bool is_wire_float(Dtype dtype) {
  return dtype == Dtype::f32 || is_half(dtype);
}

void check_one(const Raw&, Problems&) {}

void check_one(const Half& c, Problems& problems) {
  require(problems, is_half(c.kind), "half.kind", "{} is neither f16 nor bf16", name_of(c.kind));
}

void check_rotation(const Quantise& c, Problems& problems) {
  require(problems, c.group == ScaleGroup::block, "quantise.rotate",
          "only blocks can be rotated, not rows or channels");
  require(
      problems,
      c.group != ScaleGroup::block || (c.block >= kMinRotated && c.block <= kMaxRotated &&
                                       std::has_single_bit(static_cast<std::uint64_t>(c.block))),
      "quantise.rotate", "block = {} is not a power of two from {} to {}", c.block, kMinRotated,
      kMaxRotated);
  require(problems, c.grid != Grid::artefact, "quantise.rotate",
          "the artefact's quantiser does not rotate");
}

void check_one(const Quantise& c, Problems& problems) {
  require(problems, c.bits >= 1 && c.bits <= 8, "quantise.bits", "{} is not in 1 ... 8", c.bits);
  if (c.group == ScaleGroup::block)
    require(problems, c.block >= 1 && c.block <= kMaxBlock, "quantise.block",
            "{} is not in 1 ... {}", c.block, kMaxBlock);
  else
    require(problems, c.block == 0, "quantise.block",
            "{} has no meaning when groups are rows or channels", c.block);
  require(problems, c.bits != 1 || c.grid == Grid::ends, "quantise.grid",
          "one bit needs grid=ends: with a level at zero there would be no positive one");
  require(problems, c.rounding == Rounding::nearest || c.grid == Grid::ends, "quantise.rounding",
          "stochastic rounding is unbiased only on grid=ends, where nothing is cut off");
  if (c.grid == Grid::artefact)
    require(problems, c.group == ScaleGroup::channel && c.scale == ScaleType::f16, "quantise.grid",
            "the artefact's quantiser has group=channel and scale=f16");
  require(problems, c.grid != Grid::powers || c.bits <= kMostPowerBits, "quantise.grid",
          "grid=powers has 2 to {} bits, not {}: the least of more levels would be no normal float",
          kMostPowerBits, c.bits);
  if (c.rotate) check_rotation(c, problems);
}

void check_one(const Sign& c, Problems& problems) {
  require(problems, c.block >= 1 && c.block <= kMaxBlock, "sign.block", "{} is not in 1 ... {}",
          c.block, kMaxBlock);
}

void check_kept(const Kept& kept, const char* where, const char* count_where, Problems& problems) {
  require(problems, kept.count >= 0, count_where, "count = {} is negative", kept.count);
  // std::isfinite first: NaN compares false with everything.
  require(problems, std::isfinite(kept.fraction) && kept.fraction > 0 && kept.fraction <= 1, where,
          "keep = {} is not in (0, 1]", kept.fraction);
}

void check_values(const ValueSpec& values, const char* where, Problems& problems) {
  const auto* quantise = std::get_if<Quantise>(&values);
  if (quantise != nullptr)
    require(problems, quantise->group == ScaleGroup::block && !quantise->rotate, where,
            "kept values have no rows or channels and are not rotated");
  std::visit([&](const auto& v) { check_one(v, problems); }, values);
}

void check_one(const TopK& c, Problems& problems) {
  check_kept(c.kept, "top_k.keep", "top_k.count", problems);
  check_values(c.values, "top_k.values", problems);
}

void check_one(const RandomK& c, Problems& problems) {
  check_kept(c.kept, "random_k.keep", "random_k.count", problems);
  check_values(c.values, "random_k.values", problems);
}

void check_one(const LowRank& c, Problems& problems) {
  require(problems, c.rank >= 1 && c.rank <= kMaxRank, "low_rank.rank", "{} is not in 1 ... {}",
          c.rank, kMaxRank);
  require(problems, is_wire_float(c.factors), "low_rank.factors", "{} is not f32, f16 or bf16",
          name_of(c.factors));
}

void check_one(const AutoEncoder& c, Problems& problems) {
  require(problems, c.code >= 1 && c.code <= kMaxRank, "auto_encoder.code", "{} is not in 1 ... {}",
          c.code, kMaxRank);
  require(problems, is_wire_float(c.values), "auto_encoder.values", "{} is not f32, f16 or bf16",
          name_of(c.values));
}

void check_one(const Transform& c, Problems& problems) {
  require(problems, c.bits >= 1 && c.bits <= 8, "transform.bits", "{} is not in 1 ... 8", c.bits);
  require(problems, c.span >= 1 && c.span <= kMaxBlock, "transform.span", "{} is not in 1 ... {}",
          c.span, kMaxBlock);
  require(problems, c.refresh >= 1 && c.refresh <= kMaxRank, "transform.refresh",
          "{} is not in 1 ... {}", c.refresh, kMaxRank);
}

void check_one(const Huffman& c, Problems& problems) {
  require(problems, is_wire_float(c.kind), "huffman.kind", "{} is not f32, f16 or bf16",
          name_of(c.kind));
}

std::uint64_t ceil_divide(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

std::uint64_t bytes_of_scale(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type == ScaleType::f16 ? 2 : 1;
}

std::uint64_t quantise_bytes(const Quantise& c, const TensorSpec& tensor) {
  const std::uint64_t codes = ceil_divide(elements_of(tensor) * static_cast<unsigned>(c.bits), 8);
  return (c.rotate ? 8 : 0) + scale_count(c, tensor) * bytes_of_scale(c.scale) + codes;
}

std::uint64_t value_bytes(const ValueSpec& values, Dtype dtype, std::uint64_t count) {
  const TensorSpec tensor = value_tensor(dtype, count);
  return std::visit(Overloaded{[&](const Raw&) { return count * bytes_of(tensor.dtype); },
                               [&](const Half&) { return count * 2; },
                               [&](const Quantise& c) { return quantise_bytes(c, tensor); }},
                    values);
}

// A bitmap or indices of fixed width, whichever is shorter; gaps are chosen only when shorter yet.
std::uint64_t max_index_bytes(std::uint64_t elements, std::uint64_t kept) {
  const auto width =
      static_cast<std::uint64_t>(std::bit_width(std::max<std::uint64_t>(elements, 2) - 1));
  const std::uint64_t bitmap = ceil_divide(elements, 8);
  // kept * width may exceed 64 bits only when the bitmap is far shorter.
  return kept > elements / width ? bitmap : std::min(bitmap, ceil_divide(kept * width, 8));
}

}  // namespace

std::string_view name_of(const CodecSpec& codec) {
  constexpr std::string_view kNames[] = {"raw",     "half",     "quantise", "sign",
                                         "top_k",   "random_k", "low_rank", "auto_encoder",
                                         "huffman", "transform"};
  static_assert(std::size(kNames) == std::variant_size_v<CodecSpec>);
  return kNames[codec.index()];
}

Problems check(const CodecSpec& codec) {
  Problems problems;
  std::visit([&](const auto& c) { check_one(c, problems); }, codec);
  return problems;
}

Problems check(const CodecSpec& codec, const TensorSpec& tensor) {
  Problems problems = check(codec);
  require(problems, tensor.shape.size() <= kMaxDims, "shape", "{} dims; at most {}",
          tensor.shape.size(), kMaxDims);
  const auto elements = elements_of(tensor.shape);
  require(problems, elements && *elements <= kMaxElements, "shape",
          "[{}] is negative somewhere or has more than 2^48 elements",
          fmt::join(tensor.shape, ", "));
  for (const std::int64_t size : tensor.shape)
    require(problems, size <= static_cast<std::int64_t>(kMaxElements), "shape",
            "a dim of {} is beyond 2^48", size);
  require(problems, std::holds_alternative<Raw>(codec) || is_float(tensor.dtype), "dtype",
          "{} is not a float: only raw carries it, not {}", name_of(tensor.dtype), name_of(codec));
  // Counts of directions travel in 16 bits.
  if (std::holds_alternative<Transform>(codec) && problems.empty() && *elements > 0)
    require(problems, matrix_shape(tensor).columns < kMaxRank, "transform",
            "{} columns are more than {}", matrix_shape(tensor).columns, kMaxRank - 1);
  // The only codec that may make more numbers than it is given.
  const auto* learned = std::get_if<AutoEncoder>(&codec);
  if (learned != nullptr && problems.empty() && *elements > 0)
    require(problems,
            matrix_shape(tensor).rows <= kMaxElements / static_cast<std::uint64_t>(learned->code),
            "auto_encoder.code", "{} numbers for each of {} rows are more than 2^48", learned->code,
            matrix_shape(tensor).rows);
  return problems;
}

std::uint64_t elements_of(const TensorSpec& tensor) {
  return elements_of(tensor.shape).value_or(0);
}

std::uint64_t kept_count(const Kept& kept, std::uint64_t elements) {
  if (elements == 0) return 0;
  if (kept.count > 0) return std::min(static_cast<std::uint64_t>(kept.count), elements);
  const double wanted = std::ceil(kept.fraction * static_cast<double>(elements));
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, elements);
}

MatrixShape matrix_shape(const TensorSpec& tensor) {
  MatrixShape matrix{1, 1};
  if (tensor.shape.empty()) return matrix;
  matrix.columns = static_cast<std::uint64_t>(tensor.shape.back());
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    matrix.rows *= static_cast<std::uint64_t>(tensor.shape[i]);
  return matrix;
}

std::uint64_t scale_count(const Quantise& codec, const TensorSpec& tensor) {
  const std::uint64_t elements = elements_of(tensor);
  if (elements == 0) return 0;
  switch (codec.group) {
    case ScaleGroup::block: return ceil_divide(elements, static_cast<std::uint64_t>(codec.block));
    case ScaleGroup::row: return matrix_shape(tensor).rows;
    case ScaleGroup::channel: return matrix_shape(tensor).columns;
  }
  return 0;
}

std::uint64_t effective_rank(const LowRank& codec, const TensorSpec& tensor) {
  const MatrixShape matrix = matrix_shape(tensor);
  return std::min({matrix.rows, matrix.columns, static_cast<std::uint64_t>(codec.rank)});
}

std::uint64_t basis_size(const CodecSpec& codec, const TensorSpec& tensor) {
  const auto* low_rank = std::get_if<LowRank>(&codec);
  return low_rank == nullptr ? 0 : matrix_shape(tensor).columns * effective_rank(*low_rank, tensor);
}

Dtype value_dtype(Dtype tensor) {
  return tensor == Dtype::f64 ? Dtype::f32 : tensor;
}

TensorSpec value_tensor(Dtype tensor, std::uint64_t count) {
  return {value_dtype(tensor), {static_cast<std::int64_t>(count)}};
}

std::uint64_t max_payload_bytes(const CodecSpec& codec, const TensorSpec& tensor) {
  const std::uint64_t elements = elements_of(tensor);
  return std::visit(
      Overloaded{[&](const Raw&) { return elements * bytes_of(tensor.dtype); },
                 [&](const Half&) { return elements * 2; },
                 [&](const Quantise& c) { return quantise_bytes(c, tensor); },
                 [&](const Sign& c) {
                   return 4 * ceil_divide(elements, static_cast<std::uint64_t>(c.block)) +
                          ceil_divide(elements, 8);
                 },
                 [&](const TopK& c) -> std::uint64_t {
                   const std::uint64_t kept = kept_count(c.kept, elements);
                   if (kept == 0) return 0;
                   return 2 + (kept == elements ? 0 : max_index_bytes(elements, kept)) +
                          value_bytes(c.values, tensor.dtype, kept);
                 },
                 [&](const RandomK& c) -> std::uint64_t {
                   const std::uint64_t kept = kept_count(c.kept, elements);
                   return kept == 0 ? 0 : 8 + value_bytes(c.values, tensor.dtype, kept);
                 },
                 [&](const LowRank& c) {
                   const MatrixShape matrix = matrix_shape(tensor);
                   return (matrix.rows + matrix.columns) * effective_rank(c, tensor) *
                          bytes_of(c.factors);
                 },
                 [&](const AutoEncoder& c) {
                   const std::uint64_t rows = elements == 0 ? 0 : matrix_shape(tensor).rows;
                   return rows * static_cast<std::uint64_t>(c.code) * bytes_of(c.values);
                 },
                 [&](const Huffman& c) -> std::uint64_t {
                   return elements == 0 ? 0 : 1 + elements * bytes_of(c.kind);
                 },
                 [&](const Transform& c) -> std::uint64_t {
                   const Quantise plain{.bits = 8, .block = 64, .scale = c.scale};
                   return elements == 0 ? 0 : 1 + quantise_bytes(plain, tensor);
                 }},
      codec);
}

bool has_fixed_size(const CodecSpec& codec) {
  return !std::holds_alternative<TopK>(codec) && !std::holds_alternative<Huffman>(codec) &&
         !std::holds_alternative<Transform>(codec);
}

bool is_lossy(const CodecSpec& codec) {
  return !std::holds_alternative<Raw>(codec);
}

bool is_sparse(const CodecSpec& codec) {
  return std::holds_alternative<TopK>(codec) || std::holds_alternative<RandomK>(codec);
}

bool is_summable(const CodecSpec& codec) {
  if (const auto* random = std::get_if<RandomK>(&codec))
    return std::holds_alternative<Raw>(random->values);
  if (const auto* learned = std::get_if<AutoEncoder>(&codec)) return learned->values == Dtype::f32;
  return std::holds_alternative<Raw>(codec);
}

}  // namespace laconic
