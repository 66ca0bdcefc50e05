// plan/test_request.hpp — what tests of plans ask for.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "laconic/config/read.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/plan/candidate.hpp"

namespace laconic {

inline std::string plan_presets() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/presets";
}

inline RunConfig planned_config() {
  RunConfig config;
  config.model.layers = 2;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.context = 32;
  config.model.vocabulary = 500;
  config.train.batch = 4;
  config.data.train = "none";
  return config;
}

// Some of the policies that there are, so that all candidates can be tried.
inline std::vector<PolicyChoice> few_policies() {
  std::vector<PolicyChoice> policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(policies, [](const PolicyChoice& p) {
    return p.name != "ac-sgd 4/6" && p.name != "4 bits" && p.name != "power_sgd 32, 8 bits" &&
           p.name != "8 bits" && p.name != "linear 4";
  });
  return policies;
}

// Sums that are late, or of rounds, whatever they lose.
inline std::vector<PolicyChoice> late_policies() {
  std::vector<PolicyChoice> policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(policies, [](const PolicyChoice& p) {
    return p.name != "late" && p.name != "linear 4, power_sgd 8, overlap 2" &&
           p.name != "linear 4 in parts, power_sgd 64, overlap 1" &&
           p.name != "ac-sgd 4/6, tied low rank late" && p.name != "transform 4/8";
  });
  return policies;
}

inline PlanRequest planned_request(const std::string& hosts) {
  return {.base = planned_config(),
          .hosts = read_hosts(hosts, plan_presets()),
          .policies = few_policies()};
}

// A model with a table of its own, which plain sgd or lazy Adam changes by rows.
inline PlanRequest rows_request(RowsOptimiser optimiser) {
  PlanRequest request = planned_request("lab");
  request.hosts.groups[0].hosts = 3;
  request.base.model.kind = ModelKind::llama;
  request.base.model.tied = false;
  request.base.model.vocabulary = 3000;
  request.base.train.batch = 6;
  request.base.train.clip = 0;
  request.base.embedding_rows.optimiser = optimiser;
  if (optimiser == RowsOptimiser::same) {
    request.base.optimiser.kind = OptimiserKind::sgd;
    request.base.optimiser.momentum = request.base.optimiser.weight_decay = 0;
  }
  request.policies = read_policies(plan_presets() + "/plan/losses.toml");
  std::erase_if(request.policies, [](const PolicyChoice& p) {
    return p.of != PolicyClass::rows && !(p.of == PolicyClass::dp && p.name == "4 bits") &&
           p.name != "linear 4";
  });
  return request;
}

inline std::vector<std::string> names_of(const PlanSpace& space, PolicyClass of) {
  std::vector<std::string> names;
  for (const PolicyOption& o : space.policies[static_cast<std::size_t>(of)])
    names.push_back(o.choice.name);
  return names;
}

}  // namespace laconic
