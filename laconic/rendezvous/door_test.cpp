#include "laconic/rendezvous/door.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

Deadline after(int ms) {
  return in(milliseconds(ms));
}

// Both go on in turn until all lines stand, or two seconds have passed.
bool advance_all(std::vector<Door*> doors) {
  const Deadline end = after(2000);
  for (bool all = false; !all && std::chrono::steady_clock::now() < end;) {
    all = true;
    for (Door* door : doors) all = door->advance(after(1)) && all;
    if (all) return true;
  }
  return false;
}

Socket connected_to(const DoorPlace& place) {
  Socket socket = begin_connecting(place.address, place.port);
  pollfd ready{*socket, POLLOUT, 0};
  ::poll(&ready, 1, 1000);
  return socket;
}

// What the other end has said, waiting for it; "closed" when it has hung up.
std::string heard(const Socket& socket) {
  pollfd ready{*socket, POLLIN, 0};
  if (::poll(&ready, 1, 1000) != 1) return "nothing";
  char text[64];
  const ssize_t count = ::recv(*socket, text, sizeof text, 0);
  return count <= 0 ? "closed" : std::string(text, static_cast<std::size_t>(count));
}

void expect_line(const Socket& one, const Socket& other) {
  ASSERT_EQ(::send(*one, "there", 5, 0), 5);
  EXPECT_EQ(heard(other), "there");
  ASSERT_EQ(::send(*other, "back", 4, 0), 4);
  EXPECT_EQ(heard(one), "back");
}

TEST(Door, LinesLeadToTheRankThatWasCalled) {
  Door zero(0, "127.0.0.1"), one(1, "127.0.0.1"), two(2, "127.0.0.1");
  for (const int line : {0, 1}) {
    zero.expect(1, line);
    zero.expect(2, line);
    one.expect(2, line);
    two.call(0, line, zero.place());
    two.call(1, line, one.place());
    one.call(0, line, zero.place());
  }
  ASSERT_TRUE(advance_all({&zero, &one, &two}));
  for (const int line : {1, 0}) {
    expect_line(zero.take(1, line), one.take(0, line));
    expect_line(zero.take(2, line), two.take(0, line));
    expect_line(one.take(2, line), two.take(1, line));
  }
}

// Strangers come first, say nothing, or something else, or hang up: the rank is let in all the
// same.
TEST(Door, StaysOpenForItsRankWhoeverElseComes) {
  Door zero(0, "127.0.0.1"), one(1, "127.0.0.1");
  zero.expect(1, 0);
  const Socket silent = connected_to(zero.place());
  { const Socket gone = connected_to(zero.place()); }
  const Socket browser = connected_to(zero.place());
  const std::string request = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
  ::send(*browser, request.data(), request.size(), 0);
  EXPECT_FALSE(zero.advance(after(20)));
  EXPECT_FALSE(zero.advance(after(20)));
  EXPECT_EQ(heard(browser), "closed");
  one.call(0, 0, zero.place());
  ASSERT_TRUE(advance_all({&zero, &one}));
  expect_line(zero.take(1, 0), one.take(0, 0));
}

TEST(Door, ManyStrangersDoNotKeepARankOut) {
  Door zero(0, "127.0.0.1"), one(1, "127.0.0.1");
  zero.expect(1, 0);
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(connected_to(zero.place()));
  one.call(0, 0, zero.place());
  for (int i = 0; i < 300; ++i) strangers.push_back(connected_to(zero.place()));
  ASSERT_TRUE(advance_all({&zero, &one}));
}

TEST(Door, ARankOfAnotherRunIsAStranger) {
  Door zero(0, "127.0.0.1"), one(1, "127.0.0.1");
  zero.expect(1, 0);
  DoorPlace wrong = zero.place();
  wrong.key ^= 1;
  one.call(0, 0, wrong);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(zero.advance(after(5)));
    EXPECT_FALSE(one.advance(after(5)));
  }
  ASSERT_EQ(one.missing().size(), 1u);
  EXPECT_NE(one.missing()[0].why.find("closed before the other end had answered"),
            std::string::npos)
      << one.missing()[0].why;
  EXPECT_FALSE(one.missing()[0].is_gone);
}

TEST(Door, WhoIsNotExpectedIsNotLetIn) {
  Door zero(0, "127.0.0.1"), one(1, "127.0.0.1");
  zero.expect(2, 0);
  one.call(0, 0, zero.place());
  EXPECT_FALSE(advance_all({&zero, &one}));
}

TEST(Door, BehindAClosedOneIsNobody) {
  DoorPlace closed;
  {
    const Door gone(0, "127.0.0.1");
    closed = gone.place();
  }
  Door one(1, "127.0.0.1");
  one.call(0, 0, closed);
  for (int i = 0; i < 20 && !one.missing()[0].is_gone; ++i) one.advance(after(10));
  EXPECT_TRUE(one.missing()[0].is_gone);
  EXPECT_EQ(one.missing()[0].why,
            "connecting to 127.0.0.1:" + std::to_string(closed.port) + ": Connection refused");
}

TEST(Door, WhoHasNotComeIsMissing) {
  Door one(1, "127.0.0.1");
  one.expect(3, 0);
  one.expect(2, 0);
  one.expect(2, 1);
  EXPECT_FALSE(one.advance(after(1)));
  ASSERT_EQ(one.missing().size(), 2u);
  EXPECT_EQ(one.missing()[0].peer, 2);
  EXPECT_EQ(one.missing()[1].peer, 3);
  EXPECT_FALSE(one.missing()[0].is_gone);
}

TEST(Door, AnAddressOfAnotherMachineIsRefused) {
  EXPECT_THROW(Door(0, "192.0.2.1"), ConfigError);
  EXPECT_THROW(Door(0, "nowhere"), ConfigError);
}

}  // namespace
}  // namespace laconic
