// plan/candidate.hpp — what a planner may choose from, and one choice: plain data.
//
// A candidate is a list of numbers, one for every dim of the space, in the order of PlanDim; what
// one dim may be depends on those before it (options()). Dims that are not chosen yet are kOpen. A
// whole candidate is a configuration (config_of), which must pass the configuration's own check.
//
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "laconic/architecture/family.hpp"
#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/plan/policy_choice.hpp"
#include "laconic/schedule/schedule.hpp"
#include "laconic/simulate/row_load.hpp"

namespace laconic {

// A mesh, and the seats of its ranks. Seats are taken one after the other from `first_seat` on; of
// stages and replicas `outer` is the axis whose members lie farthest apart.
struct Arrangement {
  int pp = 1;
  int dp = 1;
  TensorMethod method = TensorMethod::three_d;
  std::array<int, 3> grid = {1, 1, 1};
  Axis outer = Axis::pp;
  int first_seat = 0;
  int tp() const { return grid[0] * grid[1] * grid[2]; }
  int ranks() const { return pp * dp * tp(); }
  bool operator==(const Arrangement&) const = default;
};

struct ScheduleChoice {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int chunks = 1;
  bool operator==(const ScheduleChoice&) const = default;
};

// A policy, and the configuration's sections that it means.
struct PolicyOption {
  PolicyChoice choice;
  RunConfig applied;
};

// One that no mesh of these hosts can have, and why.
struct RefusedPolicy {
  PolicyChoice choice;
  std::string why;
};

enum class PlanDim : std::uint8_t {
  arrangement,
  precision,
  recompute,
  dp_policy,
  pp_policy,
  tp_policy,
  rows_policy,
  microbatch,
  schedule,
};
inline constexpr std::size_t kPlanDims = 9;
inline constexpr int kOpen = -1;

// By PolicyClass: where candidates have it.
inline constexpr std::array kPolicyDims = {PlanDim::pp_policy, PlanDim::dp_policy,
                                           PlanDim::tp_policy, PlanDim::rows_policy};

struct Candidate {
  std::array<int, kPlanDims> choice = {kOpen, kOpen, kOpen, kOpen, kOpen,
                                       kOpen, kOpen, kOpen, kOpen};
  int at(PlanDim dim) const { return choice[static_cast<std::size_t>(dim)]; }
  int& at(PlanDim dim) { return choice[static_cast<std::size_t>(dim)]; }
  auto operator<=>(const Candidate&) const = default;
};
// The first dim that is open; kPlanDims: none is.
std::size_t depth_of(const Candidate& candidate);

struct PlanRequest {
  RunConfig
      base;     // model, data, batch; whatever it says of mesh, schedule and messages is replaced
  Hosts hosts;  // for models of that kind: hosts_for()
  std::vector<PolicyChoice> policies;  // besides exact ones
  double loss_budget = 0.5;            // per cent
  bool with_unproven = false;
  bool is_trained = false;  // the run begins from a trained model, which minds less
};
// Every reason why there is nothing to plan. Requires: check(hosts) is empty.
Problems check(const PlanRequest& request);

struct PlanSpace {
  RunConfig base;
  Family family;
  ModelSpec spec;
  Hosts hosts;
  std::vector<Seat> seats;
  std::vector<Arrangement> arrangements;
  std::vector<std::vector<bool>> cuttable;  // by arrangement and microbatch: a grid can cut it
  std::vector<RunPrecision> precisions;
  std::vector<bool> recomputes;
  std::vector<std::int64_t> microbatches;  // samples, most first
  std::vector<ScheduleChoice> schedules;
  std::array<std::vector<PolicyOption>, kPolicyClasses> policies;  // by PolicyClass
  std::vector<RefusedPolicy> refused;
  std::vector<std::vector<int>> row_options;      // by arrangement: policies of rows it can have
  std::map<int, std::vector<RowLoad>> row_loads;  // by number of replicas, whatever the method
  double loss_budget = 0.5;
  bool with_unproven = false;
  bool is_trained = false;
};
// Requires: check(request) is empty.
PlanSpace space_of(const PlanRequest& request);

// Choices of the first open dim that the others leave: numbers as in the space's lists, in the
// order in which equals are preferred. Memory is not asked.
std::vector<int> options(const PlanSpace& space, const Candidate& candidate);
// All whole candidates, in the order of their numbers. For tests, and small spaces.
std::vector<Candidate> candidates(const PlanSpace& space);

const Arrangement& arrangement_of(const PlanSpace& space, const Candidate& candidate);
// Where rank 0 sits.
const HostGroup& first_group(const PlanSpace& space, const Arrangement& arrangement);
// Whether a class has messages there: of rows, whether any may travel.
bool uses(const PlanSpace& space, const Candidate& candidate, PolicyClass of);
// Requires: the dims that it asks for are chosen; open ones are as in the space's base.
RunConfig config_of(const PlanSpace& space, const Candidate& candidate);
// By rank of the mesh: its seat.
std::vector<int> seating_of(const PlanSpace& space, const Arrangement& arrangement);

// Per cent above exact messages, of all classes together; what is open counts nothing. Gains are
// not counted: they are within what seeds differ by.
LossEffect loss_of(const PlanSpace& space, const Candidate& candidate);
bool is_proven(const PlanSpace& space, const Candidate& candidate);

}  // namespace laconic
