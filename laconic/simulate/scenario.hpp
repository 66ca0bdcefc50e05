// simulate/scenario.hpp — what may go otherwise than planned: ranks that are slow, computations
// that take longer now and then, a rank that is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

struct Straggler {
  Rank rank = 0;
  double factor = 1;  // how many times longer it computes
  bool operator==(const Straggler&) const = default;
};

struct LostRank {
  Rank rank = 0;
  std::int64_t step = 0;
  bool operator==(const LostRank&) const = default;
};

// What somebody has asked for, as it was written.
struct ScenarioWords {
  double jitter = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> stragglers;  // "3=1.5"
  std::string lose;                     // "3@120"; empty: nobody
};

struct Scenario {
  // Each computation takes 1 + jitter |z| times as long, z of a normal distribution.
  double jitter = 0;
  std::uint64_t seed = 1;
  std::vector<Straggler> stragglers = {};
  std::optional<LostRank> lost = {};
  bool changes_ranks() const { return jitter > 0 || !stragglers.empty(); }
};

// Nothing, where the text is no such thing.
std::optional<Straggler> parse_straggler(std::string_view text);
std::optional<LostRank> parse_lost_rank(std::string_view text);

// Everything that is wrong with the words, of a run with so many ranks.
Problems check(const ScenarioWords& words, int ranks);
// Leaves out what check() complains about.
Scenario scenario_of(const ScenarioWords& words);

// Requires: every rank is a class of its own, if the scenario changes_ranks().
void apply(const Scenario& scenario, RunProgram& program);

// What a loss costs: steps since the last checkpoint are made again.
struct LossCost {
  std::int64_t repeated_steps = 0;
  double seconds = 0;  // of those; starting again takes its own time
};
LossCost cost_of(const LostRank& lost, std::int64_t checkpoint_every, double step_seconds);

}  // namespace laconic
