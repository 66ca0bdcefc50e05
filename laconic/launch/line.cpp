#include "laconic/launch/line.hpp"

#include <fmt/format.h>

#include <utility>

namespace laconic {

std::vector<std::string> LineCutter::take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t room = kLongest - rest_.size();
    const std::size_t end = bytes.substr(0, room).find('\n');
    const bool is_whole = end != std::string_view::npos;
    const std::size_t taken = is_whole ? end : std::min(room, bytes.size());
    rest_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken + (is_whole ? 1 : 0));
    if (is_whole || rest_.size() == kLongest) lines.push_back(std::exchange(rest_, {}));
  }
  return lines;
}

std::string LineCutter::take_rest() {
  return std::exchange(rest_, {});
}

std::string line_prefix(int rank, bool has_colour) {
  if (!has_colour) return fmt::format("[{}] ", rank);
  constexpr int kColours[] = {36, 33, 32, 35, 34, 31};  // cyan first; red, which alarms, last
  return fmt::format("\033[{}m[{}]\033[0m ", kColours[static_cast<std::size_t>(rank) % 6], rank);
}

}  // namespace laconic
