#include "laconic/report/column.hpp"

#include <algorithm>

namespace laconic {

namespace {

bool starts_letter(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

}  // namespace

std::size_t columns_of(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, starts_letter));
}

std::string_view clipped(std::string_view utf8, std::size_t columns) {
  std::size_t at = 0;
  for (; at < utf8.size(); ++at)
    if (starts_letter(utf8[at]) && columns-- == 0) break;
  return utf8.substr(0, at);
}

std::string padded(std::string_view utf8, std::size_t columns, Align align) {
  const std::size_t width = columns_of(utf8);
  const std::string blanks(columns > width ? columns - width : 0, ' ');
  return align == Align::left ? std::string(utf8) + blanks : blanks + std::string(utf8);
}

}  // namespace laconic
