#include "laconic/transport/inbox.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 3;
const Deadline kPast = std::chrono::steady_clock::now() - milliseconds(100);

Deadline in_time() {
  return in(milliseconds(30'000));
}

Bytes letter(char c) {
  return Bytes(1, static_cast<std::byte>(c));
}

char letter_in(const Bytes& message) {
  return message.size() == 1 ? static_cast<char>(message[0]) : '?';
}

TEST(Inbox, GivesMessagesOfOneAddressInTheirOrder) {
  Inbox inbox(0, kRanks);
  for (const char c : {'a', 'b', 'c'}) inbox.put(1, 7, letter(c));
  inbox.put(2, 7, letter('x'));
  inbox.put(1, 8, letter('y'));
  EXPECT_EQ(letter_in(inbox.take(2, 7, kPast)), 'x');
  for (const char c : {'a', 'b', 'c'}) EXPECT_EQ(letter_in(inbox.take(1, 7, kPast)), c);
  EXPECT_EQ(letter_in(inbox.take(1, 8, kPast)), 'y');
}

TEST(Inbox, DeadlineInThePastStillDeliversWhatHasArrived) {
  Inbox inbox(0, kRanks);
  EXPECT_THROW(inbox.take(1, 7, kPast), Timeout);
  inbox.put(1, 7, letter('a'));
  EXPECT_EQ(letter_in(inbox.take(1, 7, kPast)), 'a');
  EXPECT_THROW(inbox.take(1, 7, kPast), Timeout);
}

TEST(Inbox, NoDeadlineAtAllIsADeadlineToo) {
  Inbox inbox(0, kRanks);
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(20));
    inbox.put(1, 7, letter('a'));
  });
  EXPECT_EQ(letter_in(inbox.take(1, 7, Deadline::max())), 'a');
  sender.join();
}

TEST(Inbox, TimeoutNamesWhoWaitedForWhatFromWhom) {
  Inbox inbox(0, kRanks);
  try {
    inbox.take(2, Tag{1} << 56 | Tag{2} << 40 | Tag{4182} << 12, in(milliseconds(5)));
    FAIL();
  } catch (const Timeout& e) {
    EXPECT_EQ(e.peer(), 2);
    EXPECT_STREQ(e.what(), "rank 0 waited in vain for dp.gradient 2 #4182 from rank 2");
  }
}

TEST(Inbox, LostPeerStillDeliversWhatItSentAndTheFirstReasonCounts) {
  Inbox inbox(0, kRanks);
  inbox.put(1, 7, letter('a'));
  inbox.lose(1, "the cable burnt");
  inbox.lose(1, "something else");
  EXPECT_EQ(inbox.loss_of(1), "the cable burnt");
  EXPECT_FALSE(inbox.loss_of(2).has_value());
  EXPECT_EQ(letter_in(inbox.take(1, 7, in_time())), 'a');
  try {
    inbox.take(1, 7, in_time());
    FAIL();
  } catch (const PeerLost& e) {
    EXPECT_EQ(e.peer(), 1);
    EXPECT_STREQ(e.what(), "rank 1 is lost: the cable burnt");
  }
  EXPECT_THROW(inbox.try_take(1, 7), PeerLost);
  EXPECT_THROW(inbox.require_present(1), PeerLost);
  EXPECT_NO_THROW(inbox.require_present(2));
  EXPECT_FALSE(inbox.try_take(2, 7).has_value());
}

TEST(Inbox, ClosedOneDeliversNothingAndTakesNothingIn) {
  Inbox inbox(0, kRanks);
  inbox.put(1, 7, letter('a'));
  inbox.close();
  inbox.put(1, 8, letter('b'));
  for (const Tag tag : {7, 8}) {
    try {
      inbox.take(1, tag, in_time());
      FAIL();
    } catch (const PeerLost& e) {
      EXPECT_EQ(e.peer(), 0);
    }
  }
  EXPECT_THROW(inbox.require_present(1), PeerLost);
}

// What ends the wait of each of three threads: a message, a loss, the closing.
TEST(Inbox, EveryKindOfEventWakesThoseItConcerns) {
  Inbox inbox(0, kRanks);
  std::atomic<int> ended = 0;
  std::thread served([&] {
    EXPECT_EQ(letter_in(inbox.take(1, 7, in_time())), 'a');
    ++ended;
  });
  std::thread bereft([&] {
    EXPECT_THROW(inbox.take(2, 7, in_time()), PeerLost);
    ++ended;
  });
  std::thread last([&] {
    EXPECT_THROW(inbox.take(1, 8, in_time()), PeerLost);
    ++ended;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(ended, 0);
  inbox.put(1, 7, letter('a'));
  served.join();
  inbox.lose(2, "gone");
  bereft.join();
  EXPECT_EQ(ended, 2);
  inbox.close();
  last.join();
}

TEST(Inbox, TwoMessagesServeTwoWhoWaitForTheSame) {
  for (int round = 0; round < 50; ++round) {
    Inbox inbox(0, kRanks);
    std::thread first([&] { inbox.take(1, 7, in_time()); });
    std::thread second([&] { inbox.take(1, 7, in_time()); });
    if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(1));
    inbox.put(1, 7, letter('a'));
    inbox.put(1, 7, letter('b'));
    first.join();
    second.join();
    EXPECT_FALSE(inbox.try_take(1, 7).has_value());
  }
}

TEST(Inbox, ListenerHearsMessagesLossesAndTheClosingOnceEach) {
  Inbox inbox(0, kRanks);
  int calls = 0;
  inbox.on_arrival([&] { ++calls; });
  inbox.put(1, 7, letter('a'));
  EXPECT_EQ(calls, 1);
  inbox.lose(1, "gone");
  inbox.lose(1, "gone again");
  EXPECT_EQ(calls, 2);
  inbox.close();
  inbox.close();
  EXPECT_EQ(calls, 3);
  inbox.put(2, 7, letter('a'));
  EXPECT_EQ(calls, 3);
}

TEST(Inbox, ListenerMayLookIntoTheInbox) {
  Inbox inbox(0, kRanks);
  std::string seen;
  inbox.on_arrival([&] {
    if (const auto message = inbox.try_take(1, 7)) seen += letter_in(*message);
  });
  for (const char c : {'a', 'b', 'c'}) inbox.put(1, 7, letter(c));
  EXPECT_EQ(seen, "abc");
}

TEST(Inbox, RemovingTheListenerWaitsForTheCallThatIsUnderWay) {
  Inbox inbox(0, kRanks);
  std::atomic<bool> is_inside = false, has_ended = false;
  inbox.on_arrival([&] {
    is_inside = true;
    std::this_thread::sleep_for(milliseconds(30));
    has_ended = true;
  });
  std::thread sender([&] { inbox.put(1, 7, letter('a')); });
  while (!is_inside) std::this_thread::yield();
  inbox.on_arrival({});
  EXPECT_TRUE(has_ended);
  sender.join();
}

TEST(Inbox, TellsADeathFromAGoodbye) {
  Inbox inbox(0, 4);
  inbox.lose(1, "it closed its transport", Inbox::End::goodbye);
  EXPECT_FALSE(inbox.death());
  inbox.lose(1, "connection reset");  // what follows a goodbye is not news
  EXPECT_FALSE(inbox.death());
  inbox.lose(3, "connection reset");
  inbox.lose(2, "connection reset");
  ASSERT_TRUE(inbox.death());
  EXPECT_EQ(inbox.death()->peer(), 3);
  EXPECT_STREQ(inbox.death()->what(), "rank 3 is lost: connection reset");
}

TEST(Inbox, TagsByTheHundredThousandCostLittleEach) {
  Inbox inbox(0, kRanks);
  constexpr Tag kTags = 100'000;
  const auto start = std::chrono::steady_clock::now();
  for (Tag tag = 0; tag < kTags; ++tag) inbox.put(1, tag << 12, letter('a'));
  for (Tag tag = kTags; tag-- > 0;) inbox.take(1, tag << 12, kPast);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(Inbox, CountsTheMostThatWaitedAtOnce) {
  Inbox inbox(0, 2);
  EXPECT_EQ(inbox.most_held_bytes(), 0U);
  inbox.put(1, 7, Bytes(100));
  inbox.put(1, 8, Bytes(50));
  EXPECT_EQ(inbox.most_held_bytes(), 150U);
  inbox.take(1, 7, {});
  inbox.put(1, 7, Bytes(90));
  EXPECT_EQ(inbox.most_held_bytes(), 150U);
  inbox.put(1, 7, Bytes(20));
  EXPECT_EQ(inbox.most_held_bytes(), 160U);
  inbox.close();
  inbox.put(1, 7, Bytes(1000));  // dropped
  EXPECT_EQ(inbox.most_held_bytes(), 160U);
}

}  // namespace
}  // namespace laconic
