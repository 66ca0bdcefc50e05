// plan/step_facts.hpp — what all candidates of one arrangement have in common; for
// plan/step_model.cpp and its kin alone.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "laconic/layout/grid_plan.hpp"
#include "laconic/plan/step_model.hpp"

namespace laconic {

// What all arrangements with one grid have in common.
struct StepModel::GridFacts {
  GridPlan plan;
  std::vector<double> elements;  // of each parameter on a rank
  double trained_elements = 0;   // of all that are not frozen
  int number = 0;                // in the order in which they were asked for
};

struct StepModel::Facts {
  Arrangement arrangement;
  std::vector<Seat> seats;               // by rank
  std::vector<std::vector<int>> groups;  // of hosts, by place in the pipeline
  HostDevice device;                     // of each property the worst that any rank has
  double cores = 0;                      // that all ranks share; 0: each has its own
  double core_share = 1;                 // of a rank while all compute
  const GridFacts* of_grid = nullptr;
  bool has_grid = false;
  Patterns patterns;
  const GridPlan& grid() const { return of_grid->plan; }
  const std::vector<double>& elements() const { return of_grid->elements; }

  // Multiply-adds per second of ranks at a place of the pipeline.
  double rate(const PlanSpace& space, int place, RunPrecision precision) const;
  // The same of one core, where cores are shared.
  double core_rate(const PlanSpace& space, RunPrecision precision) const;
};

// When sums over replicas travel.
struct SumRhythm {
  double per_step = 1;      // sums in a step; below 1 with local updates
  double beside = 0;        // steps that one may travel beside before it is waited for
  bool in_backward = true;  // or when a step has ended
};
SumRhythm rhythm_of(const RunConfig& config);

// A step that computes for so long, when a sum that does not leave in backward is so long on the
// wire. Never less for more of either.
inline double with_sums(const SumRhythm& rhythm, double computing, double wire) {
  return computing + rhythm.per_step * std::max(0.0, wire - rhythm.beside * computing);
}

// What a whole candidate comes to before any clock runs.
struct StepModel::Step {
  const Candidate& candidate;
  RunConfig config;
  const Facts& facts;
  const std::vector<BlockTimes>& times;  // by block, on the slowest rank of place 0
  GradientPolicy sums;
  SumRhythm rhythm;
  const std::vector<RowCost>& rows;
  bool updates_by_block() const {
    return config.train.update == UpdateBy::block && facts.arrangement.dp > 1;
  }
};

// Of one policy, for bounds: bytes of sums of all parameters, up and down.
struct StepModel::LeastSum {
  double bytes = 0;
  bool is_ring = false;
  SumRhythm rhythm;
  bool may_have_rows = false;  // beside it
};

// Of one policy of rows, for bounds: seconds of gradients on the wire, and the least that a rank of
// the mean updates besides.
struct StepModel::LeastRows {
  bool has_rows = false;
  bool updates_by_block = false;
  double wire = 0;
  double update = 0;
};

// Bytes of all messages of a step over the narrowest boundary, and of the cheaper policy where it
// is open.
struct StepModel::LeastMessages {
  double activation = 0, gradient = 0;
};

// Seconds of all microbatches of a replica, on one rank that has all stages.
struct StepModel::LeastWork {
  double forward = 0, backward = 0;
  double passes = 1;
  double total() const { return forward + backward; }
};

// Seconds that a sum occupies its links, and the processor where it is one.
struct SumSeconds {
  double wire = 0;
  double busy = 0;
};

const PatternCost& way_of(const StepModel::Patterns& patterns, const GradientPolicy& policy);
// What sums of some parameters take on a rank: on the wire, and of a processor that computes, too.
SumSeconds sum_seconds(const PatternCost& way, const SumCost& cost, const HostDevice& device,
                       double core_share);

// Update of a rank's parameters.
double update_seconds(const HostDevice& device, double core_share, double elements,
                      const RunConfig& config, int ranks);
// The exchange of losses and norms; with rows that are clipped as all else, of their norm, too.
double agreement_seconds(const StepModel::Patterns& patterns, const HostDevice& device,
                         double core_share, const std::vector<RowCost>& rows, int ranks);

// Of one table, on a rank: messages, a copy of its rows, and what changes them.
struct StepModel::RowTimes {
  std::size_t block = 0;
  SumSeconds rows, prior, delayed;
  double copy = 0;
  double update = 0;
};

inline constexpr double kEver = std::numeric_limits<double>::infinity();

// Whether a choice may still be `number`.
inline bool is_open_to(int chosen, std::size_t number) {
  return chosen == kOpen || static_cast<std::size_t>(chosen) == number;
}

inline double per_second(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

}  // namespace laconic
