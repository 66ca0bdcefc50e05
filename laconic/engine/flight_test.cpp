#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/engine/recorder.hpp"
#include "laconic/engine/test_message.hpp"

namespace laconic {
namespace {

using Kind = Record::Kind;
using State = Record::State;

std::vector<std::uint64_t> ids_of(const FlightRecorder& recorder) {
  std::vector<std::uint64_t> ids;
  for (const Record& record : recorder.records()) ids.push_back(record.id);
  return ids;
}

TEST(FlightRecorder, TellsWhatWasPostedAndHowItEnded) {
  FlightRecorder recorder(8);
  const auto sent = recorder.post(Kind::send, 3, gradient_tag(7), 100);
  const auto awaited = recorder.post(Kind::recv, 2, gradient_tag(8), 0);
  recorder.finish(awaited, State::done, 55);
  const std::vector<Record> records = recorder.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].id, sent);
  EXPECT_EQ(records[0].state, State::posted);
  EXPECT_EQ(records[0].bytes, 100U);
  EXPECT_EQ(records[0].finished_ns, 0);
  EXPECT_EQ(records[1].kind, Kind::recv);
  EXPECT_EQ(records[1].peer, 2);
  EXPECT_EQ(records[1].tag, gradient_tag(8));
  EXPECT_EQ(records[1].state, State::done);
  EXPECT_EQ(records[1].bytes, 55U);
  EXPECT_GE(records[1].finished_ns, records[1].posted_ns);
  EXPECT_GE(recorder.now_ns(), records[1].finished_ns);
}

TEST(FlightRecorder, ForgetsTheOldestFinishedAndNeverAnOpenOne) {
  for (std::size_t capacity = 0; capacity <= 4; ++capacity) {
    FlightRecorder recorder(capacity);
    const auto open = recorder.post(Kind::recv, 1, 0, 0);
    for (int i = 0; i < 10; ++i)
      recorder.finish(recorder.post(Kind::send, 1, 0, 1), State::done, 1);
    std::vector<std::uint64_t> expected{open};
    for (std::uint64_t id = 11 - capacity; id <= 10; ++id) expected.push_back(id);
    EXPECT_EQ(ids_of(recorder), expected);
    recorder.finish(open, State::failed, 0);  // now it is the youngest that finished
    if (capacity == 0) {
      EXPECT_TRUE(ids_of(recorder).empty());
    } else {
      EXPECT_EQ(ids_of(recorder).front(), open);
      EXPECT_EQ(ids_of(recorder).size(), capacity);
    }
  }
}

TEST(FlightRecorder, CountsOnceWhateverTheThreads) {
  FlightRecorder recorder(1 << 12);
  std::vector<std::thread> threads;
  for (Rank r = 0; r < 4; ++r)
    threads.emplace_back([&, r] {
      for (int i = 0; i < 500; ++i)
        recorder.finish(recorder.post(Kind::send, r, 0, 1), State::done, 1);
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::uint64_t> ids = ids_of(recorder);
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 2000U);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

Flight sample() {
  Flight flight{.rank = 3,
                .host = "gpu \"1\"",
                .doing = "step 17: waiting for dp.gradient 2",
                .error = "line\nbreak",
                .records = {},
                .taken_ns = 123,
                .is_cause = true};
  for (const Kind kind : {Kind::send, Kind::recv})
    for (const State state : {State::posted, State::done, State::failed})
      flight.records.push_back({.id = flight.records.size(),
                                .kind = kind,
                                .state = state,
                                .peer = 5,
                                .tag = ~Tag{0},
                                .bytes = std::uint64_t{1} << 40,
                                .posted_ns = -1,
                                .finished_ns = std::int64_t{1} << 62});
  return flight;
}

TEST(Flight, IsReadBackAsItWasWritten) {
  const Flight before = sample();
  const Flight after = parse_flight(to_json(before));
  EXPECT_EQ(after.rank, before.rank);
  EXPECT_EQ(after.host, before.host);
  EXPECT_EQ(after.doing, before.doing);
  EXPECT_EQ(after.error, before.error);
  EXPECT_EQ(after.taken_ns, before.taken_ns);
  EXPECT_EQ(after.is_cause, before.is_cause);
  EXPECT_EQ(after.records, before.records);
}

TEST(Flight, ABrokenErrorMessageDoesNotCostTheRecord) {
  Flight flight = sample();
  flight.error = "\xff\xfe";
  EXPECT_EQ(parse_flight(to_json(flight)).records, flight.records);
}

TEST(Flight, ThatIsNotOneIsRefusedByItsField) {
  const std::string good = to_json(sample());
  const auto refusal = [&](const std::string& what, const std::string& instead) -> std::string {
    std::string text = good;
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), instead);
    try {
      parse_flight(text);
    } catch (const FileError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("\"rank\": 3", "\"rank\": 3000000000").find("rank"), std::string::npos);
  EXPECT_NE(refusal("\"rank\": 3", "\"rank\": \"3\"").find("rank"), std::string::npos);
  EXPECT_NE(refusal("\"rank\": 3", "\"bank\": 3").find("rank"), std::string::npos);
  EXPECT_NE(refusal("\"send\"", "\"sent\"").find("kind"), std::string::npos);
  EXPECT_NE(refusal("\"posted\"", "7").find("state"), std::string::npos);
  EXPECT_NE(refusal("\"bytes\": 1", "\"bytes\": -1").find("bytes"), std::string::npos);
  EXPECT_NE(refusal("\"is_cause\": true", "\"is_cause\": 1").find("is_cause"), std::string::npos);
  EXPECT_NE(refusal("\"records\": [", "\"records\": [1,").find("records"), std::string::npos);
  EXPECT_NE(refusal("\"records\"", "\"recordz\"").find("records"), std::string::npos);
  EXPECT_THROW(parse_flight(good.substr(0, good.size() / 2)), FileError);
  EXPECT_THROW(parse_flight("[]"), FileError);
}

}  // namespace
}  // namespace laconic
