// `laconic schedule` as a user types it: no worker, no libtorch.
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

using ScheduleVerb = Workplace;

TEST_F(ScheduleVerb, DrawsAndCounts) {
  const std::string out =
      expect_exit(0, {"schedule", "gpipe", "--ranks", "2", "--microbatches", "3", "--columns", "60",
                      "--svg", "x.svg", "--json", "x.json"})
          .out;
  EXPECT_TRUE(contains(out, "rank 0 F0")) << out;
  EXPECT_TRUE(contains(out, "12 s, 25.0 % idle; 6 messages, 0 s exposed")) << out;
  EXPECT_TRUE(contains(text("x.svg"), "</svg>"));
  const auto json = nlohmann::json::parse(text("x.json"));
  EXPECT_EQ(json["makespan_seconds"], 12);
  EXPECT_EQ(json["live_activations"], (std::vector<int>{3, 3}));
}

TEST_F(ScheduleVerb, WhatTextPrintsIsAFileOfTheSameSchedule) {
  for (const char* form : {"--text", "--lowered"})
    for (const char* kind : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v"}) {
      const std::string printed = expect_exit(0, {"schedule", kind, form}).out;
      write_text(folder_ / "mine.schedule", printed);
      EXPECT_EQ(expect_exit(0, {"schedule", "mine.schedule", form}).out, printed);
      const Words costs = {"--activation", "0.3", "--when", "critical", "--json", "a.json"};
      Words of_kind = {"schedule", kind}, of_file = {"schedule", "mine.schedule"};
      of_kind.insert(of_kind.end(), costs.begin(), costs.end());
      of_file.insert(of_file.end(), costs.begin(), costs.end());
      expect_exit(0, of_kind);
      const auto expected = nlohmann::json::parse(text("a.json"));
      expect_exit(0, of_file);
      const auto got = nlohmann::json::parse(text("a.json"));
      EXPECT_EQ(got["makespan_seconds"], expected["makespan_seconds"]) << kind;
      EXPECT_EQ(got["encoded_messages"], expected["encoded_messages"]) << kind;
    }
}

TEST_F(ScheduleVerb, TellsWhichFragmentTravelsWhen) {
  const std::string out = expect_exit(0, {"schedule", "streaming", "--overlap", "5"}).out;
  EXPECT_TRUE(contains(out, "fragment 0: blocks 1, 5, 9\n")) << out;
  EXPECT_TRUE(contains(out, "fragment 4: blocks 0, 13\n")) << out;
  EXPECT_TRUE(contains(out, "        59              4\n        60       0       \n")) << out;
  const ProcessResult refused = expect_exit(
      2, {"schedule", "streaming", "--order", "sequential", "--steps", "4", "--overlap", "4"});
  EXPECT_TRUE(contains(refused.err, "--overlap: 4 steps of a round of 4")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "--fragment: 12 layers in fragments of 3")) << refused.err;
}

TEST_F(ScheduleVerb, ComparesAllKindsTheFastestFirst) {
  const std::string out =
      expect_exit(0, {"schedule", "--compare", "--activation", "0.3", "--json", "c.json"}).out;
  EXPECT_TRUE(contains(out, "fastest")) << out;
  const auto json = nlohmann::json::parse(text("c.json"));
  ASSERT_EQ(json["schedules"].size(), 5u);
  EXPECT_EQ(json["schedules"][0]["schedule"], "zb_v");
  EXPECT_EQ(json["schedules"][1]["schedule"], "zero_bubble");
  for (std::size_t i = 1; i < 5; ++i)
    EXPECT_GE(json["schedules"][i]["makespan_seconds"],
              json["schedules"][i - 1]["makespan_seconds"]);
  EXPECT_TRUE(contains(expect_exit(0, {"schedule", "--compare", "--microbatches", "5"}).out,
                       "interleaved: left out, 5 microbatches are no multiple of 4 ranks"));
  EXPECT_TRUE(contains(expect_exit(0, {"schedule", "--compare", "--paired"}).out,
                       "zero_bubble: left out, >a"));
}

TEST_F(ScheduleVerb, AutoTriesOrdersAndMicrobatches) {
  const Words costs = {"schedule", "auto",   "--forward", "1",     "--backward", "2",
                       "--bytes",  "125000", "--rate",    "1mbit", "--json",     "a.json"};
  const std::string out = expect_exit(0, costs).out;
  const auto json = nlohmann::json::parse(text("a.json"));
  ASSERT_EQ(json["schedules"].size(), 9u);
  const auto taken = json["schedules"][json["taken"].get<std::size_t>()];
  EXPECT_EQ(taken["schedule"], "gpipe") << out;
  EXPECT_EQ(taken["microbatches"], 32) << out;
  for (const auto& other : json["schedules"])
    EXPECT_GE(other["makespan_seconds"], taken["makespan_seconds"]);
  Words narrow = costs;
  for (const char* word : {"--most-live", "4", "--overhead", "0.5"}) narrow.emplace_back(word);
  EXPECT_TRUE(contains(expect_exit(0, narrow).out, "does not fit"));
  const auto kept = nlohmann::json::parse(text("a.json"));
  EXPECT_NE(kept["schedules"][kept["taken"].get<std::size_t>()]["schedule"], "gpipe");
  narrow[narrow.size() - 3] = "0.5";
  EXPECT_TRUE(contains(expect_exit(2, narrow).err, "too few for any of 9 candidates"));
  EXPECT_TRUE(contains(expect_exit(2, {"schedule", "auto", "--overhead", "3", "--text"}).err,
                       "more than the 1 s"));
}

TEST_F(ScheduleVerb, SecondsFollowFromBytesAndRate) {
  expect_exit(0, {"schedule", "gpipe", "--ranks", "2", "--microbatches", "1", "--bytes", "1250000",
                  "--rate", "10mbit", "--json", "b.json"});
  EXPECT_NEAR(nlohmann::json::parse(text("b.json"))["makespan_seconds"].get<double>(), 8, 1e-9);
}

// Two microbatches: the last rank takes twice as long, and the others as before.
TEST_F(ScheduleVerb, SecondsMayDifferByRank) {
  expect_exit(0, {"schedule", "gpipe", "--ranks", "3", "--microbatches", "2", "--forward", "1,1,2",
                  "--backward", "2,2,4", "--json", "r.json"});
  const auto json = nlohmann::json::parse(text("r.json"));
  EXPECT_EQ(json["busy_seconds"].get<std::vector<double>>(), (std::vector<double>{6, 6, 12}));
  EXPECT_NEAR(json["makespan_seconds"].get<double>(), 2 + 12 + 4, 1e-9);
}

TEST_F(ScheduleVerb, ADeadlockIsDrawnAndRefused) {
  write_text(folder_ / "dead.schedule",
             "rank 0: F0 >a0 <g0 B0 F1 >a1 <g1 B1\nrank 1: <a0 F0 <a1 F1 B0 >g0 B1 >g1\n");
  const ProcessResult outcome = expect_exit(2, {"schedule", "dead.schedule"});
  EXPECT_TRUE(contains(outcome.out, "^^^ waits for rank 1")) << outcome.out;
  EXPECT_TRUE(contains(outcome.err, "rank 0, action 2 (<g0)")) << outcome.err;
}

TEST_F(ScheduleVerb, RefusesWithTheReason) {
  write_text(folder_ / "odd.schedule", "rank 0: F0 X1 B0\n");
  write_text(folder_ / "two.schedule", "rank 0: F0 B0\nrank 1: F0 B0\n");
  const struct {
    Words words;
    const char* reason;
  } cases[] = {
      {{"1f1bb"}, "did you mean 1f1b?"},
      {{"nowhere.schedule"}, "nowhere.schedule: does not exist"},
      {{"odd.schedule"}, "odd.schedule, line 1: 'X1' is no action"},
      {{"two.schedule", "--ranks", "3"}, "--ranks: 3 was asked for, and two.schedule has 2"},
      {{"--ranks", "0"}, "--ranks: 0 is not from 1 to 1000"},
      {{"--ranks", "2147483647"}, "--ranks: 2147483647 is not from 1 to 1000"},
      {{"--ranks", "1000", "--microbatches", "1001"}, "are more than 1000000 forwards"},
      {{"--forward", "nan"}, "--forward: nan is not from 0"},
      {{"--forward", "1,1,nan,1"}, "--forward: nan is not from 0"},
      {{"--backward", "1,2,3"}, "--backward: 3 values for 4 ranks"},
      {{"--ratio", "0.5"}, "--ratio: 0.5 is not from 1"},
      {{"--weight-share", "2"}, "--weight-share: 2 is not from 0 to 1"},
      {{"--when", "maybe"}, "always, epilogue, critical, never"},
      {{"--bytes", "10"}, "--bytes: needs --rate"},
      {{"--bytes", "10", "--rate", "unshaped"}, "--rate: 'unshaped' is not a rate"},
      {{"--columns", "39"}, "--columns"},
      {{"--svg", "no/such/x.svg"}, "--svg: the folder"},
      {{"--compare", "gpipe"}, "compares all kinds, not 'gpipe'"},
      {{"interleaved", "--microbatches", "6"}, "6 microbatches are no multiple of 4 ranks"},
      {{"zero_bubble", "--paired"}, "waits for ever for rank"},
      {{"zb_v", "--chunks", "3"}, "12 stages on 4 ranks are 3 chunks each, needs 2"},
  };
  for (const auto& c : cases) {
    Words words = {"schedule"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const ProcessResult outcome = expect_exit(2, words);
    EXPECT_TRUE(contains(outcome.err, c.reason)) << c.reason << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace laconic
