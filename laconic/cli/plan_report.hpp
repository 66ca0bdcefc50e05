// cli/plan_report.hpp — answers of the planner as text, as JSON and as a configuration. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "laconic/plan/answer.hpp"

namespace laconic {

std::string describe(const PlanAnswers& answers, const PlanRequest& request,
                     const std::string& model);
std::string hosts_text(const Hosts& hosts);  // "4 x l4 (machines), 1gbit"
nlohmann::ordered_json to_json(const PlanAnswers& answers, const PlanRequest& request);
// The plan as a file that `laconic train` takes, with what was predicted in front.
std::string plan_file(const PlanAnswer& plan, const PlanRequest& request, bool has_data);

}  // namespace laconic
