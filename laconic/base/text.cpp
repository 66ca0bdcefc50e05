#include "laconic/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace laconic {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: two back (for swaps), one back, current.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = static_cast<int>(word.size() / 3) + 2;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::size_t end = std::min(text.size(), max_bytes);
  const auto continues = [&](std::size_t i) { return (text[i] & 0xC0) == 0x80; };
  while (end > 0 && end < text.size() && continues(end)) --end;
  std::string clean(text.substr(0, end));
  std::ranges::replace_if(
      clean, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return end < text.size() ? clean + "..." : clean;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

namespace {

std::string scaled(double value, std::string_view unit) {
  constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P"};
  std::size_t step = 0;
  while (std::abs(value) >= 1000 && step + 1 < std::size(kPrefix)) {
    value /= 1000;
    ++step;
  }
  if (step == 0) return fmt::format("{:.0f}{}{}", value, unit.empty() ? "" : " ", unit);
  return fmt::format("{:.1f} {}{}", value, kPrefix[step], unit);
}

}  // namespace

std::string human_bytes(double bytes) {
  return scaled(bytes, "B");
}

std::string human_count(double count) {
  return scaled(count, "");
}

std::string human_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, 1, ',');
  return value < 0 ? "-" + digits : digits;
}

}  // namespace laconic
