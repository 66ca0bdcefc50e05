// Waiting for a GPU, whatever asks it.
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/device_memory.hpp"

namespace laconic {

namespace {

constexpr std::chrono::milliseconds kQuietLimit{5'000};

// Destructors are many, and each would wait anew.
std::atomic<bool> stands_still = false;

}  // namespace

// Asks for a while before it sleeps: to be woken takes longer than most encodings. Then asks now
// and then: a wait inside CUDA would have no deadline.
void DeviceEvent::wait(std::chrono::milliseconds limit) const {
  constexpr double kPatience = 2e-4;
  constexpr std::chrono::microseconds kNap{50};
  const double limit_seconds = static_cast<double>(limit.count()) / 1e3;
  for (const Stopwatch watch; !is_done();) {
    const double waited = watch.seconds();
    if (waited > limit_seconds) {
      stands_still = true;
      throw Timeout(-1, fmt::format("the GPU stood still: after {} it had not done its work for a "
                                    "message",
                                    human_seconds(waited)));
    }
    if (waited > kPatience) std::this_thread::sleep_for(kNap);
  }
  stands_still = false;
}

// In a list, where leak checkers find it.
void lose(std::shared_ptr<const void> memory) noexcept {
  static std::mutex mutex;
  static auto* const lost = new std::vector<std::shared_ptr<const void>>;
  try {
    const std::lock_guard lock(mutex);
    lost->push_back(memory);
  } catch (const std::exception&) {
    new std::shared_ptr<const void>(std::move(memory));
  }
}

bool DeviceEvent::wait_quietly() const noexcept {
  try {
    if (stands_still) return is_done();
    wait(kQuietLimit);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace laconic
