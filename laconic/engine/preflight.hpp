// engine/preflight.hpp — before step 0: can these ranks work together, and how fast are their
// links?
//
//   const PreflightReport report = preflight(transport, facts, options);   // on every rank
//   refuse(report.problems);    // or a lost rank, where are_of_links(report.problems)
//   if (transport.rank() == 0) print(to_text(report));
//
// Three acts, straight over the transport (no engine yet) and in the traffic
// class `preflight`:
//
//   1. every rank tells every other who it is; a pair that cannot talk shows here
//   2. if all were told the same, pairs measure their link in rounds, so that no two
//      measurements share a rank
//   3. rank 0 gathers what was found and tells all
//
// Nothing ends it early: a pair that fails is noted and left out, so that the
// user sees every broken link, version and key at once. Measuring a pair takes
// about 0.3 s at 20 Mbit/s by arithmetic, and less on anything faster.
//
// Requires: all ranks call it together, before anything else uses the transport.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/engine/meter.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

struct RankFacts {
  Rank rank = 0;
  std::string host;
  int pid = 0;
  std::string version;
  std::string config_digest;
  std::string config_text;  // one key a line, so that differences can be named
  bool operator==(const RankFacts&) const = default;
};
std::string to_json(const RankFacts& facts);
RankFacts parse_rank_facts(std::string_view json);  // throws FileError

// Every difference between ranks that may not be, with the ranks and hosts it is between. What
// most ranks have (the lowest rank's, of equally many) counts as right. Pure.
Problems check_facts(const std::vector<RankFacts>& facts);

// Rounds of disjoint pairs in which everybody meets everybody once: size - 1 rounds, or size when
// it is odd (one rank rests in each). Pure.
std::vector<std::vector<std::pair<Rank, Rank>>> pairings(int size);

struct PreflightOptions {
  // Deadline of the first act. Later acts wait a few times as long, for ranks that others held up.
  std::chrono::milliseconds deadline{30'000};
  bool measure = true;     // false: facts only
  Meter* meter = nullptr;  // counts what this rank sends and takes, if there is one
};

// A pair that could not do its part of the pre-flight, as one of them saw it.
struct LinkFailure {
  Rank at = 0;
  Rank peer = 0;
  std::string why;
  bool operator==(const LinkFailure&) const = default;
};
// One problem for each pair, whoever of the two noticed. Pure.
Problems check_links(const std::vector<LinkFailure>& failures, const std::vector<RankFacts>& facts);
// Whether all of these are pairs that cannot talk: then it may go well next time. Pure.
bool are_of_links(const Problems& problems);

struct PreflightReport {
  // By rank, without config_text; only `rank` is set where none came.
  std::vector<RankFacts> facts;
  // [from][to], NaN where nothing was measured. Latency is one way: half the median of some round
  // trips. The rate is that of the longest message sent, which took 30 ms or had 4 MiB.
  std::vector<std::vector<double>> latency_ms;
  std::vector<std::vector<double>> mbit_per_s;
  Problems problems;  // why the run must not begin
};

// Throws nothing about peers: what is wrong with them is in the report. Every rank that can be
// reached returns the same report; one that rank 0 cannot reach returns what it knows itself.
PreflightReport preflight(Transport& transport, const RankFacts& mine,
                          const PreflightOptions& options = {});

std::string to_text(const PreflightReport& report);
std::string to_json(const PreflightReport& report);
PreflightReport parse_preflight_report(std::string_view json);  // throws FileError

}  // namespace laconic
