#include "laconic/transport/fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/transport/clause.hpp"

namespace laconic {

namespace {

struct KindText {
  std::string_view name;
  std::string_view amount;  // the option that says how much; empty: there is none
};
constexpr std::array<KindText, 6> kKinds = {{{"drop", ""},
                                             {"flip", "bit"},
                                             {"truncate", "bytes"},
                                             {"delay", "ms"},
                                             {"close", ""},
                                             {"kill", ""}}};
constexpr std::uint64_t kLongestDelay = 3'600'000;

const KindText& text_of(FaultKind kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

std::optional<FaultKind> kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    if (kKinds[i].name == name) return static_cast<FaultKind>(i);
  return std::nullopt;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const KindText& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::vector<std::string> traffic_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kTrafficClasses; ++i) names.emplace_back(name_of(static_cast<Traffic>(i)));
  return names;
}

std::vector<std::string> option_names(FaultKind kind) {
  std::vector<std::string> names = {"at", "rank", "to", "traffic"};
  if (!text_of(kind).amount.empty()) names.emplace_back(text_of(kind).amount);
  return names;
}

void read_traffic(const Clause& clause, const Option& option, FaultSpec& fault,
                  Problems& problems) {
  fault.traffic = traffic_named(option.value);
  if (!fault.traffic) problems.push_back(unknown_word(clause, option.value, traffic_names()));
}

void read_number(const Clause& clause, const Option& option, FaultSpec& fault, Problems& problems) {
  const bool is_rank = option.key == "rank" || option.key == "to";
  const auto value = parse_whole(option.value);
  if (!value || (is_rank && *value > std::numeric_limits<Rank>::max()))
    return problems.push_back({clause.text, fmt::format("{} = '{}' is not a number", option.key,
                                                        printable(option.value))});
  if (option.key == "at")
    fault.at = *value;
  else if (option.key == "rank")
    fault.rank = static_cast<Rank>(*value);
  else if (option.key == "to")
    fault.to = static_cast<Rank>(*value);
  else
    fault.amount = *value;
}

void require_options(const Clause& clause, FaultKind kind, Problems& problems) {
  for (const std::string_view key : {std::string_view("at"), text_of(kind).amount})
    if (!key.empty() &&
        std::ranges::none_of(clause.options, [&](const Option& o) { return o.key == key; }))
      problems.push_back({clause.text, fmt::format("'{}=' is missing", key)});
}

void read_fault(const Clause& clause, FaultSpecs& faults, Problems& problems) {
  const auto kind = kind_named(clause.head);
  if (!kind) return problems.push_back(unknown_word(clause, clause.head, kind_names()));
  FaultSpec fault{.kind = *kind};
  const std::vector<std::string> known = option_names(*kind);
  for (const Option& option : clause.options)
    if (std::ranges::count(known, option.key) == 0)
      problems.push_back(unknown_word(clause, option.key, known));
    else if (option.key == "traffic")
      read_traffic(clause, option, fault, problems);
    else
      read_number(clause, option, fault, problems);
  require_options(clause, *kind, problems);
  faults.push_back(fault);
}

std::string text_of(const FaultSpec& fault) {
  std::string text = fmt::format("{}:at={}", text_of(fault.kind).name, fault.at);
  if (fault.rank) text += fmt::format(",rank={}", *fault.rank);
  if (fault.to) text += fmt::format(",to={}", *fault.to);
  if (fault.traffic) text += fmt::format(",traffic={}", name_of(*fault.traffic));
  if (!text_of(fault.kind).amount.empty())
    text += fmt::format(",{}={}", text_of(fault.kind).amount, fault.amount);
  return text;
}

void flip(Bytes& message, std::uint64_t bit) {
  if (message.empty()) return;
  bit %= std::uint64_t{8} * message.size();
  message[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
}

}  // namespace

bool concerns(const FaultSpec& fault, Rank from, Rank to, Tag tag) {
  return (!fault.rank || *fault.rank == from) && (!fault.to || *fault.to == to) &&
         (!fault.traffic || *fault.traffic == fields_of(tag).traffic);
}

FaultSpecs strike(const FaultSpecs& faults, std::vector<std::uint64_t>& counts, Rank from, Rank to,
                  Tag tag) {
  FaultSpecs struck;
  for (std::size_t i = 0; i < faults.size(); ++i)
    if (concerns(faults[i], from, to, tag) && counts.at(i)++ == faults[i].at)
      struck.push_back(faults[i]);
  return struck;
}

std::optional<Bytes> damaged(const FaultSpecs& faults, ByteView message) {
  Bytes rest = copy_of(message);
  for (const FaultSpec& fault : faults) {
    if (fault.kind == FaultKind::drop) return std::nullopt;
    if (fault.kind == FaultKind::flip) flip(rest, fault.amount);
    if (fault.kind == FaultKind::truncate)
      rest.resize(rest.size() - std::min<std::uint64_t>(fault.amount, rest.size()));
  }
  return rest;
}

Problems check(const FaultSpecs& faults, int ranks) {
  Problems problems;
  for (const FaultSpec& fault : faults) {
    const std::string where = text_of(fault);
    for (const std::optional<Rank>& rank : {fault.rank, fault.to})
      if (rank && (*rank < 0 || *rank >= ranks))
        problems.push_back({where, fmt::format("there is no rank {} among {}", *rank, ranks)});
    if (fault.kind == FaultKind::truncate && fault.amount == 0)
      problems.push_back({where, "no byte less is no fault"});
    if (fault.kind == FaultKind::delay && (fault.amount == 0 || fault.amount > kLongestDelay))
      problems.push_back({where, fmt::format("ms is outside 1 ... {}", kLongestDelay)});
  }
  return problems;
}

std::string to_text(const FaultSpecs& faults) {
  std::vector<std::string> parts;
  for (const FaultSpec& fault : faults) parts.push_back(text_of(fault));
  return join(parts, "; ");
}

FaultSpecs parse_faults(std::string_view text) {
  Problems problems;
  FaultSpecs faults;
  for (const Clause& clause : parse_clauses(text, problems)) read_fault(clause, faults, problems);
  refuse(problems);
  return faults;
}

}  // namespace laconic
