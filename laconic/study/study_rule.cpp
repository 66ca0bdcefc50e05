#include "laconic/study/study_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

using Settings = std::map<std::string, std::string>;

// Settings of the axes that a rule names, and of the others.
std::string names_of(const Settings& settings, const Choice& choice, bool are_named) {
  std::vector<std::string> names;
  for (const auto& [axis, setting] : settings)
    if (choice.contains(axis) == are_named) names.push_back(setting);
  return join(names, ", ");
}

// Both sides of a rule name the same axes, or one says less.
Choice axes_of(const Rule& rule) {
  Choice axes = rule.of;
  axes.insert(rule.against.begin(), rule.against.end());
  return axes;
}

struct Side {
  std::string part;
  Settings settings;
  bool operator<(const Side& other) const {
    return std::tie(part, settings) < std::tie(other.part, other.settings);
  }
};

std::vector<Side> sides_of(const Rule& rule, const Choice& choice,
                           const std::vector<StudyTrial>& planned) {
  std::vector<Side> sides;
  std::set<Side> seen;
  for (const StudyTrial& one : planned) {
    if (!rule.parts.empty() &&
        std::find(rule.parts.begin(), rule.parts.end(), one.trial.part) == rule.parts.end())
      continue;
    const Side side{one.trial.part, one.settings};
    if (fits(choice, one.settings) && fits(rule.where, one.settings) && seen.insert(side).second)
      sides.push_back(side);
  }
  return sides;
}

bool is_same_case(const Side& a, const Side& b, const Choice& axes) {
  if (a.part != b.part) return false;
  return std::all_of(a.settings.begin(), a.settings.end(), [&](const auto& entry) {
    const auto other = b.settings.find(entry.first);
    return axes.contains(entry.first) ||
           (other != b.settings.end() && other->second == entry.second);
  });
}

std::map<int, double> values_of(const Side& side, const std::string& measure,
                                const std::vector<StudyRow>& rows) {
  std::map<int, double> values;
  for (const StudyRow& row : rows)
    if (row.part == side.part && row.settings == side.settings && row.failure.empty())
      if (const auto found = row.measures.find(measure);
          found != row.measures.end() && std::isfinite(found->second))
        values[row.round] = found->second;
  return values;
}

double share_of(const RulePair& pair) {
  return pair.right.mean != 0 ? pair.difference.mean / std::abs(pair.right.mean) : 0;
}

// How near to breaking a relation, or how far beyond, a number is that should be above or below.
double apart_by(const Relation& relation, double above) {
  if (relation.side == Relation::Side::within) return std::abs(above);
  const double by = relation.side == Relation::Side::above ? above : -above;
  return relation.is_at_most ? by : -by;
}

RulePair pair_of(const Rule& rule, const Side& of, const Side& against, const Choice& axes,
                 const std::vector<StudyRow>& rows) {
  const std::string place = names_of(of.settings, axes, false);
  RulePair pair{.of = names_of(of.settings, axes, true),
                .against = names_of(against.settings, axes, true),
                .where = place.empty() ? of.part : of.part + ", " + place};
  const auto left = values_of(of, rule.measure, rows);
  const auto right = values_of(against, rule.measure, rows);
  std::vector<double> lefts, rights, differences;
  for (const auto& [round, value] : left)
    if (const auto other = right.find(round); other != right.end()) {
      lefts.push_back(value);
      rights.push_back(other->second);
      differences.push_back(value - other->second);
    }
  pair.left = average_of(lefts);
  pair.right = average_of(rights);
  pair.difference = average_of(differences);
  pair.is_known = differences.size() >= (rule.relation.has_noise ? 2u : 1u);
  pair.holds = pair.is_known && holds(rule.relation, pair.left, pair.right, pair.difference);
  pair.apart = apart_by(rule.relation, share_of(pair));
  return pair;
}

}  // namespace

bool holds(const Relation& relation, const Average& left, const Average& right,
           const Average& difference) {
  const double noise =
      relation.has_noise && difference.count > 1
          ? 2 * difference.deviation / std::sqrt(static_cast<double>(difference.count))
          : 0;
  const double margin = relation.margin * (relation.is_share ? std::abs(right.mean) : 1);
  const double above = left.mean - right.mean;
  if (relation.side == Relation::Side::within) return std::abs(above) <= margin + noise;
  const double by = relation.side == Relation::Side::above ? above : -above;
  if (relation.is_at_most) return by <= margin + noise;
  return margin > 0 ? by >= margin - noise : by > -noise;
}

namespace {

// The pair of a side that is compared with a number: 0, to which the margin is added.
RulePair pair_of(const Rule& rule, const Side& of, const std::vector<StudyRow>& rows) {
  RulePair pair{.of = names_of(of.settings, rule.of, true),
                .where = of.part + (of.settings.size() > rule.of.size() ? ", " : "") +
                         names_of(of.settings, rule.of, false)};
  std::vector<double> values;
  for (const auto& [round, value] : values_of(of, rule.measure, rows)) values.push_back(value);
  pair.left = pair.difference = average_of(values);
  pair.is_known = values.size() >= (rule.relation.has_noise ? 2u : 1u);
  pair.apart = apart_by(rule.relation, pair.left.mean);
  pair.holds = pair.is_known && holds(rule.relation, pair.left, pair.right, pair.difference);
  return pair;
}

}  // namespace

RuleResult judge(const Rule& rule, const std::vector<StudyTrial>& planned,
                 const std::vector<StudyRow>& rows) {
  RuleResult result;
  const Choice axes = axes_of(rule);
  const std::vector<Side> others = sides_of(rule, rule.against, planned);
  for (const Side& of : sides_of(rule, rule.of, planned)) {
    if (rule.relation.is_to_number) result.pairs.push_back(pair_of(rule, of, rows));
    if (rule.relation.is_to_number) continue;
    for (const Side& against : others)
      if (is_same_case(of, against, axes) && is_same_case(against, of, axes) &&
          of.settings != against.settings)
        result.pairs.push_back(pair_of(rule, of, against, axes, rows));
  }
  for (const RulePair& pair : result.pairs) {
    result.kept += pair.holds ? 1 : 0;
    result.missing += pair.is_known ? 0 : 1;
  }
  const std::size_t wanted = rule.cases > 0 ? rule.cases : result.pairs.size();
  if (result.pairs.empty())
    result.verdict = RuleVerdict::undecided;
  else if (result.kept >= wanted)
    result.verdict = RuleVerdict::kept;
  else if (result.kept + result.missing < wanted)
    result.verdict = RuleVerdict::broken;
  return result;
}

std::string to_text(RuleVerdict verdict) {
  return verdict == RuleVerdict::kept     ? "kept"
         : verdict == RuleVerdict::broken ? "**broken**"
                                          : "cannot be judged";
}

std::string to_text(const RuleResult& result, const MeasureSpec& measure) {
  if (result.pairs.empty()) return "no part has both settings";
  std::string text = fmt::format("in {} of {} cases", result.kept, result.pairs.size());
  if (result.missing > 0) {
    const auto first = std::find_if(result.pairs.begin(), result.pairs.end(),
                                    [](const RulePair& pair) { return !pair.is_known; });
    text += fmt::format("; {} not measured, as {}{}{} at {}", result.missing, first->of,
                        first->against.empty() ? "" : " against ", first->against, first->where);
  }
  const RulePair* worst = nullptr;  // of those that do not hold, or else of all
  for (const bool is_broken : {true, false})
    for (const RulePair& pair : result.pairs)
      if (pair.is_known && is_broken != pair.holds &&
          (worst == nullptr || (worst->holds == pair.holds && pair.apart > worst->apart)))
        worst = &pair;
  if (worst == nullptr) return text;
  return text + fmt::format("; {}: {}", worst->holds ? "as" : "farthest", to_text(*worst, measure));
}

std::string to_text(const RulePair& pair, const MeasureSpec& measure) {
  if (pair.against.empty())
    return fmt::format("{} {} at {}", pair.of, to_text(pair.left, measure), pair.where);
  return fmt::format("{} {} against {} {} ({:+.2f} %, n {}) at {}", pair.of,
                     to_text(pair.left.mean, measure), pair.against,
                     to_text(pair.right.mean, measure), 100 * share_of(pair), pair.difference.count,
                     pair.where);
}

}  // namespace laconic
