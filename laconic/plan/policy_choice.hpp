// plan/policy_choice.hpp — ways to send a class of messages, each with what is known of its loss:
// presets/plan/losses.toml.
//
// A number without a source is refused, and a policy without a number is unproven: it is offered
// only to who asks for it. What trains the same model bit for bit needs no number, but a source.
//
// Which algorithm changes rows of embedding tables (embedding.rows.optimiser and .clip) and whether
// blocks are updated one by one (train.update) is what a run trains by: of these a policy of class
// rows says only what it names, and all else is as the configuration has it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// Messages whose policies are chosen together.
enum class PolicyClass : std::uint8_t { pp, dp, tp, rows };
inline constexpr auto kPolicyClassNames =
    std::to_array<Named<PolicyClass>>({{PolicyClass::pp, "pp"},
                                       {PolicyClass::dp, "dp"},
                                       {PolicyClass::tp, "tp"},
                                       {PolicyClass::rows, "rows"}});
inline constexpr std::size_t kPolicyClasses = kPolicyClassNames.size();

// Per cent above the loss of exact messages.
struct LossEffect {
  double loss = 0;
  double least = 0, most = 0;  // over seeds and series
  int seeds = 0;
  bool operator==(const LossEffect&) const = default;
};

struct PolicyChoice {
  std::string name;
  PolicyClass of = PolicyClass::pp;
  std::vector<std::pair<std::string, std::string>> set;  // keys and values, in TOML
  std::optional<LossEffect> scratch, trained;
  std::string source;
  bool operator==(const PolicyChoice&) const = default;

  // Nothing: unproven. Of a trained model what is known from scratch counts where nothing else is:
  // it has always been more.
  const std::optional<LossEffect>& effect(bool is_trained) const {
    return is_trained && trained ? trained : scratch;
  }
};

// What every class has: messages as they are. Of rows: whole tables are summed; or, where the
// configuration names an algorithm for rows, which those sums cannot have, gradients of rows go to
// everybody.
PolicyChoice exact_policy(PolicyClass of);

// `name` stands in messages. Throws ConfigError with every problem; exact policies are not listed.
std::vector<PolicyChoice> parse_policies(std::string_view text, const std::string& name);
std::vector<PolicyChoice> read_policies(const std::string& path);  // throws ConfigError

// The configuration with the policy in the place of whatever it said of these messages.
// Requires: the policy is one that parse_policies() has accepted, or exact_policy().
RunConfig with_policy(RunConfig config, const PolicyChoice& policy);
// The sections of a class, from one configuration to another: what with_policy() changes.
void copy_policy(PolicyClass of, const RunConfig& from, RunConfig& to);

}  // namespace laconic
