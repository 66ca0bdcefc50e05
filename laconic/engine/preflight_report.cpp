// What a pre-flight found: checks, and how it is told.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/preflight.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

const std::string kCannotTalk = "cannot talk: ";

bool is_known(const RankFacts& facts) {
  return !facts.version.empty();
}

std::string name_of(const RankFacts& facts) {
  return fmt::format("rank {} ({})", facts.rank, facts.host.empty() ? "host unknown" : facts.host);
}

// "rank 0 (a), rank 1 (a) and 6 more"
std::string names_of(const std::vector<const RankFacts*>& ranks) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    names.push_back(name_of(*ranks[i]));
  const std::string more =
      ranks.size() > kShown ? fmt::format(" and {} more", ranks.size() - kShown) : "";
  return join(names, ", ") + more;
}

using Party = std::vector<const RankFacts*>;

// Ranks that agree in `field`, the largest party (and of those the one with the lowest rank) first.
template <class Field>
std::vector<Party> parties(const std::vector<RankFacts>& facts, const Field& field) {
  std::map<std::string, Party> by_value;
  for (const RankFacts& f : facts)
    if (is_known(f)) by_value[field(f)].push_back(&f);
  std::vector<Party> all;
  for (auto& [value, party] : by_value) all.push_back(std::move(party));
  std::sort(all.begin(), all.end(), [](const Party& a, const Party& b) {
    return std::pair(b.size(), a.front()->rank) < std::pair(a.size(), b.front()->rank);
  });
  return all;
}

// "section.key" to value. Lines may stand under a [section] or bring it with them.
std::map<std::string, std::string> keys_of(const std::string& text) {
  std::map<std::string, std::string> keys;
  std::string section;
  for (const std::string& raw : split(text, '\n')) {
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[') {
      section = fmt::format("{}.", trim(line.substr(1, line.find(']') - 1)));
      continue;
    }
    const std::size_t equals = std::min(line.find('='), line.size());
    const std::string_view value = equals < line.size() ? line.substr(equals + 1) : "";
    keys[section + std::string(trim(line.substr(0, equals)))] = trim(value);
  }
  return keys;
}

void check_versions(const std::vector<RankFacts>& facts, Problems& problems) {
  const std::vector<Party> all = parties(facts, [](const RankFacts& f) { return f.version; });
  for (std::size_t i = 1; i < all.size(); ++i)
    problems.push_back({"version", fmt::format("{} run {}, but {} run {}", names_of(all[i]),
                                               printable(all[i].front()->version), names_of(all[0]),
                                               printable(all[0].front()->version))});
}

void compare_configs(const Party& usual, const Party& other, Problems& problems) {
  const auto expected = keys_of(usual.front()->config_text);
  const auto found = keys_of(other.front()->config_text);
  std::set<std::string> keys;
  for (const auto* side : {&expected, &found})
    for (const auto& [key, value] : *side) keys.insert(key);
  const auto text_of = [](const std::map<std::string, std::string>& side, const std::string& key) {
    const auto at = side.find(key);
    return at == side.end() ? "nothing" : printable(at->second);
  };
  const std::size_t before = problems.size();
  for (const std::string& key : keys)
    if (text_of(expected, key) != text_of(found, key))
      problems.push_back(
          {printable(key), fmt::format("is {} on {}, but {} on {}", text_of(found, key),
                                       names_of(other), text_of(expected, key), names_of(usual))});
  if (problems.size() == before)
    problems.push_back(
        {"config",
         fmt::format("{} have another configuration than {}: {} against {}", names_of(other),
                     names_of(usual), printable(other.front()->config_digest),
                     printable(usual.front()->config_digest))});
}

constexpr const char* kPreflight = "pre-flight";

// Runs `read` on the parsed text; whatever does not fit is a FileError.
template <class Read>
auto read_strictly(std::string_view text, const Read& read) {
  const nlohmann::json json = parse_json(text, kPreflight);
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw FileError(kPreflight, "", printable(error.what()), "are all ranks of one version?");
  }
}

std::string text_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json json_of(const RankFacts& f) {
  return {{"rank", f.rank},
          {"host", f.host},
          {"pid", f.pid},
          {"version", f.version},
          {"config_digest", f.config_digest},
          {"config_text", f.config_text}};
}

RankFacts facts_of(const nlohmann::json& json) {
  return {.rank = json.at("rank").get<Rank>(),
          .host = json.at("host").get<std::string>(),
          .pid = json.at("pid").get<int>(),
          .version = json.at("version").get<std::string>(),
          .config_digest = json.at("config_digest").get<std::string>(),
          .config_text = json.at("config_text").get<std::string>()};
}

std::vector<std::vector<double>> table_of(const nlohmann::json& json) {
  std::vector<std::vector<double>> table;
  for (const auto& row : json) {
    table.emplace_back();
    for (const auto& x : row)
      table.back().push_back(x.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                         : x.get<double>());
  }
  return table;
}

std::string cell_of(const PreflightReport& report, std::size_t from, std::size_t to) {
  const double latency = report.latency_ms[from][to];
  const double rate = report.mbit_per_s[from][to];
  if (from == to) return "-";
  if (std::isnan(latency) || std::isnan(rate)) return "?";
  return fmt::format("{:.{}f} / {:.{}f}", latency, latency < 10 ? 2 : 0, rate, rate < 100 ? 1 : 0);
}

// Columns as wide as their widest cell.
std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 1 ? fmt::format("  {:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    text += fmt::format("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text;
}

}  // namespace

Problems check_facts(const std::vector<RankFacts>& facts) {
  Problems problems;
  check_versions(facts, problems);
  const std::vector<Party> all = parties(facts, [](const RankFacts& f) { return f.config_digest; });
  for (std::size_t i = 1; i < all.size(); ++i) compare_configs(all[0], all[i], problems);
  return problems;
}

Problems check_links(const std::vector<LinkFailure>& failures,
                     const std::vector<RankFacts>& facts) {
  std::map<std::pair<Rank, Rank>, std::vector<std::string>> reasons;
  for (const LinkFailure& f : failures)
    reasons[std::minmax(f.at, f.peer)].push_back(fmt::format("rank {}: {}", f.at, f.why));
  Problems problems;
  for (const auto& [pair, why] : reasons)
    problems.push_back(
        {fmt::format("{} and {}", name_of(facts.at(static_cast<std::size_t>(pair.first))),
                     name_of(facts.at(static_cast<std::size_t>(pair.second)))),
         kCannotTalk + join(why, "; ")});
  return problems;
}

bool are_of_links(const Problems& problems) {
  return std::ranges::all_of(
      problems, [](const Problem& problem) { return problem.what.starts_with(kCannotTalk); });
}

std::string to_json(const RankFacts& facts) {
  return text_of(json_of(facts));
}

RankFacts parse_rank_facts(std::string_view json) {
  return read_strictly(json, facts_of);
}

std::string to_json(const PreflightReport& report) {
  nlohmann::json facts = nlohmann::json::array(), problems = nlohmann::json::array();
  for (const RankFacts& f : report.facts) facts.push_back(json_of(f));
  for (const Problem& p : report.problems)
    problems.push_back({{"where", p.where}, {"what", p.what}});
  return text_of({{"facts", facts},
                  {"latency_ms", report.latency_ms},
                  {"mbit_per_s", report.mbit_per_s},
                  {"problems", problems}});
}

PreflightReport parse_preflight_report(std::string_view text) {
  return read_strictly(text, [](const nlohmann::json& json) {
    PreflightReport report;
    for (const auto& f : json.at("facts")) report.facts.push_back(facts_of(f));
    report.latency_ms = table_of(json.at("latency_ms"));
    report.mbit_per_s = table_of(json.at("mbit_per_s"));
    for (const auto& p : json.at("problems"))
      report.problems.push_back(
          {p.at("where").get<std::string>(), p.at("what").get<std::string>()});
    const std::size_t size = report.facts.size();
    for (const auto* table : {&report.latency_ms, &report.mbit_per_s})
      if (table->size() != size || std::any_of(table->begin(), table->end(),
                                               [&](const auto& row) { return row.size() != size; }))
        throw FileError(kPreflight, "latency_ms, mbit_per_s", "is not a square of all ranks");
    return report;
  });
}

std::string to_text(const PreflightReport& report) {
  std::vector<std::vector<std::string>> rows = {{"from", "host"}};
  for (const RankFacts& f : report.facts) rows.front().push_back(fmt::format("to {}", f.rank));
  for (std::size_t from = 0; from < report.facts.size(); ++from) {
    const RankFacts& f = report.facts[from];
    rows.push_back({std::to_string(f.rank), f.host.empty() ? "?" : printable(f.host)});
    for (std::size_t to = 0; to < report.facts.size(); ++to)
      rows.back().push_back(cell_of(report, from, to));
  }
  std::string text = "pre-flight: latency in ms / rate in Mbit/s\n" + align(rows);
  if (!report.problems.empty()) text += to_text(report.problems) + "\n";
  return text;
}

}  // namespace laconic
