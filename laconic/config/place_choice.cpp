#include "laconic/config/place_choice.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "laconic/base/text.hpp"
#include "laconic/config/traffic_section.hpp"

namespace laconic {

namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_half(std::string_view text) {
  return text == "last half" || text == "first half";
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<bool> chosen_places(std::string_view text, std::int64_t places) {
  const auto count = static_cast<std::size_t>(places);
  std::vector<bool> chosen(count, text == kAllPlaces);
  if (is_half(text))
    for (std::size_t i = 0; i < count; ++i) chosen[i] = (i >= count / 2) == (text == "last half");
  else if (text != kAllPlaces)
    for (const std::string_view part : split_at_commas(text))
      chosen.at(static_cast<std::size_t>(*number_in(part))) = true;
  return chosen;
}

Problems check_places(std::string_view text, std::int64_t places, const PlaceWords& words) {
  if (text == kAllPlaces || is_half(text)) return {};
  Problems problems;
  for (const std::string_view part : split_at_commas(text)) {
    const std::optional<std::int64_t> number = number_in(part);
    if (!number)
      problems.push_back({"", fmt::format("\"{}\": write all, \"last half\", \"first half\" or "
                                          "numbers of {}, as 2,3",
                                          text, words.several)});
    else if (*number < 0 || (places > 0 && *number >= places))
      problems.push_back({"", fmt::format("{} {} of {} that has {}: they count from 0", words.one,
                                          *number, words.whole, places)});
    if (!number) break;
  }
  return problems;
}

}  // namespace laconic
