#include "laconic/simulate/scenario.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <numbers>

#include "laconic/base/index.hpp"
#include "laconic/base/philox.hpp"

namespace laconic {

namespace {

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Of a normal distribution; a pure function of (seed, number).
double normal_at(const Key& key, std::uint64_t number) {
  const double u = uniform_at(key, 2 * number), v = uniform_at(key, 2 * number + 1);
  return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

std::optional<Straggler> parse_straggler(std::string_view text) {
  const std::size_t at = text.find('=');
  Straggler straggler;
  if (at == std::string_view::npos || !read_number(text.substr(0, at), straggler.rank) ||
      !read_number(text.substr(at + 1), straggler.factor))
    return std::nullopt;
  return straggler;
}

std::optional<LostRank> parse_lost_rank(std::string_view text) {
  const std::size_t at = text.find('@');
  LostRank lost;
  if (at == std::string_view::npos || !read_number(text.substr(0, at), lost.rank) ||
      !read_number(text.substr(at + 1), lost.step))
    return std::nullopt;
  return lost;
}

namespace {

void check_rank(const char* option, Rank rank, int ranks, Problems& problems) {
  if (rank < 0 || rank >= ranks)
    problems.push_back({option, fmt::format("rank {} of {}", rank, ranks)});
}

void check_straggler(const std::string& text, int ranks, Problems& problems) {
  const std::optional<Straggler> one = parse_straggler(text);
  if (!one) {
    problems.push_back({"--straggler", fmt::format("'{}' is not RANK=FACTOR, as in 3=1.5", text)});
    return;
  }
  check_rank("--straggler", one->rank, ranks, problems);
  if (!(one->factor > 0 && one->factor <= 1e6))
    problems.push_back(
        {"--straggler", fmt::format("a factor of {} is not in 0 to 1000000", one->factor)});
}

void check_lost(const std::string& text, int ranks, Problems& problems) {
  const std::optional<LostRank> lost = parse_lost_rank(text);
  if (!lost) {
    problems.push_back({"--lose", fmt::format("'{}' is not RANK@STEP, as in 3@120", text)});
    return;
  }
  check_rank("--lose", lost->rank, ranks, problems);
  if (lost->step < 0) problems.push_back({"--lose", fmt::format("step {} is below 0", lost->step)});
}

}  // namespace

Problems check(const ScenarioWords& words, int ranks) {
  Problems problems;
  if (!(words.jitter >= 0 && words.jitter <= 10))
    problems.push_back({"--jitter", fmt::format("{} is not in 0 to 10", words.jitter)});
  for (const std::string& text : words.stragglers) check_straggler(text, ranks, problems);
  if (!words.lose.empty()) check_lost(words.lose, ranks, problems);
  return problems;
}

Scenario scenario_of(const ScenarioWords& words) {
  Scenario scenario{.jitter = words.jitter, .seed = words.seed};
  for (const std::string& text : words.stragglers)
    if (const auto one = parse_straggler(text)) scenario.stragglers.push_back(*one);
  scenario.lost = parse_lost_rank(words.lose);
  return scenario;
}

void apply(const Scenario& scenario, RunProgram& program) {
  std::vector<double> factors(index(program.ranks), 1);
  for (const Straggler& one : scenario.stragglers) factors[index(one.rank)] *= one.factor;
  const Key key = derive(key_of(scenario.seed), "jitter");
  std::uint64_t number = 0;
  for (Strand& strand : program.strands) {
    const double factor = factors[index(program.workers[index(strand.worker)].rank)];
    for (StrandAct& act : strand.acts) {
      if (act.op != StrandOp::compute) continue;
      act.seconds *= factor;
      if (scenario.jitter > 0)
        act.seconds *= 1 + scenario.jitter * std::abs(normal_at(key, number++));
    }
  }
}

LossCost cost_of(const LostRank& lost, std::int64_t checkpoint_every, double step_seconds) {
  const std::int64_t repeated = checkpoint_every > 0 ? lost.step % checkpoint_every : lost.step;
  return {repeated, static_cast<double>(repeated) * step_seconds};
}

}  // namespace laconic
