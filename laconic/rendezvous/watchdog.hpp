// rendezvous/watchdog.hpp — wakes waits that cannot end by themselves.
//
// For libraries whose waits know no deadline, or whose own time-out does more
// than end the wait: whoever waits sets a bell, and the bell calls what lets it
// go. One sleeping thread for all bells; it is woken only when a bell is due
// earlier than it meant to wake.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "laconic/transport/transport.hpp"

namespace laconic {

class Watchdog {
 public:
  struct Bell {
    std::function<void()> ring;  // quick; must not call back
    std::optional<Deadline> due;
  };
  using Place = std::list<Bell>::iterator;

  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  Place add(std::function<void()> ring);
  void remove(Place bell);  // the bell is not ringing when this returns

  // It rings once, at the deadline or soon after, unless cleared before. A bell may also still ring
  // while it is being cleared.
  void set(Place bell, Deadline due);
  void clear(Place bell);

 private:
  void run();
  Deadline ring_due();  // Requires: the lock. Returns when to look again.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Bell> bells_;
  Deadline wakes_at_ = Deadline::max();
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace laconic
