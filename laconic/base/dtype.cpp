#include "laconic/base/dtype.hpp"

#include <algorithm>
#include <array>

namespace laconic {

namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  std::uint64_t bytes;
};

// In the order of the numbers on the wire, which start at 1.
constexpr std::array<Row, kDtypes> kRows = {{{Dtype::f32, "f32", 4},
                                             {Dtype::f16, "f16", 2},
                                             {Dtype::bf16, "bf16", 2},
                                             {Dtype::f64, "f64", 8},
                                             {Dtype::i64, "i64", 8},
                                             {Dtype::i32, "i32", 4},
                                             {Dtype::i16, "i16", 2},
                                             {Dtype::i8, "i8", 1},
                                             {Dtype::u8, "u8", 1},
                                             {Dtype::boolean, "boolean", 1}}};

constexpr const Row& row_of(Dtype dtype) {
  return kRows[static_cast<std::size_t>(dtype) - 1];
}
static_assert(row_of(Dtype::boolean).dtype == Dtype::boolean);

}  // namespace

std::string_view name_of(Dtype dtype) {
  return row_of(dtype).name;
}

std::optional<Dtype> dtype_named(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row == kRows.end() ? std::nullopt : std::optional(row->dtype);
}

bool is_float(Dtype dtype) {
  return dtype <= Dtype::f64;
}

std::uint64_t bytes_of(Dtype dtype) {
  return row_of(dtype).bytes;
}

std::optional<std::uint64_t> elements_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t product = 1;
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product))
      return std::nullopt;
  return product;
}

std::optional<std::uint64_t> bytes_of(Dtype dtype, const std::vector<std::int64_t>& shape) {
  // The size of an element last, as the official reader of safetensors does: [2^62, 4, 0] is
  // refused by both.
  auto product = elements_of(shape);
  if (!product || __builtin_mul_overflow(*product, bytes_of(dtype), &*product)) return std::nullopt;
  return product;
}

}  // namespace laconic
