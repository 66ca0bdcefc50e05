#include "laconic/transport/conformance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Long enough for a loaded machine and a sanitizer: whoever waits that long has failed anyway.
Deadline patience() {
  return in(milliseconds(60'000));
}

// Each check has a unit of its own, the part says what the message is about.
enum class Unit : std::uint32_t {
  order = 1,
  sizes,
  all,
  flight,
  saturated,
  threads,
  mix,
  self,
  late,
  dead,
  close,
  listen,
  sum,
};
constexpr std::uint32_t kMeeting = 4095;  // parts from here down are the suite's own
constexpr std::uint32_t kGo = 4094;

Tag tag_of(Unit unit, std::uint64_t number, std::uint32_t part = 0) {
  return make_tag({Traffic::preflight, static_cast<std::uint32_t>(unit), number, part});
}

// Bytes that depend on their place and on `seed`, so that none can stand in for another: a random
// page, over and over, each time with its number in front. Quick even under a sanitizer.
Bytes bytes_of(std::uint64_t seed, std::size_t size) {
  std::array<std::uint64_t, 512> page{};
  std::uint64_t word = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::uint64_t& each : page) each = word = word * 6364136223846793005u + 1442695040888963407u;
  Bytes bytes(size);
  for (std::size_t at = 0; at < size; at += sizeof page, ++page[0])
    std::memcpy(bytes.data() + at, page.data(), std::min(sizeof page, size - at));
  return bytes;
}

bool is_equal(ByteView a, ByteView b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::uint64_t seed_of(Rank from, Rank to, std::uint64_t number) {
  return (number * 64 + static_cast<std::uint64_t>(from)) * 64 + static_cast<std::uint64_t>(to);
}

// Both ends know what is sent, hence what must come.
void send_known(Transport& t, Rank to, Tag tag, std::uint64_t number, std::size_t size) {
  t.send(to, tag, bytes_of(seed_of(t.rank(), to, number), size), patience());
}

void expect_known(const Bytes& got, Rank from, Rank to, std::uint64_t number, std::size_t size) {
  ASSERT_EQ(got.size(), size) << "message " << number << " from " << from << " to " << to;
  EXPECT_TRUE(is_equal(got, bytes_of(seed_of(from, to, number), size)))
      << "message " << number << " of " << size << " bytes from " << from << " to " << to;
}

void recv_known(Transport& t, Rank from, Tag tag, std::uint64_t number, std::size_t size) {
  expect_known(t.recv(from, tag, patience()), from, t.rank(), number, size);
}

std::vector<Rank> others(const Transport& t) {
  std::vector<Rank> ranks;
  for (Rank r = 0; r < t.size(); ++r)
    if (r != t.rank()) ranks.push_back(r);
  return ranks;
}

void meet(Transport& t, Unit unit, const std::vector<Rank>& peers) {
  for (const Rank peer : peers) t.send(peer, tag_of(unit, 0, kMeeting), {}, patience());
  for (const Rank peer : peers) t.recv(peer, tag_of(unit, 0, kMeeting), patience());
}

// A rank that fails says so and lets the others go.
void guarded(Transport& t, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "rank " << t.rank() << " over " << t.name() << ": " << e.what();
    t.close();
  }
}

void run_and_meet(const ConformanceWorld& world, Unit unit,
                  const std::function<void(Transport&)>& body) {
  world.run(kConformanceRanks, [&](Transport& t) {
    guarded(t, [&] {
      ASSERT_GE(t.size(), kConformanceRanks);
      body(t);
      meet(t, unit, others(t));
    });
  });
}

// In threads of this rank; what one throws is a failure of the test.
void in_threads(Transport& t, int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { guarded(t, [&] { body(i); }); });
  for (std::thread& thread : threads) thread.join();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whom `act` accused by throwing E, or -2 when it did not throw.
template <class E, class Act>
int accused_by(const Act& act, std::string* what = nullptr) {
  try {
    act();
  } catch (const E& e) {
    if (what != nullptr) *what = e.what();
    return e.peer();
  }
  return -2;
}

bool waits_until(const std::function<bool()>& condition) {
  const Deadline deadline = patience();
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

}  // namespace

void check_order_per_tag(const ConformanceWorld& world) {
  constexpr int kTags = 3, kMessages = 150;
  const auto size = [](int i) { return static_cast<std::size_t>(i * 37 % 3000); };
  run_and_meet(world, Unit::order, [&](Transport& t) {
    for (int i = 0; i < kMessages; ++i)
      for (std::uint32_t part = 0; part < kTags; ++part)
        for (const Rank to : others(t))
          send_known(t, to, tag_of(Unit::order, 7, part), i * kTags + part, size(i));
    for (std::uint32_t part = kTags; part-- > 0;)  // not the order in which they were sent
      for (const Rank from : others(t))
        for (int i = 0; i < kMessages; ++i)
          recv_known(t, from, tag_of(Unit::order, 7, part), i * kTags + part, size(i));
  });
}

void check_sizes(const ConformanceWorld& world) {
  constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
  std::vector<std::uint64_t> sizes = {0, 1, 2, 3, 7, 8, 9, 63, kKiB, 1500, kMiB};
  for (const std::uint64_t border : {4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, 512 * kKiB})
    for (const std::uint64_t size : {border - 1, border, border + 1}) sizes.push_back(size);
  run_and_meet(world, Unit::sizes, [&](Transport& t) {
    const Rank next = (t.rank() + 1) % t.size(), last = (t.rank() + t.size() - 1) % t.size();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      send_known(t, next, tag_of(Unit::sizes, i), i, sizes[i]);
      recv_known(t, last, tag_of(Unit::sizes, i), i, sizes[i]);
    }
    for (const std::uint64_t size : {16 * kMiB, 256 * kMiB}) {  // one pair: they are large
      if (size > world.largest) continue;
      if (t.rank() == 0) send_known(t, 1, tag_of(Unit::sizes, size), 1, size);
      if (t.rank() == 1) recv_known(t, 0, tag_of(Unit::sizes, size), 1, size);
    }
  });
}

// Batches of messages of every size, between such that leave alone: the order of a tag holds.
void check_send_all(const ConformanceWorld& world) {
  const std::vector<std::vector<std::size_t>> batches = {{},
                                                         {0},
                                                         {5},
                                                         {0, 0, 0},
                                                         {1, 2, 3},
                                                         {100'000, 100'000, 100'000},
                                                         {300'000, 7},
                                                         {7, 300'000, 0, 9},
                                                         {600'000, 600'000},
                                                         std::vector<std::size_t>(500, 40)};
  const Tag tag = tag_of(Unit::all, 0), other = tag_of(Unit::all, 1);
  run_and_meet(world, Unit::all, [&](Transport& t) {
    const Rank next = (t.rank() + 1) % t.size(), last = (t.rank() + t.size() - 1) % t.size();
    for (const auto& sizes : batches) {
      std::vector<Bytes> bytes;
      std::vector<TaggedMessage> messages;
      for (const std::size_t size : sizes)
        bytes.push_back(bytes_of(seed_of(t.rank(), next, bytes.size()), size));
      for (const Bytes& each : bytes) {
        messages.push_back({tag, each});
        messages.push_back({other, each});
      }
      t.send_all(next, messages, patience());
      send_known(t, next, tag, sizes.size(), 11);
    }
    for (const auto& sizes : batches) {
      for (std::size_t i = 0; i < sizes.size(); ++i) recv_known(t, last, tag, i, sizes[i]);
      for (std::size_t i = 0; i < sizes.size(); ++i) recv_known(t, last, other, i, sizes[i]);
      recv_known(t, last, tag, sizes.size(), 11);
    }
  });
}

void check_thousands_in_flight(const ConformanceWorld& world) {
  constexpr std::uint64_t kMessages = 4000;
  run_and_meet(world, Unit::flight, [&](Transport& t) {
    for (std::uint64_t i = 0; i < kMessages; ++i)
      for (const Rank to : others(t)) send_known(t, to, tag_of(Unit::flight, i), i, 64);
    for (std::uint64_t i = kMessages; i-- > 0;)
      for (const Rank from : others(t)) recv_known(t, from, tag_of(Unit::flight, i), i, 64);
  });
}

void check_both_directions_saturated(const ConformanceWorld& world) {
  constexpr int kMessages = 16;
  constexpr std::size_t kSize = 512 << 10;
  run_and_meet(world, Unit::saturated, [&](Transport& t) {
    const std::vector<Rank> peers = others(t);
    const auto count = static_cast<int>(peers.size());
    in_threads(t, 2 * count, [&](int thread) {
      const Rank peer = peers[static_cast<std::size_t>(thread % count)];
      for (int i = 0; i < kMessages; ++i)
        if (thread < count)
          send_known(t, peer, tag_of(Unit::saturated, 0), i, kSize);
        else
          recv_known(t, peer, tag_of(Unit::saturated, 0), i, kSize);
    });
  });
}

void check_many_threads(const ConformanceWorld& world) {
  constexpr int kThreads = 8, kRounds = 40;
  run_and_meet(world, Unit::threads, [&](Transport& t) {
    in_threads(t, kThreads, [&](int thread) {
      const Tag tag = tag_of(Unit::threads, static_cast<std::uint64_t>(thread));
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t number = thread * kRounds + round;
        for (const Rank peer : others(t)) send_known(t, peer, tag, number, 100 + number);
        for (const Rank peer : others(t)) recv_known(t, peer, tag, number, 100 + number);
      }
    });
  });
}

void check_tags_do_not_mix(const ConformanceWorld& world) {
  // Every bit of a tag counts, and so does who sent it. The tags of this check are not its own
  // for once, so it comes when the others' messages have all been received.
  std::vector<Tag> tags = {0, ~Tag{0}};
  for (int bit = 0; bit < 64; ++bit) tags.push_back(Tag{1} << bit);
  run_and_meet(world, Unit::mix, [&](Transport& t) {
    for (std::size_t i = 0; i < tags.size(); ++i)
      for (const Rank to : others(t)) send_known(t, to, tags[i], i, 8 + i);
    for (std::size_t k = 0; k < tags.size(); ++k) {
      const std::size_t i = (k * 29 + 5) % tags.size();  // 29 and 66 have no common divisor
      for (const Rank from : others(t)) recv_known(t, from, tags[i], i, 8 + i);
    }
  });
}

void check_self_send(const ConformanceWorld& world) {
  run_and_meet(world, Unit::self, [](Transport& t) {
    const Tag tag = tag_of(Unit::self, 3);
    for (std::uint64_t i = 0; i < 5; ++i) send_known(t, t.rank(), tag, i, i * 1000);
    for (std::uint64_t i = 0; i < 5; ++i) recv_known(t, t.rank(), tag, i, i * 1000);
    EXPECT_FALSE(t.try_recv(t.rank(), tag).has_value());
  });
}

namespace {

void expect_timeout(Transport& t, Rank from, Tag tag) {
  std::string what;
  const auto start = Clock::now();
  EXPECT_EQ(accused_by<Timeout>([&] { t.recv(from, tag, in(milliseconds(60))); }, &what), from);
  EXPECT_GE(seconds_since(start), 0.059);
  EXPECT_LE(seconds_since(start), 1.0);
  EXPECT_NE(what.find(to_text(tag)), std::string::npos) << what;
  EXPECT_NE(what.find(fmt::format("rank {}", from)), std::string::npos) << what;
}

// A deadline that has passed is no reason to leave a message that is there.
void expect_arrival_despite_the_deadline(Transport& t, Rank from, Tag tag) {
  std::optional<Bytes> message;
  EXPECT_TRUE(waits_until([&] {
    accused_by<Timeout>([&] { message = t.recv(from, tag, Clock::now() - milliseconds(5)); });
    return message.has_value();
  }));
  ASSERT_TRUE(message.has_value());
  expect_known(*message, from, t.rank(), 2, 500);
}

}  // namespace

void check_late_peer(const ConformanceWorld& world) {
  const Tag tag = tag_of(Unit::late, 4182, 3), second = tag_of(Unit::late, 4183);
  run_and_meet(world, Unit::late, [&](Transport& t) {
    if (t.rank() == 0) {
      expect_timeout(t, 1, tag);
      t.send(1, tag_of(Unit::late, 0, kGo), {}, patience());
      recv_known(t, 1, tag, 1, 2000);
      expect_arrival_despite_the_deadline(t, 1, second);
    }
    if (t.rank() == 1) {  // so late that rank 0 has given up
      t.recv(0, tag_of(Unit::late, 0, kGo), patience());
      send_known(t, 0, tag, 1, 2000);
      send_known(t, 0, second, 2, 500);
    }
  });
}

namespace {

class Listener {
 public:
  void wake() {
    const std::lock_guard lock(mutex_);
    ++calls_;
    called_.notify_all();
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  bool wait_beyond(int seen) {
    std::unique_lock lock(mutex_);
    return called_.wait_until(lock, patience(), [&] { return calls_ > seen; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable called_;
  int calls_ = 0;
};

void listen(Transport& t) {
  const Tag go = tag_of(Unit::listen, 0, kGo), tag = tag_of(Unit::listen, 1);
  EXPECT_FALSE(t.try_recv(1, tag).has_value());
  Listener listener;
  t.on_arrival([&] { listener.wake(); });
  t.send(1, go, {}, patience());
  std::optional<Bytes> message;
  for (int seen = 0; !message; seen = listener.calls()) {  // no arrival may go by unheard
    ASSERT_TRUE(listener.wait_beyond(seen) || (message = t.try_recv(1, tag)));
    if (!message) message = t.try_recv(1, tag);
  }
  expect_known(*message, 1, 0, 1, 700);
  t.on_arrival({});
  const int calls = listener.calls();
  t.send(1, go, {}, patience());
  recv_known(t, 1, tag, 2, 70);
  EXPECT_EQ(listener.calls(), calls);
}

}  // namespace

void check_try_recv_and_on_arrival(const ConformanceWorld& world) {
  run_and_meet(world, Unit::listen, [](Transport& t) {
    if (t.rank() == 0) listen(t);
    if (t.rank() != 1) return;
    for (std::uint64_t i = 1; i <= 2; ++i) {
      t.recv(0, tag_of(Unit::listen, 0, kGo), patience());
      send_known(t, 0, tag_of(Unit::listen, 1), i, i == 1 ? 700 : 70);
    }
  });
}

namespace {

void check_sum_of(Transport& t, std::size_t count) {
  std::vector<float> values(count);  // small whole numbers: exact in any order
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i + 1) % 1000 * static_cast<std::size_t>(t.rank() + 1));
  t.sum(values, patience());
  const auto ranks = static_cast<std::size_t>(t.size());
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(values[i], static_cast<float>((i + 1) % 1000 * (ranks * (ranks + 1) / 2))) << i;
}

// Sums numbers whose sum depends on the order: all ranks must have the same bits.
void check_sum_is_one(Transport& t) {
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.0f / static_cast<float>(i * 3 + static_cast<std::size_t>(t.rank()) + 1);
  t.sum(values, patience());
  const ByteView mine = as_bytes(std::span<const float>(values));
  for (const Rank peer : others(t)) t.send(peer, tag_of(Unit::sum, 1), mine, patience());
  for (const Rank peer : others(t))
    EXPECT_TRUE(is_equal(t.recv(peer, tag_of(Unit::sum, 1), patience()), mine)) << peer;
}

}  // namespace

void check_sum(const ConformanceWorld& world) {
  run_and_meet(world, Unit::sum, [](Transport& t) {
    if (!t.has_sum()) return;
    for (const std::size_t count : {0, 1, 3, 1000, 300'001}) check_sum_of(t, count);
    check_sum_is_one(t);
  });
}

namespace {

constexpr Rank kDead = 2;
constexpr std::uint64_t kLastWords = 5;

void die(Transport& t) {
  for (std::uint64_t i = 0; i < kLastWords; ++i)
    for (const Rank to : others(t)) send_known(t, to, tag_of(Unit::dead, 1), i, i * 50'000);
  for (const Rank to : others(t)) t.recv(to, tag_of(Unit::dead, 0, kGo), patience());
  std::this_thread::sleep_for(milliseconds(50));  // so that somebody is waiting
  t.close();
}

void survive(Transport& t) {
  for (std::uint64_t i = 0; i < 2; ++i) recv_known(t, kDead, tag_of(Unit::dead, 1), i, i * 50'000);
  t.send(kDead, tag_of(Unit::dead, 0, kGo), {}, patience());
  const auto start = Clock::now();
  const Tag never = tag_of(Unit::dead, 2);
  std::string what;
  EXPECT_EQ(accused_by<PeerLost>([&] { t.recv(kDead, never, patience()); }, &what), kDead);
  EXPECT_LE(seconds_since(start), 3.0);
  EXPECT_NE(what.find(fmt::format("rank {}", kDead)), std::string::npos) << what;
  for (std::uint64_t i = 2; i < kLastWords; ++i)
    recv_known(t, kDead, tag_of(Unit::dead, 1), i, i * 50'000);
  EXPECT_EQ(accused_by<PeerLost>([&] { t.try_recv(kDead, never); }), kDead);
  // A transport that sends in the background may need a second attempt to notice.
  EXPECT_TRUE(waits_until([&] {
    return accused_by<PeerLost>([&] { t.send(kDead, never, {}, patience()); }) == kDead;
  }));
  const Rank other = 1 - t.rank();
  for (std::uint64_t i = 0; i < 10; ++i) {
    send_known(t, other, tag_of(Unit::dead, 3), i, 30'000);
    recv_known(t, other, tag_of(Unit::dead, 3), i, 30'000);
  }
  meet(t, Unit::dead, {other});
}

}  // namespace

void check_dead_peer(const ConformanceWorld& world) {
  if (!world.can_lose_peers) return;
  world.run(kConformanceRanks,
            [](Transport& t) { guarded(t, [&] { t.rank() == kDead ? die(t) : survive(t); }); });
}

void check_close_releases_waiters(const ConformanceWorld& world) {
  world.run(kConformanceRanks, [](Transport& t) {
    guarded(t, [&] { meet(t, Unit::close, others(t)); });
    std::atomic<int> released = 0;
    std::vector<std::thread> waiters;
    const auto start = Clock::now();
    for (int i = 0; i < 4; ++i)
      waiters.emplace_back([&, i] {
        const Tag tag = tag_of(Unit::close, static_cast<std::uint64_t>(i) + 1);
        // Its own closing, or that of a peer that was quicker.
        if (accused_by<PeerLost>([&] { t.recv(i % t.size(), tag, patience()); }) >= 0) ++released;
      });
    std::this_thread::sleep_for(milliseconds(50));
    t.close();
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(released, 4);
    EXPECT_LE(seconds_since(start), 5.0);
    const Tag tag = tag_of(Unit::close, 9);
    EXPECT_EQ(accused_by<PeerLost>([&] { t.recv(t.rank(), tag, patience()); }), t.rank());
    EXPECT_EQ(accused_by<PeerLost>([&] { t.try_recv(t.rank(), tag); }), t.rank());
    EXPECT_EQ(accused_by<PeerLost>([&] { t.send(t.rank(), tag, {}, patience()); }), t.rank());
    t.close();  // again: no harm
  });
}

std::vector<ConformanceCheck> conformance_checks() {
  return {{"OrderPerTag", check_order_per_tag},
          {"Sizes", check_sizes},
          {"SendAll", check_send_all},
          {"ThousandsInFlight", check_thousands_in_flight},
          {"BothDirectionsSaturated", check_both_directions_saturated},
          {"ManyThreads", check_many_threads},
          {"TagsDoNotMix", check_tags_do_not_mix},
          {"SelfSend", check_self_send},
          {"LatePeer", check_late_peer},
          {"TryRecvAndOnArrival", check_try_recv_and_on_arrival},
          {"Sum", check_sum},
          {"DeadPeer", check_dead_peer},
          {"CloseReleasesWaiters", check_close_releases_waiters}};
}

}  // namespace laconic
