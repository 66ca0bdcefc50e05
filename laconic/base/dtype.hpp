// base/dtype.hpp — the element types that files and frames can hold.
//
// The numbers are pinned: they are on the wire (docs/wire-format.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "laconic/base/named.hpp"

namespace laconic {

enum class Dtype : std::uint8_t {
  f32 = 1,
  f16 = 2,
  bf16 = 3,
  f64 = 4,
  i64 = 5,
  i32 = 6,
  i16 = 7,
  i8 = 8,
  u8 = 9,
  boolean = 10,
};

inline constexpr int kDtypes = 10;

// How configurations and commands spell those that a model may have: as PyTorch does.
// Not by std::to_array, as elsewhere: nvcc 12.4 takes that for no constant, and kernels read this.
inline constexpr std::array kDtypeLongNames{
    Named<Dtype>{Dtype::f32, "float32"}, Named<Dtype>{Dtype::f64, "float64"},
    Named<Dtype>{Dtype::f16, "float16"}, Named<Dtype>{Dtype::bf16, "bfloat16"}};

// "bf16": how messages and codec texts spell it.
std::string_view name_of(Dtype dtype);
std::optional<Dtype> dtype_named(std::string_view name);

bool is_float(Dtype dtype);
std::uint64_t bytes_of(Dtype dtype);
// Empty when a size is negative or the product leaves 64 bits.
std::optional<std::uint64_t> elements_of(const std::vector<std::int64_t>& shape);
std::optional<std::uint64_t> bytes_of(Dtype dtype, const std::vector<std::int64_t>& shape);

}  // namespace laconic
