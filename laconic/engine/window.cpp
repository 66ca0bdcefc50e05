#include "laconic/engine/window.hpp"

#include <algorithm>
#include <utility>

namespace laconic {

namespace {

constexpr int kAlways = 2;             // pieces
constexpr double kMostBytes = 1e12;    // growing further would change nothing
constexpr double kShrinkAtMost = 0.5;  // of the bytes of a piece that was late

}  // namespace

Window::Piece::Piece(Piece&& other) noexcept
    : window_(std::exchange(other.window_, nullptr)),
      key_(other.key_),
      bytes_(other.bytes_),
      began_(other.began_) {}

Window::Piece::~Piece() {
  if (Window* const window = std::exchange(window_, nullptr)) window->leave(*this, std::nullopt);
}

void Window::Piece::end(Time now) {
  if (Window* const window = std::exchange(window_, nullptr)) window->leave(*this, now);
}

std::optional<Window::Piece> Window::begin(Key key, std::uint64_t bytes, Time now) {
  const std::lock_guard lock(mutex_);
  const Load before = load(key);
  measure_now_and_then(now);
  const bool is_narrow = is_measuring_ ? before.pieces > 0 : before.pieces >= kAlways;
  const bool fits =
      !is_narrow || (!is_measuring_ && static_cast<double>(before.bytes + bytes) <= bytes_);
  if (!fits && now - changed_ < patience()) {
    refused_ = now;
    is_asked_for_ = true;
    return std::nullopt;
  }
  Load& mine = under_way_[key];
  ++mine.pieces;
  mine.bytes += bytes;
  changed_ = now;
  return Piece(*this, key, bytes, now);
}

std::uint64_t Window::bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(bytes_);
}

// What is under way and at least as urgent.
Window::Load Window::load(Key key) const {
  Load sum;
  for (auto it = under_way_.begin(); it != under_way_.end() && it->first <= key; ++it) {
    sum.pieces += it->second.pieces;
    sum.bytes += it->second.bytes;
  }
  return sum;
}

void Window::leave(const Piece& piece, std::optional<Time> ended) {
  bool has_news = false;
  {
    const std::lock_guard lock(mutex_);
    if (ended) {
      adapt(piece, *ended);
      changed_ = *ended;
    }
    const auto mine = under_way_.find(piece.key_);
    mine->second.bytes -= piece.bytes_;
    if (--mine->second.pieces == 0) under_way_.erase(mine);
    has_news = std::exchange(is_asked_for_, false);
  }
  if (has_news && on_room_) on_room_();
}

// On a very slow link a piece alone takes longer than kPatience, and is no reason to begin another.
Window::Time::duration Window::patience() const {
  const Time::duration least = std::min(least_, least_before_);
  if (least == Time::duration::max()) return kPatience;
  return std::max<Time::duration>(kPatience, 2 * least);
}

// From now until a piece that began alone has ended.
void Window::measure_now_and_then(Time now) {
  if (now - measured_ < kMemory) return;
  measured_ = now;
  least_before_ = std::exchange(least_, Time::duration::max());
  is_measuring_ = true;
}

// It grows by those during whose time somebody was refused: else nobody has tried how wide it is.
void Window::adapt(const Piece& piece, Time now) {
  const Time::duration took = now - piece.began_;
  least_ = std::min(least_, took);
  if (piece.began_ >= measured_) is_measuring_ = false;
  const Time::duration least = std::min(least_, least_before_);
  const Time::duration target = std::max<Time::duration>(kTarget, least + least / 2);
  const double spare = 1 - static_cast<double>(took.count()) / static_cast<double>(target.count());
  if (spare > 0 && piece.began_ > refused_) return;
  const double part = std::max(spare, -kShrinkAtMost);
  bytes_ = std::clamp(bytes_ + part * static_cast<double>(piece.bytes_), 0.0, kMostBytes);
}

}  // namespace laconic
