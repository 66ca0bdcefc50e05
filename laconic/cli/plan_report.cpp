#include "laconic/cli/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "laconic/base/quantity.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/plan/pipeline_limit.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

std::string percent_text(const PlanAnswer& plan) {
  if (!plan.is_proven) return "unproven";
  const LossEffect& loss = plan.loss;
  if (loss.most <= 0) return "0 %";
  if (loss.least == loss.most) return fmt::format("+{:.2g} %", loss.loss);
  return fmt::format("+{:.2g} % ({:.2g} to {:.2g})", loss.loss, loss.least, loss.most);
}

std::string fit_text(const Fit& fit) {
  if (fit.has <= 0) return human_bytes(fit.needed);
  return fmt::format("{} of {}", human_bytes(fit.needed), human_bytes(fit.has));
}

std::string rate_text(double bits) {
  if (bits <= 0) return "never";
  if (std::isinf(bits)) return "always";
  const double digits = std::pow(10, std::floor(std::log10(bits)) - 2);
  return "below " + quantity_text(std::round(bits / digits) * digits, kBitUnits);
}

std::string plans_text(const PlanAnswers& answers, const PlanSpace& space) {
  Table table({{""},
               {"step"},
               {"by formulas"},
               {"tokens/s"},
               {"memory"},
               {"loss"},
               {"plan", Align::left},
               {"limited by", Align::left}});
  int number = 0;
  for (const PlanAnswer& plan : answers.plans)
    table.add({std::to_string(++number), fmt::format("{:.3g} s", plan.seconds),
               fmt::format("{:.3g} s", plan.parts.seconds), human_count(plan.tokens_per_second),
               fit_text(plan.fit), percent_text(plan), describe_plan(space, plan.candidate),
               plan.why});
  return to_text(table);
}

// Which plans were simulated otherwise than others, by how.
std::string simulations_text(const PlanAnswers& answers) {
  std::map<std::string, std::vector<std::string>> plans;
  for (std::size_t i = 0; i < answers.plans.size(); ++i) {
    const PlanAnswer& plan = answers.plans[i];
    const std::string number = std::to_string(i + 1);
    if (plan.is_coarse)
      plans["simulated with ranks that are alike as one, and sums in few lanes"].push_back(number);
    if (!plan.unsimulated.empty())
      plans["not simulated, time by formulas: " + plan.unsimulated].push_back(number);
  }
  std::string text;
  for (const auto& [how, numbers] : plans)
    text += fmt::format("{}: {}\n", join(numbers, ", "), how);
  return text.empty() ? text : "\n" + text;
}

// Of a group of plans it is only known what each of them needs at least.
std::string shortage_text(const Shortage& shortage, const PlanSpace& space) {
  const bool is_whole = depth_of(shortage.candidate) == kPlanDims;
  return fmt::format(
      "Nearest is {}{}: {}{}{}, which has {}; {} are missing\n",
      describe_plan(space, shortage.candidate), is_whole ? "" : ", however it goes on",
      is_whole ? "it needs " : "it needs at least ", human_bytes(shortage.fit.needed),
      " on " + shortage.fit.where, human_bytes(shortage.fit.has), human_bytes(shortage.missing()));
}

// Policies that no plan here can have, by the reason.
std::string never_text(const PlanAnswers& answers) {
  using Reason = std::pair<std::string, std::vector<std::string>>;
  std::vector<Reason> reasons;
  for (const BreakEven& row : answers.break_even) {
    if (row.why_not.empty()) continue;
    const std::string why = fmt::format("{}: {}", name_in(kPolicyClassNames, row.of), row.why_not);
    auto known = std::ranges::find(reasons, why, &Reason::first);
    if (known == reasons.end()) known = reasons.emplace(known, why, std::vector<std::string>());
    known->second.push_back(row.policy);
  }
  std::string text = reasons.empty() ? "" : "\nNever here, of messages\n";
  for (const auto& [why, policies] : reasons)
    text += fmt::format("  {} ({})\n", why, join(policies, "; "));
  return text;
}

std::string break_even_text(const PlanAnswers& answers) {
  if (answers.break_even.empty()) return "";
  Table table({{"messages", Align::left},
               {"policy", Align::left},
               {"faster than exact"},
               {"here"},
               {"step, by formulas"},
               {"of the plan", Align::left}});
  for (const BreakEven& row : answers.break_even)
    if (row.why_not.empty())
      table.add({std::string(name_in(kPolicyClassNames, row.of)), row.policy,
                 rate_text(row.bits_per_second), fmt::format("{:.3g}x", row.gain),
                 fmt::format("{:.3g} s", row.seconds), row.plan});
  return fmt::format(
      "\nWhere short messages pay, by the rate of the slowest link (now {}):\n\n{}{}",
      quantity_text(answers.slowest_rate, kBitUnits), to_text(table), never_text(answers));
}

std::string what_if_text(const PlanAnswers& answers) {
  if (answers.what_if.empty() || answers.plans.empty()) return "";
  Table table({{"with", Align::left}, {"step"}, {"speed"}, {"plan", Align::left}});
  const double now = answers.search.plans.front().seconds;
  for (const WhatIf& row : answers.what_if)
    table.add({row.change, fmt::format("{:.3g} s", row.seconds),
               fmt::format("{:.3g}x", now / row.seconds), row.plan});
  return "\nWhat else would buy (by formulas):\n\n" + to_text(table);
}

}  // namespace

std::string hosts_text(const Hosts& hosts) {
  std::vector<std::string> groups;
  for (const HostGroup& group : hosts.groups) {
    std::string text = fmt::format("{} x {} ({})", group.hosts, group.device.name, group.name);
    if (group.ranks_per_host > 1) text += fmt::format(", {} ranks each", group.ranks_per_host);
    if (group.cores > 0) text += fmt::format(", {} cores in all", group.cores);
    text += ", " + quantity_text(group.card.bits_per_second, kBitUnits);
    if (group.uplink) text += ", uplink " + quantity_text(group.uplink->bits_per_second, kBitUnits);
    groups.push_back(text);
  }
  return join(groups, "; ");
}

std::string describe(const PlanAnswers& answers, const PlanRequest& request,
                     const std::string& model) {
  const PlanSpace space = space_of(request);
  std::string text = fmt::format(
      "{}; {} samples of {} tokens a step\nhosts: {}\n\nPredicted, not measured; loss is what was "
      "measured with models of 0.2 to 14 M parameters.\n\n",
      model, request.base.train.batch, context_of(space.family), hosts_text(request.hosts));
  const SearchResult& search = answers.search;
  if (answers.plans.empty())
    return text + fmt::format(
                      "Nothing fits: {} plans and groups of plans are too large, {} cannot be for "
                      "other reasons\n{}",
                      with_commas(search.too_large), with_commas(search.refused),
                      search.nearest ? shortage_text(*search.nearest, space) : "");
  text += plans_text(answers, space) + simulations_text(answers) + break_even_text(answers) +
          what_if_text(answers) + pipeline_warning(space);
  return text +
         fmt::format(
             "\n{} plans timed{}, {} groups of plans opened{}\n", with_commas(search.timed),
             search.too_large > 0 ? fmt::format(" ({} too large)", with_commas(search.too_large))
                                  : "",
             with_commas(search.opened), search.is_complete ? "" : "; there may be better ones");
}

namespace {

nlohmann::ordered_json to_json(const StepTime& t) {
  return {{"seconds", t.seconds}, {"compute", t.compute},   {"codec", t.codec},
          {"bubble", t.bubble},   {"boundary", t.boundary}, {"grid", t.grid},
          {"rows", t.rows},       {"sum", t.sum},           {"tied", t.tied},
          {"update", t.update}};
}

nlohmann::ordered_json to_json(const PlanAnswer& plan, const PlanSpace& space) {
  nlohmann::ordered_json json = {
      {"plan", describe_plan(space, plan.candidate)},
      {"predicted_seconds", plan.seconds},
      {"by_formulas", to_json(plan.parts)},
      {"tokens_per_second", plan.tokens_per_second},
      {"memory", {{"needed", plan.fit.needed}, {"has", plan.fit.has}, {"where", plan.fit.where}}},
      {"loss_percent",
       {{"loss", plan.loss.loss},
        {"least", plan.loss.least},
        {"most", plan.loss.most},
        {"is_proven", plan.is_proven}}},
      {"limited_by", plan.why},
      {"mesh",
       {{"pp", plan.config.mesh.pp}, {"dp", plan.config.mesh.dp}, {"tp", plan.config.mesh.tp}}},
      {"seating", plan.seating},
      {"differences", differences(space.base, plan.config)}};
  if (plan.simulated) {
    json["simulated_seconds"] = *plan.simulated;
    json["simulated_coarsely"] = plan.is_coarse;
  }
  if (!plan.unsimulated.empty()) json["not_simulated"] = plan.unsimulated;
  if (!plan.at_rates.empty()) json["seconds_at_rates"] = plan.at_rates;
  return json;
}

}  // namespace

nlohmann::ordered_json to_json(const PlanAnswers& answers, const PlanRequest& request) {
  const PlanSpace space = space_of(request);
  nlohmann::ordered_json json = {{"command", "plan"}, {"kind", "predicted"}};
  for (const PlanAnswer& plan : answers.plans) json["plans"].push_back(to_json(plan, space));
  if (answers.plans.empty() && answers.search.nearest) {
    const Shortage& nearest = *answers.search.nearest;
    json["nearest"] = {{"plan", describe_plan(space, nearest.candidate)},
                       {"is_whole", depth_of(nearest.candidate) == kPlanDims},
                       {"needed", nearest.fit.needed},
                       {"has", nearest.fit.has},
                       {"where", nearest.fit.where},
                       {"missing", nearest.missing()}};
  }
  for (const BreakEven& row : answers.break_even)
    if (row.why_not.empty())
      json["break_even"].push_back({{"messages", name_in(kPolicyClassNames, row.of)},
                                    {"policy", row.policy},
                                    {"bits_per_second", row.bits_per_second},
                                    {"gain", row.gain},
                                    {"by_formulas", row.seconds},
                                    {"plan", row.plan}});
    else
      json["never"].push_back({{"messages", name_in(kPolicyClassNames, row.of)},
                               {"policy", row.policy},
                               {"why", row.why_not}});
  for (const WhatIf& row : answers.what_if)
    json["what_if"].push_back(
        {{"change", row.change}, {"seconds", row.seconds}, {"plan", row.plan}});
  json["search"] = {{"timed", answers.search.timed},
                    {"opened", answers.search.opened},
                    {"too_large", answers.search.too_large},
                    {"refused", answers.search.refused},
                    {"is_complete", answers.search.is_complete}};
  if (!answers.rates.empty()) json["rates"] = answers.rates;
  return json;
}

std::string plan_file(const PlanAnswer& plan, const PlanRequest& request, bool has_data) {
  std::string text = fmt::format(
      "# Made by `laconic plan` for {}.\n# Predicted: {:.3g} s a step, {} tokens/s, {}.\n",
      hosts_text(request.hosts), plan.seconds, human_count(plan.tokens_per_second),
      plan.why.empty() ? "nothing waits" : plan.why);
  if (!plan.seating.empty()) {
    std::vector<std::string> seats;
    for (const int seat : plan.seating) seats.push_back(std::to_string(seat));
    text += fmt::format("# Seats of ranks 0, 1, ... (numbered by group, then host): {}.\n",
                        join(seats, ", "));
  }
  RunConfig config = plan.config;
  if (!has_data) {
    text += "# data.train is to be filled in.\n";
    config.data.train.clear();
  }
  return text + "\n" + to_toml(config, false);
}

}  // namespace laconic
