#include "laconic/steer/steering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/policy/class_policy.hpp"

namespace laconic {

namespace {

// "pp.activation", which is also the section of its policy.
std::string section_of(Traffic traffic) {
  return std::string(name_of(traffic));
}

Traffic class_named(const std::string& name) {
  const std::optional<Traffic> traffic = traffic_named(name);
  if (!traffic || std::ranges::find(kClassesWithPolicy, *traffic) == kClassesWithPolicy.end())
    throw ConfigError(
        {{"steering", fmt::format("the checkpoint treats '{}', which has no policy", name)}});
  return *traffic;
}

bool touches(const std::string& change, Traffic traffic) {
  return change.starts_with(section_of(traffic) + ".") || change.starts_with("mesh.");
}

}  // namespace

std::string to_json(const SteeringState& state) {
  nlohmann::ordered_json json = {{"bypass_decided", state.is_bypass_decided},
                                 {"treatments", nlohmann::ordered_json::object()}};
  for (const auto& [traffic, codec_override] : state.overrides)
    json["treatments"][section_of(traffic)] =
        codec_override.is_bypassed
            ? nlohmann::ordered_json{{"bypassed", true}}
            : nlohmann::ordered_json{{"codec", to_text(*codec_override.codec)}};
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
      CodecOverride& codec_override = state.overrides[class_named(name)];
      codec_override.is_bypassed = entry.value("bypassed", false);
      if (!codec_override.is_bypassed)
        codec_override.codec = parse_codec(entry.at("codec").get<std::string>());
    }
    if (json.contains("guard")) state.guard = guard_state_from(json["guard"].get<std::string>());
  } catch (const nlohmann::json::exception& error) {
    throw unreadable(error.what());
  }
  return state;
}

SteeringState still_good(const SteeringState& before, const std::vector<std::string>& changes,
                         const RunConfig& config, std::vector<std::string>& notes) {
  const bool is_steered = config.steering.bypass == BypassMode::automatic ||
                          config.steering.guard == GuardMode::fallback;
  SteeringState good = before;
  for (const auto& [traffic, codec_override] : before.overrides) {
    const bool is_changed = std::ranges::any_of(
        changes, [&, t = traffic](const std::string& change) { return touches(change, t); });
    std::string why;
    if (!is_steered)
      why = "nothing is steered any more";
    else if (is_changed)
      why = "its policy or the mesh has changed";
    else if (const Problems problems = check(traffic, codec_override, config); !problems.empty())
      why = problems.front().what;
    if (why.empty()) continue;
    good.overrides.erase(traffic);
    notes.push_back(fmt::format("{} was {} and goes by the configuration again: {}",
                                name_of(traffic), to_text(codec_override), why));
  }
  for (const Traffic traffic : kClassesWithPolicy)
    if (std::ranges::any_of(changes, [&](const std::string& c) { return touches(c, traffic); })) {
      good.is_bypass_decided = false;
      good.guard.erase(traffic);
    }
  // What is not asked, or was taken back, is decided anew once it is asked.
  if (config.steering.bypass != BypassMode::automatic ||
      good.overrides.size() < before.overrides.size())
    good.is_bypass_decided = false;
  if (config.steering.guard == GuardMode::off) good.guard.clear();
  return good;
}

Steering::Steering(const LinkRegistry& links, SteeringState state)
    : links_(links), state_(std::move(state)) {
  const CodecOverrides overrides = state_.overrides;
  for (const auto& [traffic, codec_override] : overrides) override_codec(traffic, codec_override);
}

void Steering::override_codec(Traffic traffic, const CodecOverride& codec_override) {
  links_.override_codec(traffic, codec_override);
  if (codec_override == CodecOverride{})
    state_.overrides.erase(traffic);
  else
    state_.overrides[traffic] = codec_override;
}

CodecOverride Steering::override_of(Traffic traffic) const {
  const auto found = state_.overrides.find(traffic);
  return found == state_.overrides.end() ? CodecOverride{} : found->second;
}

}  // namespace laconic
