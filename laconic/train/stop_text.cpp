#include "laconic/train/stop_text.hpp"

#include <algorithm>
#include <utility>

namespace laconic {

namespace {

// Bytes at the end of `text` that may be the beginning of `stop`.
std::size_t open_end(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (stop.starts_with(text.substr(text.size() - n))) return n;
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopText::add(std::string_view piece) {
  if (is_stopped_) return {};
  held_ += piece;
  std::size_t begin = std::string::npos, open = 0;
  for (const std::string& stop : stops_) {
    begin = std::min(begin, held_.find(stop));
    open = std::max(open, open_end(held_, stop));
  }
  is_stopped_ = begin != std::string::npos;
  std::string certain = held_.substr(0, is_stopped_ ? begin : held_.size() - open);
  held_.erase(0, is_stopped_ ? held_.size() : certain.size());
  return certain;
}

std::string StopText::finish() {
  return std::exchange(held_, {});
}

}  // namespace laconic
