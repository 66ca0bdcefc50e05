#include "laconic/transport/tag.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr std::array<std::string_view, kTrafficClasses> kNames = {
    "control",        "dp.gradient",   "pp.activation", "pp.gradient", "embedding.tied",
    "embedding.rows", "tp.activation", "tp.gradient",   "tp.weight",   "preflight"};
constexpr std::uint64_t kNumbers = std::uint64_t{1} << 28;

}  // namespace

std::string_view name_of(Traffic traffic) {
  return kNames.at(static_cast<std::size_t>(traffic));
}

std::optional<Traffic> traffic_named(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Traffic>(found - kNames.begin());
}

Tag make_tag(const TagFields& f) {
  LACONIC_ASSERT(f.unit < (1U << 16) && f.part < (1U << 12),
                 fmt::format("unit = {}, part = {}", f.unit, f.part));
  return static_cast<std::uint64_t>(f.traffic) << 56 | static_cast<std::uint64_t>(f.unit) << 40 |
         f.number % kNumbers << 12 | f.part;
}

TagFields fields_of(Tag tag) {
  return {.traffic = static_cast<Traffic>(tag >> 56),
          .unit = static_cast<std::uint32_t>(tag >> 40 & 0xffff),
          .number = tag >> 12 & (kNumbers - 1),
          .part = static_cast<std::uint32_t>(tag & 0xfff)};
}

std::string unit_text(Traffic traffic, std::uint32_t unit) {
  if (!has_axes(traffic) || unit == 0 || unit >= kAxisSets) return std::to_string(unit);
  std::string text;
  for (std::uint32_t axis = 0; axis < 3; ++axis)
    if ((unit >> axis & 1) != 0) text += fmt::format("{}tp{}", text.empty() ? "" : "+", axis);
  return text;
}

std::string to_text(Tag tag) {
  const TagFields f = fields_of(tag);
  const auto traffic = static_cast<std::size_t>(f.traffic);
  return fmt::format("{} {} #{}{}", traffic < kNames.size() ? kNames[traffic] : "traffic?",
                     unit_text(f.traffic, f.unit), f.number,
                     f.part > 0 ? fmt::format(".{}", f.part) : "");
}

}  // namespace laconic
