#include "laconic/train/steering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/train/policy.hpp"

namespace laconic {

namespace {

// "pp.activation", which is also the section of its policy.
std::string section_of(Traffic traffic) {
  return std::string(name_of(traffic));
}

Traffic class_named(const std::string& name) {
  const auto found = std::ranges::find(kTreatable, name, section_of);
  if (found == std::end(kTreatable))
    throw ConfigError(
        {{"steering", fmt::format("the checkpoint treats '{}', which has no policy", name)}});
  return *found;
}

Problems under(const std::string& section, Problems problems) {
  for (Problem& problem : problems)
    problem.where = problem.where.empty() ? section : section + "." + problem.where;
  return problems;
}

Problems check_link(LinkSpec link, const CodecSpec& codec) {
  if (std::holds_alternative<Raw>(codec))
    return {{"codec", "raw instead of a codec: what shall travel whole is bypassed"}};
  if (std::holds_alternative<Raw>(link.codec))
    return {{"codec", fmt::format("{} instead of raw: messages that lose nothing stay as they are",
                                  to_text(codec))}};
  link.codec = codec;
  Problems problems = check(link);
  for (Problem& problem : problems) problem.where = "codec";
  return problems;
}

bool touches(const std::string& change, Traffic traffic) {
  return change.starts_with(section_of(traffic) + ".") || change.starts_with("mesh.");
}

}  // namespace

Problems check(Traffic traffic, const CodecOverride& treatment, const RunConfig& config) {
  const std::string section = section_of(traffic);
  if (std::ranges::find(kTreatable, traffic) == std::end(kTreatable))
    return {{section, "has no policy that could be changed"}};
  if (treatment.is_bypassed || !treatment.codec) return {};
  switch (traffic) {
    case Traffic::pp_activation:
      return under(section, check_link(activation_link(config), *treatment.codec));
    case Traffic::pp_gradient:
      return under(section, check_link(gradient_link(config), *treatment.codec));
    case Traffic::dp_gradient:
      return under(section, check(treatment, policy_of(config), dtype_of(config),
                                  static_cast<int>(config.mesh.dp)));
    default:
      return under(section,
                   check(treatment, tied_policy_of(config), dtype_of(config),
                         static_cast<int>(config.embedding_tied.fused ? 2 * config.mesh.dp : 2)));
  }
}

std::string to_json(const SteeringState& state) {
  nlohmann::ordered_json json = {{"bypass_decided", state.is_bypass_decided},
                                 {"treatments", nlohmann::ordered_json::object()}};
  for (const auto& [traffic, treatment] : state.treatments)
    json["treatments"][section_of(traffic)] =
        treatment.is_bypassed ? nlohmann::ordered_json{{"bypassed", true}}
                              : nlohmann::ordered_json{{"codec", to_text(*treatment.codec)}};
  if (!state.guard.empty()) json["guard"] = to_json(state.guard);
  return json.dump();
}

SteeringState parse_steering(std::string_view text) {
  if (text.empty()) return {};
  const auto unreadable = [](const std::string& why) {
    return ConfigError({{"steering", "what the checkpoint says of it cannot be read: " + why}});
  };
  SteeringState state;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    state.is_bypass_decided = json.at("bypass_decided").get<bool>();
    for (const auto& [name, entry] : json.at("treatments").items()) {
      CodecOverride& treatment = state.treatments[class_named(name)];
      treatment.is_bypassed = entry.value("bypassed", false);
      if (!treatment.is_bypassed)
        treatment.codec = parse_codec(entry.at("codec").get<std::string>());
    }
    if (json.contains("guard")) state.guard = guard_state_from(json["guard"].get<std::string>());
  } catch (const nlohmann::json::exception& error) {
    throw unreadable(error.what());
  }
  return state;
}

SteeringState still_good(const SteeringState& before, const std::vector<std::string>& changes,
                         const RunConfig& config, std::vector<std::string>& notes) {
  const bool is_steered = config.steering.bypass == "auto" || config.steering.guard == "fallback";
  SteeringState good = before;
  for (const auto& [traffic, treatment] : before.treatments) {
    const bool is_changed = std::ranges::any_of(
        changes, [&, t = traffic](const std::string& change) { return touches(change, t); });
    std::string why;
    if (!is_steered)
      why = "nothing is steered any more";
    else if (is_changed)
      why = "its policy or the mesh has changed";
    else if (const Problems problems = check(traffic, treatment, config); !problems.empty())
      why = problems.front().what;
    if (why.empty()) continue;
    good.treatments.erase(traffic);
    notes.push_back(fmt::format("{} was {} and goes by the configuration again: {}",
                                name_of(traffic), to_text(treatment), why));
  }
  for (const Traffic traffic : kTreatable)
    if (std::ranges::any_of(changes, [&](const std::string& c) { return touches(c, traffic); })) {
      good.is_bypass_decided = false;
      good.guard.erase(traffic);
    }
  // What is not asked, or was taken back, is decided anew once it is asked.
  if (config.steering.bypass != "auto" || good.treatments.size() < before.treatments.size())
    good.is_bypass_decided = false;
  if (config.steering.guard == "off") good.guard.clear();
  return good;
}

Steering::Steering(Pipeline& pipeline, UpdateRule& rule, SteeringState state)
    : pipeline_(pipeline), rule_(rule), state_(std::move(state)) {
  const CodecOverrides treatments = state_.treatments;
  for (const auto& [traffic, treatment] : treatments) treat(traffic, treatment);
}

void Steering::treat(Traffic traffic, const CodecOverride& treatment) {
  pipeline_.treat(traffic, treatment);
  rule_.treat(traffic, treatment);
  if (treatment == CodecOverride{})
    state_.treatments.erase(traffic);
  else
    state_.treatments[traffic] = treatment;
}

CodecOverride Steering::treatment_of(Traffic traffic) const {
  const auto found = state_.treatments.find(traffic);
  return found == state_.treatments.end() ? CodecOverride{} : found->second;
}

}  // namespace laconic
