#include "laconic/transport/clause.hpp"

#include <fmt/format.h>

#include <charconv>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

void parse_options(std::string_view text, Clause& clause, Problems& problems) {
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      problems.push_back({clause.text, fmt::format("'{}' is not key=value", trim(part))});
      continue;
    }
    const std::string_view option = part;
    clause.options.push_back({std::string(trim(option.substr(0, equals))),
                              std::string(trim(option.substr(equals + 1)))});
  }
}

Clause parse_clause(std::string_view text, Problems& problems) {
  Clause clause{.text = printable(text)};
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    clause.head = trim(text.substr(0, colon));
    text.remove_prefix(colon + 1);
  } else if (text.find('=') == std::string_view::npos) {
    clause.head = text;
    return clause;
  }
  parse_options(text, clause, problems);
  return clause;
}

}  // namespace

std::vector<Clause> parse_clauses(std::string_view text, Problems& problems) {
  std::vector<Clause> clauses;
  for (const std::string& part : split(text, ';'))
    if (!trim(part).empty()) clauses.push_back(parse_clause(trim(part), problems));
  return clauses;
}

std::optional<std::uint64_t> parse_whole(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Problem unknown_word(const Clause& clause, std::string_view word,
                     const std::vector<std::string>& known) {
  const std::string meant = nearest(word, known);
  return {clause.text, fmt::format("'{}' is unknown{}", printable(word),
                                   meant.empty() ? fmt::format("; there are {}", join(known, ", "))
                                                 : fmt::format(", did you mean '{}'?", meant))};
}

}  // namespace laconic
