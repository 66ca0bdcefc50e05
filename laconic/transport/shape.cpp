#include "laconic/transport/shape.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/transport/clause.hpp"

namespace laconic {

namespace {

struct Scale {
  std::string_view name;
  std::uint64_t factor;
};
// Largest first: printing takes the first that divides.
constexpr std::array<Scale, 4> kRates = {
    {{"gbit", 1'000'000'000}, {"mbit", 1'000'000}, {"kbit", 1000}, {"bit", 1}}};
constexpr std::array<Scale, 3> kTimes = {{{"s", 1'000'000}, {"ms", 1000}, {"us", 1}}};

template <std::size_t N>
std::string print(std::uint64_t value, const std::array<Scale, N>& scales) {
  for (const Scale& scale : scales)
    if (value != 0 && value % scale.factor == 0)
      return fmt::format("{}{}", value / scale.factor, scale.name);
  return fmt::format("0{}", scales.back().name);
}

// "1.5ms" in whole units of the smallest scale; nothing when it is not that.
template <std::size_t N>
std::optional<std::uint64_t> parse(std::string_view text, const std::array<Scale, N>& scales) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Scale& scale : scales) {
    if (scale.name != unit) continue;
    const double value = number * static_cast<double>(scale.factor);
    const double whole = std::round(value);
    // Whole but for the rounding of the text, and within what is printed and parsed exactly.
    if (whole > 1e15 || std::abs(value - whole) > 1e-6) return std::nullopt;
    return static_cast<std::uint64_t>(whole);
  }
  return std::nullopt;
}

Problem not_a(std::string_view thing, const Clause& clause, const Option& option,
              std::string_view example) {
  return {clause.text, fmt::format("{} = '{}' is not a {}, such as {}", option.key,
                                   printable(option.value), thing, example)};
}

void read_time(const Clause& clause, const Option& option, std::chrono::microseconds& time,
               Problems& problems) {
  const auto value = parse(option.value, kTimes);
  if (!value) return problems.push_back(not_a("time", clause, option, "5ms or 250us"));
  time = std::chrono::microseconds(*value);
}

void read_rate(const Clause& clause, const Option& option, std::uint64_t& rate,
               Problems& problems) {
  const auto value =
      option.value == "unlimited" ? std::optional<std::uint64_t>(0) : parse(option.value, kRates);
  const bool is_zero = value == std::uint64_t{0} && option.value != "unlimited";
  if (!value || is_zero)
    return problems.push_back(not_a("rate", clause, option, "100mbit, 1gbit or unlimited"));
  rate = *value;
}

// True when the option is one of a link.
bool read_link_option(const Clause& clause, const Option& option, LinkShape& shape,
                      Problems& problems) {
  if (option.key == "rate")
    read_rate(clause, option, shape.bits_per_second, problems);
  else if (option.key == "latency")
    read_time(clause, option, shape.latency, problems);
  else if (option.key == "jitter")
    read_time(clause, option, shape.jitter, problems);
  else
    return false;
  return true;
}

void read_general(const Clause& clause, ShapeSpec& spec, Problems& problems) {
  for (const Option& option : clause.options) {
    if (read_link_option(clause, option, spec.all, problems)) continue;
    if (option.key == "egress") {
      if (option.value != "link" && option.value != "host")
        problems.push_back(unknown_word(clause, option.value, {"link", "host"}));
      spec.egress = option.value == "host" ? Egress::host : Egress::link;
    } else if (option.key == "seed") {
      const auto seed = parse_whole(option.value);
      if (!seed) problems.push_back(not_a("number", clause, option, "7"));
      spec.seed = seed.value_or(0);
    } else {
      problems.push_back(
          unknown_word(clause, option.key, {"rate", "latency", "jitter", "egress", "seed"}));
    }
  }
}

struct Ends {
  Rank from = 0;
  Rank to = 0;
  bool is_both_ways = false;
};

std::optional<Ends> parse_ends(std::string_view head) {
  const std::size_t at = head.find_first_of("->");
  if (at == std::string_view::npos) return std::nullopt;
  const auto from = parse_whole(trim(head.substr(0, at)));
  const auto to = parse_whole(trim(head.substr(at + 1)));
  constexpr std::uint64_t kLargest = std::numeric_limits<Rank>::max();
  if (!from || !to || *from > kLargest || *to > kLargest) return std::nullopt;
  return Ends{static_cast<Rank>(*from), static_cast<Rank>(*to), head[at] == '-'};
}

void set_link(ShapeSpec& spec, Rank from, Rank to, const LinkShape& shape) {
  spec.links.erase({from, to});
  if (shape != spec.all) spec.links[{from, to}] = shape;  // else it would say nothing
}

void read_link(const Clause& clause, ShapeSpec& spec, Problems& problems) {
  const auto ends = parse_ends(clause.head);
  if (!ends)
    return problems.push_back(
        {clause.text,
         fmt::format("'{}' is not a pair of ranks, such as 0-3 or 0>3", printable(clause.head))});
  LinkShape shape = spec.all;
  for (const Option& option : clause.options)
    if (!read_link_option(clause, option, shape, problems))
      problems.push_back(unknown_word(clause, option.key, {"rate", "latency", "jitter"}));
  set_link(spec, ends->from, ends->to, shape);
  if (ends->is_both_ways) set_link(spec, ends->to, ends->from, shape);
}

// The options in which `shape` differs from `all`.
std::vector<std::string> differences(const LinkShape& shape, const LinkShape& all) {
  std::vector<std::string> parts;
  if (shape.bits_per_second != all.bits_per_second)
    parts.push_back("rate=" + (shape.bits_per_second == 0 ? "unlimited"
                                                          : print(shape.bits_per_second, kRates)));
  const auto add_time = [&](std::string_view key, std::chrono::microseconds time) {
    parts.push_back(
        fmt::format("{}={}", key, print(static_cast<std::uint64_t>(time.count()), kTimes)));
  };
  if (shape.latency != all.latency) add_time("latency", shape.latency);
  if (shape.jitter != all.jitter) add_time("jitter", shape.jitter);
  return parts;
}

void check_link(const LinkShape& shape, const std::string& where, Problems& problems) {
  constexpr std::chrono::microseconds kLongest{3'600'000'000};
  const auto check_time = [&](std::string_view key, std::chrono::microseconds time) {
    if (time.count() < 0 || time > kLongest)
      problems.push_back({where, fmt::format("{} = {} us is outside 0 ... {} us", key, time.count(),
                                             kLongest.count())});
  };
  check_time("latency", shape.latency);
  check_time("jitter", shape.jitter);
}

}  // namespace

const LinkShape& shape_of(const ShapeSpec& spec, Rank from, Rank to) {
  const auto found = spec.links.find({from, to});
  return found == spec.links.end() ? spec.all : found->second;
}

std::chrono::nanoseconds time_on_wire(const LinkShape& shape, std::size_t bytes) {
  if (shape.bits_per_second == 0) return std::chrono::nanoseconds(0);
  const double seconds =
      8.0 * static_cast<double>(bytes) / static_cast<double>(shape.bits_per_second);
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

Problems check(const ShapeSpec& spec, int ranks) {
  Problems problems;
  check_link(spec.all, "network", problems);
  for (const auto& [ends, shape] : spec.links) {
    const auto [from, to] = ends;
    const std::string where = fmt::format("network {}>{}", from, to);
    if (from < 0 || from >= ranks || to < 0 || to >= ranks)
      problems.push_back({where, fmt::format("there are {} ranks only", ranks)});
    if (from == to) problems.push_back({where, "what a rank sends to itself meets no network"});
    if (spec.egress == Egress::host && shape.bits_per_second != spec.all.bits_per_second)
      problems.push_back({where, "with egress=host a link has no rate of its own"});
    check_link(shape, where, problems);
  }
  return problems;
}

std::string to_text(const ShapeSpec& spec) {
  std::vector<std::string> general = differences(spec.all, {});
  if (spec.egress == Egress::host) general.push_back("egress=host");
  if (spec.seed != 0) general.push_back(fmt::format("seed={}", spec.seed));
  std::vector<std::string> clauses;
  if (!general.empty()) clauses.push_back(join(general, ","));
  for (const auto& [ends, shape] : spec.links) {
    const auto [from, to] = ends;
    const bool is_both_ways = shape_of(spec, to, from) == shape;
    if (shape == spec.all || (is_both_ways && to < from)) continue;
    clauses.push_back(fmt::format("{}{}{}: {}", from, is_both_ways ? "-" : ">", to,
                                  join(differences(shape, spec.all), ",")));
  }
  return join(clauses, "; ");
}

ShapeSpec parse_shape(std::string_view text) {
  Problems problems;
  ShapeSpec spec;
  const std::vector<Clause> clauses = parse_clauses(text, problems);
  for (const Clause& clause : clauses)  // first, wherever they stand: the others change them
    if (clause.head.empty()) read_general(clause, spec, problems);
  for (const Clause& clause : clauses)
    if (!clause.head.empty()) read_link(clause, spec, problems);
  refuse(problems);
  return spec;
}

}  // namespace laconic
