#include "laconic/transport/faulty.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "laconic/base/error.hpp"
#include "laconic/transport/decorator.hpp"

namespace laconic {

namespace {

class Faulty final : public Decorator {
 public:
  Faulty(std::unique_ptr<Transport> below, FaultSpecs faults)
      : Decorator("faulty", std::move(below)),
        faults_(std::move(faults)),
        counts_(faults_.size()) {}
  ~Faulty() override { close(); }

  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    const FaultSpecs struck = count_send(to, tag);
    if (struck.empty()) return below_->send(to, tag, message, deadline);
    for (const FaultSpec& fault : struck) suffer(fault);
    if (const auto rest = damaged(struck, message)) below_->send(to, tag, *rest, deadline);
  }
  // In this order: a send that is let go before would still find an open transport below.
  void close() override {
    below_->close();
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    closing_.notify_all();
  }

 private:
  FaultSpecs count_send(Rank to, Tag tag) {
    const std::lock_guard lock(mutex_);
    return strike(faults_, counts_, rank(), to, tag);
  }

  // What happens to the rank rather than to the message.
  void suffer(const FaultSpec& fault) {
    if (fault.kind == FaultKind::kill) std::raise(SIGKILL);
    if (fault.kind == FaultKind::close) close();
    if (fault.kind != FaultKind::delay) return;
    std::unique_lock lock(mutex_);
    closing_.wait_for(lock, std::chrono::milliseconds(fault.amount), [&] { return is_closed_; });
  }

  const FaultSpecs faults_;
  std::mutex mutex_;
  std::condition_variable closing_;
  std::vector<std::uint64_t> counts_;
  bool is_closed_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> transport, FaultSpecs faults) {
  const Problems problems = check(faults, transport->size());
  LACONIC_ASSERT(problems.empty(), to_text(problems));
  return std::make_unique<Faulty>(std::move(transport), std::move(faults));
}

}  // namespace laconic
