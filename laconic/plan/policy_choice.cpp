#include "laconic/plan/policy_choice.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/quoted_toml.hpp"
#include "laconic/config/read.hpp"
#include "laconic/config/toml_table.hpp"

namespace laconic {

namespace {

std::string assignment(const std::pair<std::string, std::string>& key) {
  return key.first + "=" + key.second;
}

// Dotted keys are tables in tables, whose names are put together again.
void add_policy_keys(const TomlNode& node, const std::string& prefix, PolicyChoice& policy) {
  for (const auto& [name, value] : node.entries) {
    const std::string key = prefix.empty() ? name : prefix + "." + name;
    if (value.kind == TomlNode::Kind::table)
      add_policy_keys(value, key, policy);
    else
      policy.set.emplace_back(
          key, value.kind == TomlNode::Kind::text ? quoted_toml(value.text) : value.text);
  }
}

void read_set(TomlTable& table, const TomlNode& node, PolicyChoice& policy) {
  const TomlNode* set = table.find("set");
  if (set == nullptr) return table.report(node, "set is missing");
  if (set->kind != TomlNode::Kind::table)
    return table.report_wrong(*set, "set", "a table of keys of a configuration");
  add_policy_keys(*set, "", policy);
  RunConfig config;
  for (const auto& key : policy.set)
    for (const Problem& p : apply_set(assignment(key), config)) table.report(*set, p.what);
}

std::optional<LossEffect> read_effect(TomlTable& table, const char* key, Problems& problems) {
  const TomlNode* node = table.find(key);
  if (node == nullptr) return std::nullopt;
  LossEffect effect;
  TomlTable inner(*node, key, problems);
  if (node->find("loss") == nullptr) inner.report(*node, "loss is missing");
  inner.read_number("loss", effect.loss);
  effect.least = effect.most = effect.loss;
  inner.read_number("least", effect.least);
  inner.read_number("most", effect.most);
  inner.read_count("seeds", effect.seeds, 1);
  inner.report_unknown();
  if (effect.seeds < 1) inner.report(*node, "seeds is missing: how many runs say so?");
  if (!(effect.least <= effect.loss && effect.loss <= effect.most))
    inner.report(*node, fmt::format("loss = {} is not between least = {} and most = {}",
                                    effect.loss, effect.least, effect.most));
  return effect;
}

PolicyChoice policy_in(const TomlNode& node, Problems& problems) {
  PolicyChoice policy;
  const TomlNode* name = node.find("name");
  TomlTable table(node, fmt::format("policy '{}'", name == nullptr ? "" : printable(name->text)),
                  problems);
  table.require("name", policy.name);
  std::string of;
  table.require("class", of);
  if (const auto known = value_in(kPolicyClassNames, of))
    policy.of = *known;
  else if (!of.empty())
    table.report(*node.find("class"), fmt::format("there is no class '{}'{}", printable(of),
                                                  suggestion(of, names_in(kPolicyClassNames))));
  read_set(table, node, policy);
  policy.scratch = read_effect(table, "scratch", problems);
  policy.trained = read_effect(table, "trained", problems);
  bool is_exact = false;
  table.read_flag("exact", is_exact);
  if (is_exact && (policy.scratch || policy.trained))
    table.report(
        node,
        "exact = true leaves nothing to measure: scratch and trained must not stand beside it");
  if (is_exact) policy.scratch = policy.trained = LossEffect{};
  table.read("source", policy.source);
  if ((policy.scratch || policy.trained) && policy.source.empty())
    table.report(node, "has a loss without a source: where is it written down?");
  table.report_unknown();
  return policy;
}

// Settings of other messages than the class's would be lost.
void check_sections(const PolicyChoice& policy, const std::string& name, Problems& problems) {
  RunConfig whole, part;
  for (const auto& key : policy.set)
    if (!apply_set(assignment(key), whole).empty()) return;
  copy_policy(policy.of, whole, part);
  for (const std::string& difference : differences(part, whole))
    problems.push_back({name, fmt::format("policy '{}': {} is no key of messages of class {}",
                                          policy.name, difference.substr(0, difference.find(':')),
                                          name_in(kPolicyClassNames, policy.of))});
}

}  // namespace

PolicyChoice exact_policy(PolicyClass of) {
  return {.name = "exact",
          .of = of,
          .set = {},
          .scratch = LossEffect{},
          .trained = LossEffect{},
          .source = "by construction"};
}

std::vector<PolicyChoice> parse_policies(std::string_view text, const std::string& name) {
  const TomlNode root = parse_toml_tree(text, name);
  Problems problems;
  std::vector<PolicyChoice> policies;
  TomlTable table(root, "losses", problems);
  table.each("policy",
             [&](const TomlNode& node) { policies.push_back(policy_in(node, problems)); });
  table.report_unknown();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    check_sections(policies[i], name, problems);
    for (std::size_t j = 0; j < i; ++j)
      if (policies[i].name == policies[j].name && policies[i].of == policies[j].of)
        problems.push_back(
            {name, fmt::format("policy '{}' of class {} is there twice", policies[i].name,
                               name_in(kPolicyClassNames, policies[i].of))});
  }
  refuse(problems);
  return policies;
}

std::vector<PolicyChoice> read_policies(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  file.peek();
  if (!file.is_open() || file.bad())
    throw ConfigError(Problems{{path, fmt::format("cannot be read: {}", std::strerror(errno))}});
  std::stringstream text;
  if (!file.eof()) text << file.rdbuf();
  return parse_policies(text.str(), path);
}

// What a policy of rows leaves as it is.
static void keep_training(const RunConfig& config, RunConfig& fresh) {
  fresh.train.update = config.train.update;
  fresh.embedding_rows.optimiser = config.embedding_rows.optimiser;
  fresh.embedding_rows.clip = config.embedding_rows.clip;
  if (config.embedding_rows.optimiser != RowsOptimiser::same)
    fresh.embedding_rows.method = RowsMethod::allgather;
}

void copy_policy(PolicyClass of, const RunConfig& from, RunConfig& to) {
  switch (of) {
    case PolicyClass::pp:
      to.pp_activation = from.pp_activation;
      to.pp_gradient = from.pp_gradient;
      to.embedding_tied = from.embedding_tied;
      to.model.dropout_by_sample = from.model.dropout_by_sample;
      return;
    case PolicyClass::dp:
      to.dp_gradient = from.dp_gradient;
      to.local = from.local;
      return;
    case PolicyClass::tp:
      to.tp_activation = from.tp_activation;
      to.tp_gradient = from.tp_gradient;
      to.tp_weight = from.tp_weight;
      return;
    case PolicyClass::rows:
      to.embedding_rows = from.embedding_rows;
      to.train.update = from.train.update;
      return;
  }
}

RunConfig with_policy(RunConfig config, const PolicyChoice& policy) {
  RunConfig fresh;
  if (policy.of == PolicyClass::rows) keep_training(config, fresh);
  for (const auto& key : policy.set) refuse(apply_set(assignment(key), fresh));
  copy_policy(policy.of, fresh, config);
  return config;
}

}  // namespace laconic
