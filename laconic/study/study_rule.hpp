// study/study_rule.hpp — whether what a study file claims came true, from rows alone.
//
// A rule compares two settings where all other settings are alike: each such place is a case. Rows
// of one case are paired by round, so that the luck of a seed is not counted. What one could get
// wrong: a rule of which a pair is missing is neither kept nor broken, unless the pairs that are
// there decide it already.
#pragma once

#include <string>
#include <vector>

#include "laconic/study/study_row.hpp"

namespace laconic {

// One number against another, over the rounds that both have; or against one of the file's, where
// `against` is empty and `right` 0.
struct RulePair {
  std::string of, against, where;  // "A1", "none", "accuracy, 2x2"
  Average left, right, difference;
  bool is_known = false;  // both have a round in common, and two where noise matters
  bool holds = false;
  double apart = 0;  // the more, the worse
};

enum class RuleVerdict : std::uint8_t { kept, broken, undecided };

struct RuleResult {
  std::vector<RulePair> pairs;
  std::size_t kept = 0, missing = 0;
  RuleVerdict verdict = RuleVerdict::undecided;
};

bool holds(const Relation& relation, const Average& left, const Average& right,
           const Average& difference);

// `planned` says which pairs there should be.
RuleResult judge(const Rule& rule, const std::vector<StudyTrial>& planned,
                 const std::vector<StudyRow>& rows);

std::string to_text(RuleVerdict verdict);
// "in 5 of 6 cases; farthest: A1 0.81 against none 0.84 (-3.6 %) at 2x2"
std::string to_text(const RuleResult& result, const MeasureSpec& measure);
// "A1 0.81 against none 0.84 (-3.6 %, n 3) at 2x2"
std::string to_text(const RulePair& pair, const MeasureSpec& measure);

}  // namespace laconic
