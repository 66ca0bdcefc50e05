#include "laconic/rendezvous/store.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace {
std::atomic<int> listens = 0;
}

// Stands before that of the system, and counts.
extern "C" int listen(int descriptor, int backlog) noexcept {
  ++listens;
  return static_cast<int>(::syscall(SYS_listen, descriptor, backlog));
}

namespace laconic {
namespace {

using std::chrono::milliseconds;

Bytes bytes_of(std::string_view text) {
  const ByteView view = as_bytes(std::span<const char>(text.data(), text.size()));
  return Bytes(view.begin(), view.end());
}

Deadline soon() {
  return in(milliseconds(10'000));
}

template <class Error, class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Meeting meeting_of(Rank rank, int size, int port, const std::string& run_id = "one") {
  Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.port = port;
  meeting.run_id = run_id;
  meeting.deadline = milliseconds(10'000);
  return meeting;
}

TEST(Store, WhatOneSetsAnotherGets) {
  const int port = free_port();
  Store host({"127.0.0.1", port, true, 2}, soon());
  Store client({"localhost", port, false, 2}, soon());
  EXPECT_FALSE(client.exists("a"));
  host.set("a", bytes_of("value"));
  EXPECT_TRUE(client.exists("a"));
  EXPECT_EQ(client.get("a", soon()), bytes_of("value"));
  client.set("empty", {});
  EXPECT_TRUE(host.get("empty", soon()).empty());
  EXPECT_EQ(host.add("n", 1), 1);
  EXPECT_EQ(client.add("n", 5), 6);
}

TEST(Store, GetWaitsForAValueThatComesLater) {
  const int port = free_port();
  Store host({"127.0.0.1", port, true, 2}, soon());
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(60));
    host.set("late", bytes_of("x"));
  });
  Store client({"127.0.0.1", port, false, 2}, soon());
  EXPECT_EQ(client.get("late", soon()), bytes_of("x"));
  writer.join();
}

TEST(Store, AWaitThatWasGivenUpDoesNotDisturbTheNext) {
  const int port = free_port();
  Store host({"127.0.0.1", port, true, 2}, soon());
  Store client({"127.0.0.1", port, false, 2}, soon());
  const std::string text = message_of<Timeout>([&] {
    client.get("never", in(milliseconds(40)), {3, "the addresses of rank 3"});
  });
  EXPECT_TRUE(has(text, "the addresses of rank 3") && has(text, "never")) << text;
  host.set("never", bytes_of("now"));
  host.set("other", bytes_of("value"));
  EXPECT_EQ(client.get("other", soon()), bytes_of("value"));
  EXPECT_EQ(client.get("never", soon()), bytes_of("now"));
}

TEST(Store, AHostThatDoesNotResolveIsNamed) {
  for (const bool hosts : {false, true}) {
    const std::string text = message_of<ConfigError>([&] {
      Store({"nosuch.invalid", 29500, hosts, 2}, in(milliseconds(200)));
    });
    EXPECT_TRUE(has(text, "cannot resolve MASTER_ADDR 'nosuch.invalid'")) << text;
  }
}

TEST(Store, APortInUseIsNamed) {
  const int port = free_port();
  const Store first({"127.0.0.1", port, true, 1}, soon());
  const std::string text = message_of<ConfigError>([&] {
    Store({"127.0.0.1", port, true, 1}, soon());
  });
  EXPECT_TRUE(has(text, "port " + std::to_string(port) + " on this machine is in use")) << text;
  EXPECT_TRUE(has(text, "choose another MASTER_PORT")) << text;
}

TEST(Store, APortIsFreeAgainAtOnce) {
  const int port = free_port();
  for (int i = 0; i < 3; ++i) {
    Store host({"127.0.0.1", port, true, 2}, soon());
    Store client({"127.0.0.1", port, false, 2}, soon());
    client.set("a", {});
  }
}

TEST(Store, AHostThatDoesNotAnswerIsATimeout) {
  const int port = free_port();
  const std::string text = message_of<Timeout>([&] {
    Store({"127.0.0.1", port, false, 2}, in(milliseconds(250)));
  });
  EXPECT_TRUE(has(text, "rank 0 at 127.0.0.1:" + std::to_string(port) + " did not answer within "))
      << text;
  EXPECT_TRUE(has(text, "0.25 s; is it running, and can this machine reach it?")) << text;
}

// It accepts, and never says a word.
TEST(Store, AHostThatStaysSilentIsATimeoutThatNamesItAndWhatWasAwaited) {
  const Socket silent = listen_at("127.0.0.1", 8);
  const std::string where = "127.0.0.1:" + std::to_string(local_port(silent));
  Meeting meeting = meeting_of(1, 2, local_port(silent));
  meeting.deadline = milliseconds(2500);
  const auto start = std::chrono::steady_clock::now();
  const std::string text = message_of<Timeout>([&] { meet(meeting); });
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(2400));
  EXPECT_LT(took, milliseconds(6000));
  EXPECT_TRUE(has(text, where + " accepts connections but has not answered for ")) << text;
  EXPECT_TRUE(has(text, "waited there for rank 0 to say which run this is") ||
              has(text, "waited there for a first answer"))
      << text;
}

// Who waits for rank 0 would take a port that listens for a moment for that of rank 0.
TEST(Store, LookingWhetherAPortIsFreeDoesNotOpenIt) {
  const int before = listens;
  EXPECT_TRUE(is_port_free(free_port()));
  EXPECT_EQ(listens, before);
  const Socket taken = listen_at("127.0.0.1", 8);
  EXPECT_EQ(listens, before + 1);
  EXPECT_FALSE(is_port_free(local_port(taken)));
}

TEST(Store, ClientsMayComeFirst) {
  const int port = free_port();
  std::thread client([&] { Store({"127.0.0.1", port, false, 2}, soon()).set("came", {}); });
  std::this_thread::sleep_for(milliseconds(80));
  Store host({"127.0.0.1", port, true, 2}, soon());
  EXPECT_TRUE(host.get("came", soon()).empty());
  client.join();
}

TEST(Store, ATableThatWentAwayIsALostRank) {
  const int port = free_port();
  auto host = std::make_unique<Store>(StoreAddress{"127.0.0.1", port, true, 2}, soon());
  Store client({"127.0.0.1", port, false, 2}, soon());
  host.reset();
  const std::string text = message_of<PeerLost>([&] {
    for (int i = 0; i < 3; ++i) client.exists("a");
  });
  EXPECT_TRUE(has(text, "the rendezvous at 127.0.0.1")) << text;
}

TEST(Meet, RanksOfOneRunMeet) {
  const int port = free_port();
  const auto first = meet(meeting_of(0, 2, port));
  const auto second = meet(meeting_of(1, 2, port));
  second->set("hello", bytes_of("you"));
  EXPECT_EQ(first->get("hello", soon()), bytes_of("you"));
}

TEST(Meet, ARankThatIsTakenIsRefused) {
  const int port = free_port();
  const auto first = meet(meeting_of(0, 3, port));
  const auto second = meet(meeting_of(2, 3, port));
  const std::string text = message_of<ConfigError>([&] { meet(meeting_of(2, 3, port)); });
  EXPECT_TRUE(has(text, "two processes claim rank 2: is another run using 127.0.0.1:")) << text;
}

TEST(Meet, AnotherRunOnThePortIsRefusedWithAllDifferences) {
  const int port = free_port();
  const auto first = meet(meeting_of(0, 2, port, "red"));
  const std::string text = message_of<ConfigError>([&] { meet(meeting_of(1, 4, port, "blue")); });
  EXPECT_TRUE(has(text, "'blue'") && has(text, "'red'")) << text;
  EXPECT_TRUE(has(text, "expects 4 ranks") && has(text, "expects 2")) << text;
}

TEST(Meet, AnEarlierAttemptIsNotWaitedFor) {
  const int port = free_port();
  Meeting zero = meeting_of(0, 2, port);
  zero.attempt = 3;
  const auto first = meet(zero);
  const std::string text = message_of<ConfigError>([&] { meet(meeting_of(1, 2, port)); });
  EXPECT_TRUE(has(text, "of attempt 0") && has(text, "of attempt 3")) << text;
}

TEST(Meet, ALaterAttemptWaitsForRankZeroInVain) {
  const int port = free_port();
  const auto first = meet(meeting_of(0, 2, port));
  Meeting later = meeting_of(1, 2, port);
  later.attempt = 1;
  later.deadline = milliseconds(200);
  EXPECT_TRUE(has(message_of<Timeout>([&] { meet(later); }), "attempt 1"));
}

TEST(Meet, WhatIsNotARendezvousOfOursIsSaidToBeSo) {
  const int port = free_port();
  Store host({"127.0.0.1", port, true, 2}, soon());
  host.set("laconic/run", bytes_of("gibberish"));
  const std::string text = message_of<ConfigError>([&] { meet(meeting_of(1, 2, port)); });
  EXPECT_TRUE(has(text, "gibberish")) << text;
}

TEST(Meet, AllProblemsAreNamedAtOnce) {
  Meeting meeting = meeting_of(5, 3, 70'000);
  meeting.host = "";
  const std::string text = message_of<ConfigError>([&] { meet(meeting); });
  EXPECT_TRUE(has(text, "rank 5 is not one of 3") && has(text, "MASTER_ADDR is empty") &&
              has(text, "MASTER_PORT = 70000"))
      << text;
}

}  // namespace
}  // namespace laconic
