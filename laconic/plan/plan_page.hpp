// plan/plan_page.hpp — the planner's answers as one page of HTML that needs nothing else: no
// network, no other file. A slider moves the links' rate, and curves and the order of plans follow.
#pragma once

#include <string>
#include <vector>

#include "laconic/plan/answer.hpp"

namespace laconic {

struct PlanPage {
  std::string model;  // for the title
  std::string hosts;
  // By plan of the answers: its name and its picture (a complete SVG document; may be empty).
  std::vector<std::string> names;
  std::vector<std::string> pictures;
};

// Requires: as many names and pictures as plans; answers have curves.
std::string plan_page(const PlanAnswers& answers, const PlanPage& page);

}  // namespace laconic
