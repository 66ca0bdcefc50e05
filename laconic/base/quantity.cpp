#include "laconic/base/quantity.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace laconic {

namespace {

// Dividing and multiplying again may lose the last digit, as 0.3 ms does.
bool is_exact(double value, const Unit& unit) {
  return value / unit.factor * unit.factor == value;
}

}  // namespace

std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || std::signbit(number) || !std::isfinite(number)) return std::nullopt;
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& unit : units)
    if (unit.name == name) return number * unit.factor;
  return std::nullopt;
}

std::string quantity_text(double value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units) {
    const double digits = std::log10(unit.factor);
    if (digits == std::round(digits) && value >= unit.factor && is_exact(value, unit)) best = &unit;
  }
  return fmt::format("{}{}", value / best->factor, best->name);
}

}  // namespace laconic
