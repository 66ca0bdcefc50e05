#include "laconic/report/trace.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "laconic/file/json.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

using std::chrono::microseconds;

Trace::Time at(const Trace::Time& origin, int us) {
  return origin + microseconds(us);
}

TEST(Trace, DisabledRecordsAndWritesNothing) {
  Trace trace;
  { const TraceSpan span(trace, "forward", "compute"); }
  trace.add("a", "b", "c", {}, {});
  EXPECT_FALSE(trace.is_enabled());
  EXPECT_TRUE(trace.summary().empty());
  EXPECT_EQ(trace.dropped(), 0u);
}

TEST(Trace, SummaryAddsUpPerCategoryAndName) {
  Trace trace(0);
  const auto now = std::chrono::steady_clock::now();
  trace.add("forward", "compute", "compute", now, at(now, 100));
  trace.add("backward", "compute", "compute", now, at(now, 400));
  trace.add("forward", "compute", "compute", now, at(now, 200));
  trace.add("forward", "comm", "link", now, at(now, 5));
  const auto totals = trace.summary();
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0], (TraceTotal{"comm", "forward", 1, 5e-6}));
  EXPECT_EQ(totals[1].name, "backward");
  EXPECT_EQ(totals[2].name, "forward");
  EXPECT_EQ(totals[2].count, 2u);
  EXPECT_NEAR(totals[2].seconds, 300e-6, 1e-12);
}

TEST(Trace, FileIsWhatChromeReads) {
  const TemporaryFolder folder;
  Trace trace(3);
  const auto now = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  trace.add("for\"ward", "compute", "gpu", now, at(now, 1500));
  trace.add("send", "comm", "link", now, at(now, 10));
  trace.add("early", "comm", "link", {}, {});  // before the trace began
  trace.write(folder / "trace.json");
  const nlohmann::json file = read_json(folder / "trace.json");
  EXPECT_EQ(file["otherData"]["rank"], 3);
  EXPECT_EQ(file["otherData"]["dropped_events"], 0);
  std::map<std::string, nlohmann::json> by_name;
  std::map<int, std::string> tracks;
  for (const auto& event : file["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
    by_name[event["name"]] = event;
  }
  EXPECT_EQ(by_name["process_name"]["args"]["name"], "rank 3");
  EXPECT_EQ(by_name["for\"ward"]["ph"], "X");
  EXPECT_EQ(by_name["for\"ward"]["cat"], "compute");
  EXPECT_EQ(by_name["for\"ward"]["dur"], 1500.0);
  EXPECT_GT(by_name["for\"ward"]["ts"], 900'000.0);
  EXPECT_EQ(by_name["early"]["ts"], 0.0);
  EXPECT_EQ(tracks[by_name["for\"ward"]["tid"]], "gpu");
  EXPECT_EQ(tracks[by_name["send"]["tid"]], "link");
}

TEST(Trace, AnEmptyTraceIsStillAFile) {
  const TemporaryFolder folder;
  Trace(0).write(folder / "trace.json");
  EXPECT_EQ(read_json(folder / "trace.json")["traceEvents"].size(), 1u);
}

TEST(Trace, MemoryIsBoundedAndTheSummaryIsNot) {
  Trace trace(0, 10);
  for (int i = 0; i < 25; ++i) const TraceSpan span(trace, "step", "compute");
  EXPECT_EQ(trace.dropped(), 15u);
  EXPECT_EQ(trace.summary()[0].count, 25u);
}

TEST(Trace, NamesWithoutEndAreGathered) {
  Trace trace(0, 10);
  for (int i = 0; i < 30'000; ++i) trace.add("step " + std::to_string(i), "c", "t", {}, {});
  EXPECT_LE(trace.summary().size(), 10'001u);
  EXPECT_EQ(trace.summary()[0].category, "c");
}

TEST(Trace, ThreadsMayRecordWhileOthersRead) {
  const TemporaryFolder folder;
  Trace trace(0);
  constexpr int kThreads = 4, kSpans = 500;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&trace, track = "track " + std::to_string(t)] {
        for (int i = 0; i < kSpans; ++i) {
          const TraceSpan outer(trace, "outer", "compute", track);
          const TraceSpan inner(trace, "inner", "compute", track);
        }
      });
    }
    for (int i = 0; i < 5; ++i) {
      trace.write(folder / "trace.json");
      trace.summary();
      trace.dropped();
    }
  }
  for (const TraceTotal& total : trace.summary())
    EXPECT_EQ(total.count, static_cast<std::uint64_t>(kThreads) * kSpans);
  trace.write(folder / "trace.json");
  const auto events = read_json(folder / "trace.json")["traceEvents"];
  EXPECT_EQ(events.size(), 1u + 2u * kThreads + 2u * kThreads * kSpans);  // two about each track
}

// Spans of a row, in order; by the name of the row.
std::map<std::string, std::vector<nlohmann::json>> rows_of(const nlohmann::json& file) {
  std::map<int, std::string> names;
  for (const auto& event : file["traceEvents"])
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  std::map<std::string, std::vector<nlohmann::json>> rows;
  for (const auto& event : file["traceEvents"])
    if (event["ph"] == "X") rows[names.at(event["tid"])].push_back(event);
  return rows;
}

TEST(Trace, SpansThatOverlapGetRowsOfTheirOwn) {
  const TemporaryFolder folder;
  Trace trace(0);
  const auto now = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const auto add = [&](const char* name, int begin, int end) {
    trace.add(name, "message", "link", at(now, begin), at(now, end), {.may_overlap = true});
  };
  add("b", 50, 150);  // ends after c, which was told before
  add("a", 0, 100);
  add("c", 100, 140);
  add("d", 160, 170);
  trace.write(folder / "trace.json");
  auto rows = rows_of(read_json(folder / "trace.json"));
  ASSERT_EQ(rows.size(), 2u);
  const auto names = [&](const std::string& row) {
    std::set<std::string> all;
    for (const auto& event : rows[row]) all.insert(event["name"].get<std::string>());
    return all;
  };
  EXPECT_EQ(names("link"), (std::set<std::string>{"a", "c", "d"}));
  EXPECT_EQ(names("link (2)"), (std::set<std::string>{"b"}));
}

TEST(Trace, ArrowsHaveTwoEndsInsideTheirSpans) {
  const TemporaryFolder folder;
  Trace trace(0);
  const auto now = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  trace.add("message", "recv", "link", now, at(now, 80),
            {.may_overlap = true, .args = R"("peer":1,"what":"a \"b\"")", .flow_out = 7});
  trace.add("nobody waits", "recv", "link", now, at(now, 80), {.may_overlap = true, .flow_out = 9});
  trace.add("wait", "wait", "compute", at(now, 10), at(now, 81), {.flow_in = 7});
  trace.write(folder / "trace.json");
  const nlohmann::json file = read_json(folder / "trace.json");
  auto rows = rows_of(file);
  EXPECT_EQ(rows["link"][0]["args"]["peer"], 1);
  EXPECT_EQ(rows["link"][0]["args"]["what"], "a \"b\"");
  std::map<std::string, nlohmann::json> ends;
  for (const auto& event : file["traceEvents"])
    if (event.value("cat", "") == "flow") {
      EXPECT_EQ(event["id"], "7");
      EXPECT_TRUE(ends.emplace(event["ph"], event).second);
    }
  ASSERT_EQ(ends.size(), 2u);
  for (const auto& [phase, span] : {std::pair{"s", rows["link"][0]}, {"f", rows["compute"][0]}}) {
    const double from = span["ts"], time = ends[phase]["ts"];
    EXPECT_EQ(ends[phase]["tid"], span["tid"]);
    EXPECT_GT(time, from);
    EXPECT_LT(time, from + span["dur"].get<double>());
  }
}

}  // namespace
}  // namespace laconic
