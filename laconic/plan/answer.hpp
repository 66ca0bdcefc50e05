// plan/answer.hpp — what somebody who has these hosts wants to know: which plans, how fast, why,
// and what would make them faster. Everything is predicted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "laconic/plan/break_even.hpp"
#include "laconic/plan/search.hpp"

namespace laconic {

// A simulated step, or why there is none.
struct PlanConfirmation {
  std::optional<double> seconds = {};
  bool is_coarse = false;  // see plan/confirm.hpp
  std::string why_not = {};
};

struct PlanAnswer {
  Candidate candidate;
  RunConfig config;
  std::vector<int> seating;  // by rank; empty: rank i has seat i
  double seconds = 0;        // of a step: simulated if it was, else by formulas, levelled
  std::optional<double> simulated;
  bool is_coarse = false;   // the simulation
  std::string unsimulated;  // why it was not, where it was asked for
  StepTime parts;           // by formulas
  Fit fit;
  LossEffect loss;
  bool is_proven = true;
  double tokens_per_second = 0;
  std::string why;               // what limits it, for people
  std::vector<double> at_rates;  // seconds at PlanAnswers::rates
};

// The best plan if the hosts were other ones.
struct WhatIf {
  std::string change;  // "links twice as fast"
  double seconds = 0;
  std::string plan;
};

struct PlanAnswers {
  std::vector<PlanAnswer> plans;  // the fastest first
  SearchResult search;
  std::vector<BreakEven> break_even;
  std::vector<WhatIf> what_if;
  std::vector<double> rates;  // bits per second of the slowest link, for curves
  double slowest_rate = 0;    // of the hosts' links, as they are
};

using ConfirmPlan = std::function<PlanConfirmation(const RunConfig& config, const Hosts& hosts,
                                                   const std::vector<int>& seating)>;

struct AnswerOptions {
  int top = 10;
  int confirmed = 20;   // so many of the fastest are simulated, and sorted by that
  ConfirmPlan confirm;  // empty: formulas alone
  bool with_curves = false;
  bool with_what_if = true;
};

// Requires: check(request) is empty.
PlanAnswers answer(const PlanRequest& request, const AnswerOptions& options);

// "pp 4 x dp 2, 1f1b, microbatch 2, dp: 4 bits"; what is open is left out.
std::string describe_plan(const PlanSpace& space, const Candidate& candidate);

}  // namespace laconic
