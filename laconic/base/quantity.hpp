// base/quantity.hpp — numbers with units, as people write them: "1.5gbit", "200us", "24GB".
//
// One number, then one unit of a table, nothing between them. Printing takes the largest unit that
// the number reaches; parse_quantity(quantity_text(x)) is x, to the last digit.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace laconic {

struct Unit {
  std::string_view name;
  double factor;
};

// Smallest first.
inline constexpr std::array kBitUnits = {Unit{"bit", 1}, Unit{"kbit", 1e3}, Unit{"mbit", 1e6},
                                         Unit{"gbit", 1e9}};
inline constexpr std::array kTimeUnits = {Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};
inline constexpr std::array kByteUnits = {Unit{"B", 1},     Unit{"kB", 1e3},
                                          Unit{"MB", 1e6},  Unit{"GB", 1e9},
                                          Unit{"TB", 1e12}, Unit{"GiB", 1073741824}};

// Nothing when it is not that; a sign is refused.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units);
// Requires: value >= 0. Units that are no power of ten are never chosen.
std::string quantity_text(double value, std::span<const Unit> units);

}  // namespace laconic
