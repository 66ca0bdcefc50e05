#include "laconic/engine/preflight.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;
using Edge = std::pair<Rank, Rank>;

// A transport with some bad wires: what goes over one of `cut` vanishes, the rest takes its time.
class BadWires final : public Transport {
 public:
  BadWires(Transport& under, std::set<Edge> cut, double bytes_per_second = 0)
      : under_(under), cut_(std::move(cut)), bytes_per_second_(bytes_per_second) {}

  Rank rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  std::string_view name() const override { return "bad wires"; }
  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    if (cut_.contains({rank(), to})) return;
    if (bytes_per_second_ > 0)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(static_cast<double>(message.size()) / bytes_per_second_));
    under_.send(to, tag, message, deadline);
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return under_.recv(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return under_.try_recv(from, tag); }
  void on_arrival(std::function<void()> wake) override { under_.on_arrival(std::move(wake)); }
  void close() override { under_.close(); }

 private:
  Transport& under_;
  const std::set<Edge> cut_;
  const double bytes_per_second_;
};

RankFacts facts_of(Rank rank) {
  return {.rank = rank,
          .host = fmt::format("host{}", rank / 2),
          .pid = 100 + rank,
          .version = "0.2.0",
          .config_digest = "abc",
          .config_text = "mesh.dp = 2\nmodel.width = 384\n"};
}

std::vector<RankFacts> facts_of_all(int size) {
  std::vector<RankFacts> facts;
  for (Rank r = 0; r < size; ++r) facts.push_back(facts_of(r));
  return facts;
}

// The report of every rank.
std::map<Rank, PreflightReport> fly(int size, const std::set<Edge>& cut = {},
                                    const std::function<void(RankFacts&)>& change = {},
                                    const PreflightOptions& options = {}) {
  std::mutex mutex;
  std::map<Rank, PreflightReport> reports;
  run_ranks(size, [&](Transport& transport) {
    BadWires wires(transport, cut);
    RankFacts mine = facts_of(transport.rank());
    if (change) change(mine);
    PreflightReport report = preflight(wires, mine, options);
    const std::lock_guard lock(mutex);
    reports.emplace(transport.rank(), std::move(report));
  });
  return reports;
}

TEST(Pairings, EverybodyMeetsEverybodyOnceAndNobodyTwoAtOnce) {
  for (int size = 0; size <= 17; ++size) {
    SCOPED_TRACE(size);
    const auto rounds = pairings(size);
    const auto n = static_cast<std::size_t>(size);
    EXPECT_EQ(rounds.size(), size < 2 ? 0 : n - 1 + n % 2);
    std::set<Edge> met;
    for (const auto& round : rounds) {
      std::set<Rank> busy;
      for (const auto& [low, high] : round) {
        EXPECT_TRUE(0 <= low && low < high && high < size) << low << " with " << high;
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second);
        EXPECT_TRUE(met.insert({low, high}).second);
      }
      EXPECT_EQ(round.size(), n / 2);
    }
    EXPECT_EQ(met.size(), size < 2 ? 0 : n * (n - 1) / 2);
  }
}

TEST(CheckFacts, FindsNothingWhenAllAgree) {
  for (int size = 0; size <= 4; ++size) EXPECT_EQ(check_facts(facts_of_all(size)), Problems{});
}

TEST(CheckFacts, NamesWhoRunsAnotherVersion) {
  auto facts = facts_of_all(4);
  facts[2].version = "0.1.0";
  EXPECT_EQ(check_facts(facts),
            (Problems{{"version",
                       "rank 2 (host1) run 0.1.0, but rank 0 (host0), rank 1 (host0), rank 3 "
                       "(host1) run 0.2.0"}}));
}

TEST(CheckFacts, OfEquallyManyTheLowestRankIsRight) {
  auto facts = facts_of_all(2);
  facts[1].version = "0.1.0";
  EXPECT_EQ(check_facts(facts).at(0).what,
            "rank 1 (host0) run 0.1.0, but rank 0 (host0) run 0.2.0");
}

TEST(CheckFacts, NamesEveryKeyThatDiffers) {
  auto facts = facts_of_all(3);
  facts[1].config_digest = "other";
  facts[1].config_text = "# a remark\n[mesh]\ndp = 4\n\n[model]\nwidth = 384\nheads = 6\n";
  facts[2].config_digest = "third";
  facts[2].config_text = "mesh.dp = 2\n";
  EXPECT_EQ(check_facts(facts),
            (Problems{{"mesh.dp", "is 4 on rank 1 (host0), but 2 on rank 0 (host0)"},
                      {"model.heads", "is 6 on rank 1 (host0), but nothing on rank 0 (host0)"},
                      {"model.width", "is nothing on rank 2 (host1), but 384 on rank 0 (host0)"}}));
}

TEST(CheckFacts, ADigestThatDiffersAloneIsAProblemToo) {
  auto facts = facts_of_all(2);
  facts[1].config_digest = "other";
  EXPECT_EQ(check_facts(facts),
            (Problems{{"config",
                       "rank 1 (host0) have another configuration than rank 0 (host0): other "
                       "against abc"}}));
}

TEST(CheckFacts, LeavesOutRanksNobodyHeardOf) {
  auto facts = facts_of_all(3);
  facts[1] = {.rank = 1};
  EXPECT_EQ(check_facts(facts), Problems{});
}

TEST(CheckLinks, BothEndsOfAPairMakeOneProblem) {
  auto facts = facts_of_all(4);
  facts[3].host.clear();
  EXPECT_EQ(check_links({{1, 3, "no answer"}, {0, 2, "refused"}, {3, 1, "no route"}}, facts),
            (Problems{{"rank 0 (host0) and rank 2 (host1)", "cannot talk: rank 0: refused"},
                      {"rank 1 (host0) and rank 3 (host unknown)",
                       "cannot talk: rank 1: no answer; rank 3: no route"}}));
}

TEST(Preflight, FillsTheTableAndTellsEveryRankTheSame) {
  for (int size = 1; size <= 5; ++size) {
    SCOPED_TRACE(size);
    const auto reports = fly(size);
    ASSERT_EQ(reports.size(), static_cast<std::size_t>(size));
    const PreflightReport& report = reports.at(0);
    EXPECT_EQ(report.problems, Problems{});
    for (Rank r = 0; r < size; ++r) {
      const auto row = static_cast<std::size_t>(r);
      RankFacts expected = facts_of(r);
      expected.config_text.clear();
      EXPECT_EQ(report.facts.at(row), expected);
      for (std::size_t to = 0; to < static_cast<std::size_t>(size); ++to) {
        EXPECT_EQ(std::isnan(report.latency_ms.at(row).at(to)), row == to);
        EXPECT_EQ(std::isnan(report.mbit_per_s.at(row).at(to)), row == to);
        if (row == to) continue;
        EXPECT_GT(report.latency_ms[row][to], 0);
        EXPECT_GT(report.mbit_per_s[row][to], 0);
      }
      EXPECT_EQ(to_json(reports.at(r)), to_json(report));
    }
  }
}

TEST(Preflight, MeasuresTheRateOfEachDirection) {
  std::mutex mutex;
  std::map<Rank, PreflightReport> reports;
  run_ranks(2, [&](Transport& transport) {  // 160 and 16 Mbit/s; a sleep may last longer, not less
    BadWires wires(transport, {}, transport.rank() == 0 ? 20e6 : 2e6);
    PreflightReport report = preflight(wires, facts_of(transport.rank()));
    const std::lock_guard lock(mutex);
    reports.emplace(transport.rank(), std::move(report));
  });
  const auto& rates = reports.at(0).mbit_per_s;
  EXPECT_LT(rates[0][1], 170);
  EXPECT_LT(rates[1][0], 17);
}

TEST(Preflight, WhatItSendsIsCounted) {
  std::mutex mutex;
  std::map<Rank, MeterReading> readings;
  run_ranks(3, [&](Transport& transport) {
    Meter meter;
    preflight(transport, facts_of(transport.rank()), {.meter = &meter});
    const std::lock_guard lock(mutex);
    readings[transport.rank()] = meter.read();
  });
  for (const auto& [rank, reading] : readings)
    for (const auto& [to, count] : reading.sent) {
      const Count& taken = readings.at(to.second).received.at({Traffic::preflight, rank});
      EXPECT_EQ(taken.wire_bytes, count.wire_bytes) << rank << " to " << to.second;
      EXPECT_GE(count.wire_bytes, 16U << 10);
    }
  Meter other;
  other.include(readings.at(0));
  other.include(readings.at(0));
  EXPECT_EQ(sent(other.read()).wire_bytes, 2 * sent(readings.at(0)).wire_bytes);
}

TEST(Preflight, MayOnlyCompareFacts) {
  run_ranks(3, [](Transport& transport) {
    const PreflightReport report =
        preflight(transport, facts_of(transport.rank()), {.measure = false});
    EXPECT_EQ(report.problems, Problems{});
    EXPECT_TRUE(std::isnan(report.latency_ms.at(0).at(1)));
    EXPECT_EQ(report.facts.at(2).host, "host1");
  });
}

TEST(Preflight, DifferencesAreToldToEveryRank) {
  const auto reports = fly(4, {}, [](RankFacts& mine) {
    if (mine.rank == 3) mine.version = "0.1.0";
    if (mine.rank == 2) {
      mine.config_digest = "other";
      mine.config_text = "mesh.dp = 2\nmodel.width = 512\n";
    }
  });
  for (const auto& [rank, report] : reports) {
    ASSERT_EQ(report.problems.size(), 2U) << to_text(report.problems);
    EXPECT_EQ(report.problems[0].where, "version");
    EXPECT_EQ(report.problems[1].where, "model.width");
    EXPECT_NE(report.problems[1].what.find("is 512 on rank 2 (host1), but 384 on"),
              std::string::npos);
  }
}

// Each pair of four ranks, cut in one direction, the other or both.
TEST(Preflight, APairThatCannotTalkIsNamedAndNoOther) {
  std::vector<std::thread> flights;  // all at once, since each lasts a deadline
  for (Rank low = 0; low < 4; ++low)
    for (Rank high = low + 1; high < 4; ++high) {
      const Edge there{low, high}, back{high, low};
      const std::string where =
          fmt::format("rank {} (host{}) and rank {} (host{})", low, low / 2, high, high / 2);
      for (const std::set<Edge>& cut : {std::set{there}, std::set{back}, std::set{there, back}})
        flights.emplace_back([where, cut] {
          const PreflightOptions facts_only{.deadline = milliseconds(1500), .measure = false};
          const Problems problems = fly(4, cut, {}, facts_only).at(0).problems;
          EXPECT_EQ(problems.size(), 1U) << where << "\n" << to_text(problems);
          EXPECT_EQ(problems.at(0).where, where);
        });
    }
  for (std::thread& flight : flights) flight.join();
}

TEST(Preflight, AllBrokenPairsAreNamedAtOnceAndTheOthersMeasured) {
  const std::set<Edge> cut = {{1, 2}, {2, 1}, {3, 5}, {4, 5}};
  const auto reports = fly(6, cut, {}, {.deadline = milliseconds(1000)});
  std::vector<std::string> where;
  for (const Problem& problem : reports.at(0).problems) where.push_back(problem.where);
  EXPECT_EQ(where, (std::vector<std::string>{"rank 1 (host0) and rank 2 (host1)",
                                             "rank 3 (host1) and rank 5 (host2)",
                                             "rank 4 (host2) and rank 5 (host2)"}));
  for (Rank from = 0; from < 6; ++from)
    for (Rank to = 0; to < 6; ++to) {
      const bool is_cut = cut.contains({from, to}) || cut.contains({to, from});
      const double latency =
          reports.at(0).latency_ms[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      EXPECT_EQ(std::isnan(latency), is_cut || from == to) << from << ", " << to;
    }
  for (const auto& [rank, report] : reports) EXPECT_EQ(to_json(report), to_json(reports.at(0)));
}

TEST(Preflight, ARankThatIsGoneIsNamedByAll) {
  run_ranks(3, [](Transport& transport) {
    if (transport.rank() == 1) return transport.close();
    const PreflightReport report = preflight(transport, facts_of(transport.rank()));
    ASSERT_EQ(report.problems.size(), 2U) << to_text(report.problems);
    EXPECT_EQ(report.problems[0].where, "rank 0 (host0) and rank 1 (host unknown)");
    EXPECT_EQ(report.problems[1].where, "rank 1 (host unknown) and rank 2 (host1)");
    EXPECT_FALSE(std::isnan(report.mbit_per_s[0][2]));
  });
}

PreflightReport sample_report() {
  const double nan = std::nan("");
  return {.facts = facts_of_all(2),
          .latency_ms = {{nan, 0.125}, {12.25, nan}},
          .mbit_per_s = {{nan, 94.06}, {nan, nan}},
          .problems = {{"version", "differs"}}};
}

TEST(PreflightReport, PrintsAsATable) {
  PreflightReport report = sample_report();
  report.facts[1].host = "far-away";
  EXPECT_EQ(to_text(report),
            "pre-flight: latency in ms / rate in Mbit/s\n"
            "  from  host      to 0         to 1\n"
            "     0  host0        -  0.12 / 94.1\n"
            "     1  far-away     ?            -\n"
            "version: differs\n");
  report.mbit_per_s[1][0] = 940;
  EXPECT_NE(to_text(report).find("12 / 940"), std::string::npos);
}

TEST(PreflightReport, IsReadBackAsItWasWritten) {
  const PreflightReport before = sample_report();
  const PreflightReport after = parse_preflight_report(to_json(before));
  EXPECT_EQ(after.facts, before.facts);
  EXPECT_EQ(after.problems, before.problems);
  EXPECT_EQ(after.latency_ms[0][1], 0.125);
  EXPECT_TRUE(std::isnan(after.latency_ms[0][0]));
  EXPECT_EQ(to_json(after), to_json(before));
}

TEST(PreflightReport, ThatIsNotOneIsRefused) {
  EXPECT_THROW(parse_preflight_report("{}"), FileError);
  EXPECT_THROW(parse_preflight_report("[1"), FileError);
  PreflightReport report = sample_report();
  report.latency_ms.pop_back();
  EXPECT_THROW(parse_preflight_report(to_json(report)), FileError);
  EXPECT_THROW(parse_rank_facts("{\"rank\": \"one\"}"), FileError);
  EXPECT_EQ(parse_rank_facts(to_json(facts_of(3))), facts_of(3));
}

// One would measure and the other would not: nobody waits for that.
TEST(Preflight, RanksThatDifferDoNotMeasure) {
  std::mutex mutex;
  std::vector<PreflightReport> reports;
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(3, [&](Transport& transport) {
    RankFacts mine = facts_of(transport.rank());
    const bool measures = transport.rank() != 1;
    if (!measures) {
      mine.config_digest = "def";
      mine.config_text += "network.preflight = false\n";
    }
    PreflightReport report =
        preflight(transport, mine, {.deadline = std::chrono::seconds(10), .measure = measures});
    const std::lock_guard lock(mutex);
    reports.push_back(std::move(report));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ASSERT_EQ(reports.size(), 3U);
  for (const PreflightReport& report : reports) {
    ASSERT_EQ(report.problems.size(), 1U) << to_text(report.problems);
    EXPECT_EQ(report.problems[0].where, "network.preflight");
    EXPECT_TRUE(std::isnan(report.latency_ms[0][2]));
  }
}

}  // namespace
}  // namespace laconic
