#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "laconic/base/text.hpp"
#include "laconic/engine/recorder.hpp"
#include "laconic/engine/test_message.hpp"

namespace laconic {
namespace {

using State = Record::State;

// What happened, told line by line: a second passes between two lines.
class Story {
 public:
  explicit Story(int size) : size_(size) {
    for (Rank r = 0; r < size; ++r) flights_[r].rank = r;
  }

  Story& sends(Rank from, Rank to, std::uint64_t number, State state = State::done) {
    return add(from, Record::Kind::send, to, number, state, 1'200'000);
  }
  Story& receives(Rank at, Rank from, std::uint64_t number) {
    return add(at, Record::Kind::recv, from, number, State::done, 1'200'000);
  }
  Story& waits(Rank at, Rank from, std::uint64_t number, State state = State::posted) {
    return add(at, Record::Kind::recv, from, number, state, 0);
  }
  Story& fails(Rank rank, const std::string& error) {
    flights_.at(rank).error = error;
    return *this;
  }
  Story& fails_by_itself(Rank rank, const std::string& error) {
    flights_.at(rank).is_cause = true;
    return fails(rank, error);
  }
  Story& forgets(Rank rank) {  // the oldest
    auto& records = flights_.at(rank).records;
    records.erase(records.begin());
    return *this;
  }
  Story& dies(Rank rank) {
    flights_.erase(rank);
    return *this;
  }

  std::string text() const {
    std::vector<Flight> flights;
    for (auto [rank, flight] : flights_) {
      flight.taken_ns = (now_ + 60) * 1'000'000'000;
      flights.push_back(flight);
    }
    return verdict(flights, size_);
  }
  std::string line() const { return split(text(), '\n').front(); }

 private:
  Story& add(Rank at, Record::Kind kind, Rank peer, std::uint64_t number, State state,
             std::uint64_t bytes) {
    auto& records = flights_.at(at).records;
    const std::int64_t ns = ++now_ * 1'000'000'000;
    records.push_back({.id = records.empty() ? 0 : records.back().id + 1,
                       .kind = kind,
                       .state = state,
                       .peer = peer,
                       .tag = gradient_tag(number),
                       .bytes = bytes,
                       .posted_ns = ns,
                       .finished_ns = state == State::posted ? 0 : ns});
    return *this;
  }

  int size_;
  std::int64_t now_ = 0;
  std::map<Rank, Flight> flights_;
};

TEST(Verdict, WhoNeverPostedARecvIsNamed) {
  EXPECT_EQ(Story(4).sends(2, 3, 4182).line(),
            "rank 3 never posted recv of dp.gradient 2 #4182 from rank 2");
  EXPECT_EQ(Story(4).sends(2, 3, 4182, State::posted).line(),
            "rank 3 never posted recv of dp.gradient 2 #4182 from rank 2");
}

TEST(Verdict, WhoNeverSentIsNamed) {
  EXPECT_EQ(Story(4).waits(3, 2, 4182).line(), "rank 2 never sent dp.gradient 2 #4182 to rank 3");
  EXPECT_EQ(Story(4).waits(3, 2, 4182, State::failed).line(),
            "rank 2 never sent dp.gradient 2 #4182 to rank 3");
}

TEST(Verdict, WhoLeftNoRecordIsNamedWithThoseWhoWait) {
  EXPECT_EQ(Story(4).waits(0, 2, 1).waits(1, 2, 1).sends(3, 2, 1, State::failed).dies(2).line(),
            "rank 2 left no record: it died or cannot be reached; ranks 0, 1, 3 wait for it");
  EXPECT_EQ(Story(4).waits(0, 2, 1).dies(2).dies(3).line(),
            "ranks 2, 3 left no record: they died or cannot be reached; rank 0 waits for them");
  EXPECT_EQ(Story(2).dies(1).line(), "rank 1 left no record: it died or cannot be reached");
  EXPECT_EQ(Story(2).dies(0).dies(1).line(), "no rank left a record");
}

TEST(Verdict, AMessageThatTheNetworkKeptIsNamed) {
  const auto line = [](State send, State recv) {
    return Story(4).sends(2, 3, 4182, send).waits(3, 2, 4182, recv).line();
  };
  for (const State recv : {State::posted, State::failed}) {
    EXPECT_EQ(line(State::done, recv),
              "message dp.gradient 2 #4182 of 1.2 MB from rank 2 left but did not reach rank 3");
    EXPECT_EQ(line(State::posted, recv),
              "message dp.gradient 2 #4182 of 1.2 MB from rank 2 to rank 3 was queued but has not "
              "left");
    EXPECT_EQ(line(State::failed, recv),
              "message dp.gradient 2 #4182 of 1.2 MB from rank 2 could not be sent to rank 3");
  }
  EXPECT_EQ(Story(4).sends(2, 3, 4182, State::failed).line(),
            "message dp.gradient 2 #4182 of 1.2 MB from rank 2 could not be sent to rank 3");
}

TEST(Verdict, NothingIsBlamedWhenNothingIsWrong) {
  EXPECT_EQ(Story(2).line(), "no rank waits for another");
  EXPECT_EQ(Story(2).sends(0, 1, 1).receives(1, 0, 1).line(), "no rank waits for another");
}

TEST(Verdict, EveryPairOfStatesOfOneMessageIsToldApart) {
  // States of rank 0 (sender) and rank 1 (receiver); "absent" did nothing.
  enum End { absent, posted, done, failed };
  const auto cause = [](End send, End recv) {
    Story story(2);
    const auto state = [](End end) { return static_cast<State>(end - 1); };
    if (send != absent) story.sends(0, 1, 5, state(send));
    if (recv == done) story.receives(1, 0, 5);
    if (recv == posted || recv == failed) story.waits(1, 0, 5, state(recv));
    const std::string line = story.line();
    for (const char* word : {"never posted", "never sent", "did not reach", "has not left",
                             "could not be sent", "no rank waits"})
      if (line.find(word) != std::string::npos) return std::string(word);
    return line;
  };
  for (const End end : {absent, posted, done, failed}) {
    SCOPED_TRACE(end);
    EXPECT_EQ(cause(end, done), "no rank waits");
    if (end == posted || end == failed) {
      EXPECT_EQ(cause(absent, end), "never sent");
      EXPECT_EQ(cause(posted, end), "has not left");
      EXPECT_EQ(cause(done, end), "did not reach");
      EXPECT_EQ(cause(failed, end), "could not be sent");
    }
  }
  EXPECT_EQ(cause(absent, absent), "no rank waits");
  EXPECT_EQ(cause(posted, absent), "never posted");
  EXPECT_EQ(cause(done, absent), "never posted");
  EXPECT_EQ(cause(failed, absent), "could not be sent");
}

TEST(Verdict, FollowsAChainOfWaitsToItsEnd) {
  for (int size = 2; size <= 6; ++size) {
    SCOPED_TRACE(size);
    Story story(size);  // each waits for the next, and the last for nobody
    for (Rank r = 0; r + 1 < size; ++r) story.waits(r, r + 1, 7);
    EXPECT_EQ(story.line(),
              fmt::format("rank {} never sent dp.gradient 2 #7 to rank {}", size - 1, size - 2));
    story.fails(0, "timeout").fails(size - 1, "out of memory");
    EXPECT_EQ(story.line(), fmt::format("rank {} never sent dp.gradient 2 #7 to rank {}; it had "
                                        "failed: out of memory",
                                        size - 1, size - 2));
    story.dies(size - 1);
    EXPECT_EQ(story.line(), fmt::format("rank {} left no record: it died or cannot be reached; "
                                        "rank {} waits for it",
                                        size - 1, size - 2));
  }
}

TEST(Verdict, AChainMayLeadThroughSendsThatNobodyTakes) {
  EXPECT_EQ(Story(3).waits(0, 1, 1).sends(1, 2, 2, State::posted).line(),
            "rank 2 never posted recv of dp.gradient 2 #2 from rank 1");
  EXPECT_EQ(Story(3).waits(0, 1, 1).sends(1, 2, 2, State::failed).fails(2, "disk full").line(),
            "rank 2 never posted recv of dp.gradient 2 #2 from rank 1; it had failed: disk full");
  EXPECT_EQ(Story(3).waits(0, 1, 1).sends(1, 2, 2, State::failed).dies(2).line(),
            "rank 2 left no record: it died or cannot be reached; rank 1 waits for it");
}

TEST(Verdict, ReportsACycleAsOne) {
  EXPECT_EQ(Story(4).waits(0, 1, 9).waits(1, 2, 7).waits(2, 1, 8).waits(3, 1, 9).line(),
            "ranks 1, 2 wait for each other: rank 1 for dp.gradient 2 #7 from rank 2, rank 2 for "
            "dp.gradient 2 #8 from rank 1");
  for (int size = 2; size <= 6; ++size) {
    Story story(size);
    for (Rank r = 0; r < size; ++r) story.waits(r, (r + 1) % size, 7);
    EXPECT_NE(story.line().find("wait for each other: rank 0 for dp.gradient 2 #7 from rank 1"),
              std::string::npos)
        << story.line();
  }
  EXPECT_EQ(Story(2).waits(1, 1, 3).line(),
            "rank 1 waits for itself: rank 1 for dp.gradient 2 #3 from rank 1");
  EXPECT_EQ(Story(2).sends(0, 1, 1, State::posted).sends(1, 0, 2, State::posted).line(),
            "ranks 0, 1 wait for each other: rank 0 for rank 1 to take dp.gradient 2 #1, rank 1 "
            "for rank 0 to take dp.gradient 2 #2");
}

TEST(Verdict, ARankThatIsBehindIsBlamedForWhatItShouldHaveDoneFirst) {
  // A direct all-reduce that rank 3 never began.
  Story story(4);
  for (Rank r = 0; r < 3; ++r)
    for (Rank to = 0; to < 4; ++to)
      if (to != r) story.sends(r, to, 40);
  for (Rank r = 0; r < 3; ++r)
    for (Rank from = 0; from < 3; ++from)
      if (from != r) story.receives(r, from, 40);
  for (Rank r = 0; r < 3; ++r) story.waits(r, 3, 40);
  EXPECT_EQ(story.line(), "rank 3 never posted recv of dp.gradient 2 #40 from rank 0");
}

TEST(Verdict, OfSeveralCausesTheOneThatHoldsUpMostRanksComesFirst) {
  Story story(6);
  story.waits(0, 1, 1);                 // rank 1 is late for one,
  story.waits(2, 5, 2).waits(3, 2, 3);  // rank 5 for two,
  story.sends(1, 4, 6).waits(4, 1, 6);  // and a message is lost
  EXPECT_EQ(story.line(), "rank 5 never sent dp.gradient 2 #2 to rank 2");
  const std::string text = story.text();
  EXPECT_NE(text.find("also: rank 1 never sent dp.gradient 2 #1 to rank 0\n"), std::string::npos);
  EXPECT_NE(text.find("also: message dp.gradient 2 #6 of 1.2 MB"), std::string::npos);
}

TEST(Verdict, MessagesOfOneTagAreMatchedInTheirOrder) {
  Story story(2);
  story.sends(0, 1, 1).receives(1, 0, 1).sends(0, 1, 1).waits(1, 0, 1);
  EXPECT_EQ(story.line(),
            "message dp.gradient 2 #1 (number 2 of that tag) of 1.2 MB from rank 0 left but did "
            "not reach rank 1");
  EXPECT_EQ(Story(2).sends(0, 1, 1).receives(1, 0, 1).waits(1, 0, 1).line(),
            "rank 0 never sent dp.gradient 2 #1 (number 2 of that tag) to rank 1");
}

TEST(Verdict, WhatHasLeftARingIsNotTakenForUndone) {
  Story story(3);
  story.sends(0, 1, 1).receives(1, 0, 1).sends(0, 1, 2).receives(1, 0, 2).waits(2, 1, 3);
  EXPECT_EQ(story.line(), "rank 1 never sent dp.gradient 2 #3 to rank 2");
  story.forgets(1);  // its recv of #1
  EXPECT_EQ(story.line(), "rank 1 never sent dp.gradient 2 #3 to rank 2");
}

// The receiver may have taken it so long ago that it has forgotten.
TEST(Verdict, ASendThatIsOlderThanTheReceiversRingIsToldAsItStands) {
  Story story(2);
  story.sends(0, 1, 1, State::posted).receives(1, 0, 1).sends(1, 0, 2).receives(0, 1, 2).forgets(1);
  EXPECT_EQ(story.line(),
            "message dp.gradient 2 #1 of 1.2 MB from rank 0 to rank 1 was queued but has not left");
}

TEST(Verdict, ARankThatFailedWhileNobodyWaitsIsNamed) {
  EXPECT_EQ(Story(2).sends(0, 1, 1).fails(1, "out of memory").line(),
            "rank 1 failed: out of memory");
}

TEST(Verdict, RecordsOfRanksThatCannotBeAreNoTrouble) {
  EXPECT_EQ(Story(2).waits(0, 7, 1).line(),
            "rank 7 left no record: it died or cannot be reached; rank 0 waits for it");
  EXPECT_EQ(verdict({}, 0), "no rank left a record\n");
}

TEST(Verdict, EvidenceShowsEveryRankWithItsOldestOpenOperations) {
  Story story(3);
  story.sends(0, 1, 1).receives(1, 0, 1);
  for (std::uint64_t i = 0; i < 5; ++i) story.waits(1, 2, 10 + i);
  story.fails(1, "nothing moved for 60 s").dies(2);
  EXPECT_EQ(story.text(),
            "rank 2 left no record: it died or cannot be reached; rank 1 waits for it\n"
            "rank 0: (says nothing)\n"
            "  nothing open; last: send of dp.gradient 2 #1 (1.2 MB) to rank 1, done 1 m 06 s ago\n"
            "rank 1: (says nothing)\n"
            "  error: nothing moved for 60 s\n"
            "  recv of dp.gradient 2 #10 from rank 2, open for 1 m 04 s\n"
            "  recv of dp.gradient 2 #11 from rank 2, open for 1 m 03 s\n"
            "  recv of dp.gradient 2 #12 from rank 2, open for 1 m 02 s\n"
            "  and 2 more that are not done\n"
            "rank 2: no record\n");
}

// Every way in which three ranks can each wait for one of the others, for nobody, or be gone: the
// line must name whoever stands at the end of the chain.
TEST(Verdict, OfThreeRanksBlamesWhoeverDoesNotWait) {
  constexpr int kNobody = 3;
  constexpr int kGone = 4;
  for (int code = 0; code < 125; ++code) {
    const std::array<int, 3> waits_for = {code % 5, code / 5 % 5, code / 25};
    Story story(3);
    for (Rank r = 0; r < 3; ++r)
      if (waits_for[static_cast<std::size_t>(r)] < kNobody)
        story.waits(r, waits_for[static_cast<std::size_t>(r)], 1);
    std::set<Rank> gone, late, cyclic;
    for (Rank r = 0; r < 3; ++r) {
      if (waits_for[static_cast<std::size_t>(r)] == kGone) {
        story.dies(r);
        gone.insert(r);
        continue;
      }
      Rank at = r;
      for (int hop = 0; hop < 4 && at < kNobody; ++hop) {
        const int next = waits_for[static_cast<std::size_t>(at)];
        if (next == kNobody && at != r) late.insert(at);
        if (next >= kNobody) break;
        at = next;
        if (hop == 3) cyclic.insert(at);
      }
    }
    const std::string line = story.line();
    const auto is_one_of = [&](const std::set<Rank>& ranks, const std::string& words) {
      return std::any_of(ranks.begin(), ranks.end(), [&](Rank r) {
        return line.starts_with(fmt::format("rank {} {}", r, words));
      });
    };
    SCOPED_TRACE(fmt::format("{}: {}", fmt::join(waits_for, ","), line));
    const bool is_gone_awaited =
        std::any_of(waits_for.begin(), waits_for.end(), [&](int to) { return gone.contains(to); });
    if (gone.size() == 3) {
      EXPECT_EQ(line, "no rank left a record");
    } else if (is_gone_awaited || (!gone.empty() && late.empty())) {
      EXPECT_TRUE(line.find("left no record") != std::string::npos);
    } else if (!late.empty()) {
      EXPECT_TRUE(is_one_of(late, "never sent"));
    } else if (!cyclic.empty()) {
      EXPECT_TRUE(line.find("wait for each other") != std::string::npos ||
                  line.find("waits for itself") != std::string::npos);
    } else {
      EXPECT_EQ(line, "no rank waits for another");
    }
  }
}

TEST(Verdict, ARankThatFailedByItselfIsTheCauseWhoeverWaitsForWhom) {
  Story story(3);
  story.sends(1, 2, 1).waits(0, 2, 4).waits(1, 0, 5).fails(0, "rank 2 is lost").dies(1);
  story.fails_by_itself(2, "CRC-32C at byte 48");
  EXPECT_EQ(story.line(), "rank 2 failed by itself: CRC-32C at byte 48");
}

}  // namespace
}  // namespace laconic
