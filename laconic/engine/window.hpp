// engine/window.hpp — how much of what many ranks exchange at once may be under way.
//
// When all ranks of a group send to all others, several senders meet at every
// receiver. Left to themselves their connections fill the queue in front of it,
// which drops packets, and share its link unevenly: one pair is done early, another
// late, and in between links stand idle. At 20 Mbit/s an exchange among four ranks so
// used 85 to 93 % of its links; a ring, where one sender meets one receiver, 98 %.
//
// A window mends both without a message more. An exchange is cut into small pieces
// (lanes of a collective) that all members begin in the same order, and a piece
// ends at a member only when it has heard from all others. So a member that begins
// no further piece until an earlier one has ended cannot run ahead of the rest, and
// what is under way can be kept shorter than a queue.
//
// How much that is, the pieces tell: one that takes long from beginning to end waits
// in queues. The window grows while pieces take less than a target, and shrinks while
// they take more:
//
//   target  = max(30 ms, 1.5 * the least time that a piece took lately)
//   window += bytes * max(1 - time / target, -1/2)                 when a piece ends
//
// 30 ms is what queues in front of slow links commonly hold; the least time keeps a
// link busy whose way is long. It is that of a piece alone: the first one is, and one every
// kMemory. Where pieces end long before the target, the window doubles in the time of one, so that
// on a fast network it soon holds nobody back.
//
// Two pieces may else always be under way, and only those that are at least as urgent count. So
// what is more urgent never waits for what is less so. The other way round it may, also where ranks
// do not agree on what they begin first; then nothing begins or ends for kPatience or twice the
// least time, and one more piece may begin. Thus nothing waits for ever.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace laconic {

class Window {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Key = std::uint64_t;  // a DeadlineKey

  static constexpr std::chrono::milliseconds kTarget{30};
  static constexpr std::chrono::milliseconds kPatience{250};
  static constexpr std::chrono::seconds kMemory{30};

  // A piece under way. One that is destroyed before end() has failed, and tells nothing of times.
  // Requires: the window outlives it.
  class Piece {
   public:
    Piece(Piece&& other) noexcept;
    Piece& operator=(Piece&& other) = delete;
    ~Piece();
    void end(Time now = Clock::now());

   private:
    friend class Window;
    Piece(Window& window, Key key, std::uint64_t bytes, Time began)
        : window_(&window), key_(key), bytes_(bytes), began_(began) {}
    Window* window_;  // none: it has ended
    Key key_;
    std::uint64_t bytes_;
    Time began_;
  };

  // `on_room` is called, from the thread that ends a piece, when somebody was refused before.
  explicit Window(std::function<void()> on_room = {}) : on_room_(std::move(on_room)) {}

  // Nothing when it has to wait; ask again after on_room, and every kPatience.
  std::optional<Piece> begin(Key key, std::uint64_t bytes, Time now = Clock::now());

  std::uint64_t bytes() const;  // how wide it is

 private:
  struct Load {
    int pieces = 0;
    std::uint64_t bytes = 0;
  };
  void leave(const Piece& piece, std::optional<Time> ended);
  void adapt(const Piece& piece, Time now);
  void measure_now_and_then(Time now);
  Time::duration patience() const;
  Load load(Key key) const;

  const std::function<void()> on_room_;
  mutable std::mutex mutex_;  // guards what follows
  double bytes_ = 0;
  std::map<Key, Load> under_way_;
  // The least time since one was last measured, and in the kMemory before.
  Time::duration least_ = Time::duration::max(), least_before_ = Time::duration::max();
  Time measured_{};  // when that began
  bool is_measuring_ = false;
  Time changed_{};             // when a piece last began or ended
  Time refused_{};             // when somebody was last
  bool is_asked_for_ = false;  // somebody was refused, and nobody has left since
};

}  // namespace laconic
