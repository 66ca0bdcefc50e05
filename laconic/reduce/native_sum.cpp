#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

// The transport's own sums. They wait inside the transport, so they have a thread of their own
// and do not hold up the progress thread; and all ranks must ask for them in the same sequence, so
// blocks go last to first, the order in which backward makes them, whatever the order of posting.
class NativeSum final : public GradientSum {
 public:
  explicit NativeSum(const SumRequest& request)
      : engine_(request.progress_thread.engine()),
        traffic_(request.traffic),
        next_member_(next_member(request.group, engine_.rank())),
        members_(request.group.size()),
        is_on_device_(request.is_on_device),
        posted_(request.blocks.size()) {
    for (const BlockLayout& block : request.blocks) elements_.push_back(elements_of(block));
    thread_ = std::thread([this] { work(); });
  }

  ~NativeSum() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin(std::uint64_t /*step*/) override {
    const std::lock_guard lock(mutex_);
    std::ranges::fill(posted_, Posted{});
    to_do_ = posted_.size();
    pass_over_empty();
  }

  void post(std::size_t block, std::byte* buffer, const Ready& ready) override {
    {
      const std::lock_guard lock(mutex_);
      LACONIC_ASSERT(posted_[block].buffer == nullptr, fmt::format("block {}", block));
      posted_[block] = {buffer, ready};
    }
    changed_.notify_all();
  }

  void wait() override {
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t b = 0; b < posted_.size(); ++b)
        LACONIC_ASSERT(posted_[b].buffer != nullptr || elements_[b] == 0,
                       fmt::format("block {} is not posted", b));
    }
    wait(0);
  }

  bool has_arrived(std::size_t block) const override {
    const std::lock_guard lock(mutex_);
    return to_do_ <= block || failure_ != nullptr;
  }

  void wait(std::size_t block) override {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return to_do_ <= block || failure_ != nullptr; });
    engine_.waited(traffic_, begin, std::chrono::steady_clock::now());
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  void commit() override {}
  void abandon() override {}
  void override_codec(const CodecOverride&) override {}
  NamedFloats save() const override { return {}; }
  void load(const NamedFloats& state) override { require_fit(state, {}); }

 private:
  static Rank next_member(const Group& group, Rank rank) {
    return group[(static_cast<std::size_t>(member_of(group, rank)) + 1) % group.size()];
  }

  void work() {
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return to_do_ > 0 && posted_[to_do_ - 1].buffer != nullptr; };
    while (true) {
      changed_.wait(lock, [&] { return stop_ || (failure_ == nullptr && is_ready()); });
      if (stop_) return;
      const std::size_t block = to_do_ - 1;
      const Posted posted = posted_[block];
      lock.unlock();
      const std::exception_ptr failure = sum(block, posted);
      lock.lock();
      failure_ = failure;
      if (failure == nullptr) --to_do_;
      pass_over_empty();
      changed_.notify_all();
    }
  }

  void pass_over_empty() {
    while (to_do_ > 0 && elements_[to_do_ - 1] == 0) --to_do_;
  }

  struct Posted {
    std::byte* buffer = nullptr;  // null: not yet
    Ready ready;
  };

  std::exception_ptr sum(std::size_t block, const Posted& posted) {
    const auto begin = std::chrono::steady_clock::now();
    const Stopwatch clock;
    try {
      if (is_on_device_)
        sum_by_way_of_host(block, posted);
      else
        sum_on_host(block, posted.buffer);
    } catch (...) {
      return std::current_exception();
    }
    count(block);
    engine_.meter().spent(traffic_, {.active = clock.seconds()});
    if (engine_.is_observed())
      engine_.notify({.kind = EngineEvent::Kind::operation,
                      .traffic = traffic_,
                      .begin = begin,
                      .end = std::chrono::steady_clock::now(),
                      .what = fmt::format("native all_reduce of {} {}", name_of(traffic_), block)});
    return nullptr;
  }

  void sum_on_host(std::size_t block, std::byte* buffer) {
    engine_.transport().sum({reinterpret_cast<float*>(buffer), elements_[block]},
                            in(engine_.options().deadline));
  }

  // This thread may wait for the GPU: it has nothing else to do.
  void sum_by_way_of_host(std::size_t block, const Posted& posted) {
    const std::chrono::milliseconds deadline = engine_.options().deadline;
    if (posted.ready) posted.ready->wait(deadline);
    HostCopy copy(posted.buffer, elements_[block] * sizeof(float));
    copy.wait(deadline);
    sum_on_host(block, copy.data());
    copy.send_back(posted.buffer);
    copy.wait(deadline);
  }

  // Counts what any sum must send at least, 2 (D - 1) / D of the buffer, as if by a ring: nobody
  // sees the messages inside the transport. The meter says that it is computed.
  void count(std::size_t block) {
    const std::uint64_t bytes =
        2 * (members_ - 1) * elements_[block] * bytes_of(Dtype::f32) / members_;
    engine_.meter().sent(
        traffic_, next_member_,
        {.messages = 1, .raw_bytes = bytes, .wire_bytes = bytes, .computed_bytes = bytes});
  }

  Engine& engine_;
  const Traffic traffic_;
  const Rank next_member_;
  const std::size_t members_;
  const bool is_on_device_;
  std::vector<std::uint64_t> elements_;  // by block

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Posted> posted_;  // by block
  std::size_t to_do_ = 0;       // blocks of this step whose sum is not complete
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last, since it uses all of the above
};

}  // namespace

std::unique_ptr<GradientSum> make_native_sum(const SumRequest& request) {
  Transport& transport = request.progress_thread.engine().transport();
  Problems problems;
  if (!transport.has_sum())
    problems.push_back({"algorithm", fmt::format("transport {} has no sum of its own: \"native\" "
                                                 "cannot be used, \"auto\" can",
                                                 transport.name())});
  if (static_cast<int>(request.group.size()) != transport.size())
    problems.push_back({"algorithm", fmt::format("\"native\" sums over all {} ranks, and the group "
                                                 "has {}",
                                                 transport.size(), request.group.size())});
  refuse(problems);
  return std::make_unique<NativeSum>(request);
}

}  // namespace laconic
