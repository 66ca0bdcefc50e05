#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/complaint.hpp"
#include "laconic/rendezvous/gloo_context.hpp"
#include "laconic/rendezvous/test_ranks.hpp"
#include "laconic/transport/conformance.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

class GlooConformance : public testing::TestWithParam<ConformanceCheck> {};

TEST_P(GlooConformance, Holds) {
  GetParam().run({.name = "gloo", .run = run_gloo_threads});
}

INSTANTIATE_TEST_SUITE_P(Gloo, GlooConformance, testing::ValuesIn(conformance_checks()),
                         name_of_check);

TEST(Gloo, OneRankIsAWorldToo) {
  run_gloo_threads(1, [](Transport& t) {
    t.send(0, 5, Bytes(3), in(milliseconds(100)));
    EXPECT_EQ(t.recv(0, 5, in(milliseconds(100))).size(), 3u);
    std::vector<float> values = {1, 2};
    t.sum(values, in(milliseconds(100)));
    EXPECT_EQ(values, (std::vector<float>{1, 2}));
  });
}

TEST(Gloo, WhatWasSentBeforeTheEndStillArrives) {
  constexpr std::size_t kBytes = 3 << 20;  // more than the slots hold
  run_gloo_threads(2, [](Transport& t) {
    if (t.rank() == 0) {
      for (int i = 0; i < 4; ++i)
        t.send(1, 5, Bytes(kBytes, std::byte{9}), in(milliseconds(30'000)));
      return;  // destroyed at once
    }
    std::this_thread::sleep_for(milliseconds(100));
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(t.recv(0, 5, in(milliseconds(30'000))), Bytes(kBytes, std::byte{9}));
    EXPECT_THROW(t.recv(0, 5, in(milliseconds(30'000))), PeerLost);
  });
}

TEST(Gloo, CloseLetsGoOfASum) {
  run_gloo_threads(2, [](Transport& t) {
    if (t.rank() == 1) {  // never joins the sum
      t.recv(0, 1, in(milliseconds(30'000)));
      return;
    }
    std::thread closer([&] {
      std::this_thread::sleep_for(milliseconds(50));
      t.send(1, 1, {}, in(milliseconds(1000)));
      t.close();
    });
    std::vector<float> values(1000);
    EXPECT_THROW(t.sum(values, in(milliseconds(30'000))), PeerLost);
    closer.join();
  });
}

TEST(Gloo, ClosedRanksDoNotSum) {
  run_gloo_threads(2, [](Transport& t) {
    std::vector<float> values(1000, 1);
    t.close();
    try {
      t.sum(values, in(milliseconds(10'000)));
      ADD_FAILURE() << "it summed";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), t.rank());
    }
  });
}

TEST(Gloo, ASumThatSomebodyMissesTimesOutAndMessagesGoOn) {
  run_gloo_threads(2, [](Transport& t) {
    std::vector<float> values(1000);
    if (t.rank() == 0) {
      EXPECT_THROW(t.sum(values, in(milliseconds(60))), Timeout);
    }
    t.send(1 - t.rank(), 1, Bytes(9), in(milliseconds(30'000)));
    EXPECT_EQ(t.recv(1 - t.rank(), 1, in(milliseconds(30'000))).size(), 9u);
  });
}

TEST(Gloo, TwoAttemptsOfARunShareATableOfAnAgent) {
  const int port = free_port();
  const Store agent({"127.0.0.1", port, true, 2}, in(milliseconds(10'000)));
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<std::thread> ranks;
    for (Rank r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        Meeting meeting = test_meeting(r, 2, port);
        meeting.agent_store = true;
        meeting.attempt = attempt;
        // The first to come must not take the last attempt's notes for those of this one.
        if (r == 0) std::this_thread::sleep_for(milliseconds(100));
        run_one_gloo_rank(meeting, [](Transport& t) {
          t.send(1 - t.rank(), 1, Bytes(4), in(milliseconds(10'000)));
          EXPECT_EQ(t.recv(1 - t.rank(), 1, in(milliseconds(10'000))).size(), 4u);
        });
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(Gloo, ARankThatNeverComesIsNamed) {
  const int port = free_port();
  Meeting meeting = test_meeting(0, 3, port);
  meeting.deadline = milliseconds(300);
  const auto store = meet(meeting);
  try {
    make_gloo(meeting, *store);
    FAIL() << "somebody answered";
  } catch (const Timeout& error) {
    EXPECT_EQ(error.peer(), 1);
    EXPECT_NE(std::string(error.what()).find("the addresses of rank 1"), std::string::npos)
        << error.what();
  }
}

TEST(Gloo, WhoWaitsForARankThatGaveUpNamesWhomThatOneMissed) {
  const int port = free_port();
  const Meeting here = test_meeting(0, 4, port), there = test_meeting(1, 4, port);
  const auto store = meet(here), store_there = meet(there);
  Complaints(there, *store_there).tell({3, "no answer from rank 3"});
  const auto start = std::chrono::steady_clock::now();
  try {
    make_gloo(here, *store);
    FAIL() << "somebody answered";
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.peer(), 3);
    EXPECT_NE(std::string(error.what()).find("rank 1 gave up"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("no answer from rank 3"), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, here.deadline / 2);
}

TEST(Complaints, LeadFromRankToRankAndEndWhereNobodyComplains) {
  const int port = free_port();
  std::vector<Meeting> meetings;
  std::vector<std::unique_ptr<Store>> stores;
  for (Rank r = 0; r < 4; ++r) {
    meetings.push_back(test_meeting(r, 4, port));
    stores.push_back(meet(meetings.back()));
  }
  const auto complaints = [&](std::size_t rank) {
    return Complaints(meetings[rank], *stores[rank]);
  };
  const auto tell = [&](Rank rank, const Complaint& complaint) {
    Complaints own = complaints(static_cast<std::size_t>(rank));
    own.tell(complaint);
    EXPECT_TRUE(own.of(rank));  // writing alone does not wait until it is done
  };
  EXPECT_FALSE(complaints(0).of(1));
  EXPECT_EQ(complaints(0).cause_of({1, "mine"}).why, "mine");
  tell(1, {2, "two, of course"});
  ASSERT_TRUE(complaints(0).of(1));
  EXPECT_EQ(complaints(0).of(1)->about, 2);
  EXPECT_EQ(complaints(0).of(1)->why, "two, of course");
  tell(2, {3, ""});
  EXPECT_EQ(complaints(0).cause_of({1, "mine"}).about, 3);
  tell(3, {2, "each other"});  // comes to an end
  EXPECT_GE(complaints(0).cause_of({1, "mine"}).about, 2);
  tell(3, {0, "me"});  // nobody names himself
  EXPECT_EQ(complaints(0).cause_of({1, "mine"}).about, 3);
}

// Connects to every port on which this process listens, and hangs up, until told to end.
void visit_open_ports(const std::atomic<bool>& is_over, std::atomic<int>& visits) {
  while (!is_over)
    for (int descriptor = 0; descriptor < 400; ++descriptor) {
      int is_listening = 0;
      socklen_t length = sizeof is_listening;
      if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) != 0 ||
          is_listening == 0)
        continue;
      sockaddr_in name{};
      length = sizeof name;
      if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
          name.sin_family == AF_INET &&
          answers("127.0.0.1", ntohs(name.sin_port), in(milliseconds(50))))
        ++visits;
    }
}

// gloo takes who comes first to the port of a rank for that rank; then the rank is refused.
TEST(Gloo, RanksFindEachOtherWhoeverElseConnectsToTheirPorts) {
  std::atomic<bool> is_over = false;
  std::atomic<int> visits = 0;
  std::thread stranger([&] { visit_open_ports(is_over, visits); });
  for (int round = 0; round < 5; ++round)
    run_gloo_threads(4, [](Transport& t) {
      for (Rank r = 0; r < t.size(); ++r)
        t.send(r, 3, Bytes(static_cast<std::size_t>(100 * t.rank() + r)), in(milliseconds(30'000)));
      for (Rank r = 0; r < t.size(); ++r)
        EXPECT_EQ(t.recv(r, 3, in(milliseconds(30'000))).size(),
                  static_cast<std::size_t>(100 * r + t.rank()));
      std::vector<float> values(10, static_cast<float>(t.rank()));
      t.sum(values, in(milliseconds(30'000)));
      EXPECT_EQ(values, std::vector<float>(10, 6));
    });
  is_over = true;
  stranger.join();
  EXPECT_GT(visits, 20);
}

TEST(Gloo, MessagesAreReadable) {
  EXPECT_EQ(readable("[/build/gloo/transport/tcp/pair.cc:589] Connection closed by peer "
                     "[127.0.0.1]:20156\nand more"),
            "Connection closed by peer");
  EXPECT_EQ(readable("[a.cc:1] Read error [::1]:7: Connection reset by peer"),
            "Read error: Connection reset by peer");
  EXPECT_EQ(readable("plain"), "plain");
  EXPECT_EQ(readable(""), "");
}

TEST(Gloo, AnInterfaceThatIsNotThereIsRefused) {
  Meeting meeting = test_meeting(0, 2, free_port());
  meeting.interface = "nosuch7";
  const auto store = meet(meeting);
  EXPECT_THROW(make_gloo(meeting, *store), ConfigError);
}

}  // namespace
}  // namespace laconic
