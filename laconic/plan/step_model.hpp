// plan/step_model.hpp — how long a step of a candidate takes, whether it fits, and what it cannot
// be faster than: predictions, all of them.
//
//   computing   multiply-adds by what the device reaches, three times those of forward, four with
//               recomputation; ranks wait for the slowest at their place of the pipeline
//   pipeline    estimate() of the very schedule, with what each boundary costs on its slowest link
//   sums        block by block behind backward where there is no pipeline, else behind the stage
//   rows        of tables that travel by rows leave when a step begins, and their gradients as
//               sums do; with train.update = "block" a step begins while both are under way
//   grid        grid_times() with the slowest link between the ranks of a grid
//   codecs      their time is computing time; so is handling of messages where ranks compute on
//               processors. Hosts with GPUs have processors for it
//   cores       ranks that share cores cannot do more work than these
//
// lower_bound() of a candidate with open dims is never above the seconds of any way to close them:
// each term of it is a part of every step, with the cheapest choice where one is open. Of whole
// candidates it takes a fraction of the time that seconds() does.
//
// Remembers what several candidates have in common, and is deterministic all the same.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "laconic/plan/candidate.hpp"
#include "laconic/plan/link_load.hpp"
#include "laconic/plan/row_cost.hpp"
#include "laconic/plan/sum_cost.hpp"
#include "laconic/policy/pipeline_decisions.hpp"
#include "laconic/policy/rank_memory.hpp"

namespace laconic {

// Seconds of a step. The parts add up to it.
struct StepTime {
  double seconds = 0;
  double compute = 0;   // of the rank that computes most, with what codecs and messages cost it
  double codec = 0;     // of that, for messages
  double bubble = 0;    // waiting in the pipeline that faster links would not end
  double boundary = 0;  // exposed: messages between stages
  double grid = 0;      // exposed: messages of a tensor grid
  double rows = 0;      // exposed: rows of tables that a step begins with
  double sum = 0;       // exposed: gradients between replicas
  double tied = 0;      // exposed: the table that stages share
  double update = 0;    // of parameters, and agreement about the step
};

// The memory that counts: of the fullest host, or of the fullest GPU.
struct Fit {
  bool fits = true;
  std::vector<MemoryEstimate> by_place;  // one rank at each place of the pipeline
  double needed = 0, has = 0;            // bytes, where it is tightest; has = 0: not known
  std::string where;                     // "a host of north", "a GPU of north"
};

// A step as schedule/gantt.hpp draws it: of a pipeline, or of one rank.
struct StepPicture {
  Schedule schedule;
  Timing timing;
};

class StepModel {
 public:
  // `space` must outlive it.
  explicit StepModel(const PlanSpace& space);
  ~StepModel();

  // Requires: the candidate is whole, and its configuration passes check().
  double seconds(const Candidate& candidate);
  StepTime parts(const Candidate& candidate);
  StepPicture picture(const Candidate& candidate);
  double lower_bound(const Candidate& candidate);

  Fit fit(const Candidate& candidate);
  // What no way to close it does with less, on one GPU or one host. Where nothing is known it fits.
  Fit least_fit(const Candidate& candidate);

  // Why the configuration cannot be; empty: it runs as it is.
  Problems problems(const Candidate& candidate) const;

  // What carries each class of messages.
  struct Patterns {
    PatternCost edge, ring, direct, tied, grid, agreement;
  };
  Patterns patterns(const Arrangement& arrangement);

 private:
  struct GridFacts;
  struct Facts;
  struct Step;
  struct PipelineStep;
  struct RowTimes;
  struct AloneStep;
  bool are_alike() const;  // every rank has a host of one kind
  const GridFacts& grid_facts(const Arrangement& arrangement);
  const Facts& facts(const Candidate& candidate);
  const std::vector<BlockTimes>& block_times(const Candidate& candidate);
  // Of all tables that travel by rows with this policy.
  const std::vector<RowCost>& row_costs(const Candidate& candidate, std::size_t policy);
  Step prepare(const Candidate& candidate);
  std::vector<RowTimes> row_times(const Step& step) const;
  double alone_seconds(const Step& step, StepTime* parts) const;
  double grid_share(const Step& step) const;
  double pipeline_seconds(const Step& step, StepTime* parts);
  PipelineStep prepare_pipeline(const Step& step);
  const PipelineDecisions& decisions(const Candidate& candidate, const RunConfig& config);
  void add_stages(const Step& step, PipelineStep& pipeline) const;
  void add_sums(const Step& step, PipelineStep& pipeline) const;
  void add_rows(const Step& step, PipelineStep& pipeline) const;
  double least_of_cores(const Step& step, const PipelineStep& pipeline) const;
  double with_late_sums(const Step& step, const PipelineStep& pipeline, double makespan) const;

  // --- bounds (step_bound.cpp)
  struct LeastSum;
  struct LeastMessages;
  struct LeastWork;
  struct LeastRows;
  const std::vector<LeastSum>& least_sums(const Facts& facts, bool has_rows);
  std::vector<LeastRows> least_rows(const Candidate& candidate);
  LeastMessages least_messages(const Candidate& candidate);
  LeastWork least_work(const Candidate& candidate);
  double grid_bound(const Candidate& candidate);
  double tied_bound(const Candidate& candidate);
  double alone_bound(const Candidate& candidate);
  double pipeline_bound(const Candidate& candidate);
  double schedule_bound(const Candidate& candidate, const ScheduleChoice& schedule);
  const std::vector<BlockRange>& split_in(int stages);
  double second_share(int ranks);
  double references_of(const Facts& facts, const RunConfig& applied) const;
  double least_held(const Candidate& candidate);
  double least_held(const Facts& facts, RunPrecision precision, bool recomputes,
                    std::int64_t samples) const;

  const PlanSpace& space_;
  std::vector<std::size_t> first_users_;                // by parameter: a block
  std::vector<int> users_;                              // by parameter: how many blocks
  std::vector<std::vector<std::size_t>> completed_by_;  // by block: parameters whose gradients are
                                                        // there when it has ended backward
  std::map<std::pair<TensorMethod, std::array<int, 3>>, std::unique_ptr<GridFacts>> grid_facts_;
  std::map<int, std::unique_ptr<Facts>> facts_;
  std::map<std::tuple<int, int, Axis, int, int>, Patterns> patterns_;
  // By grid, precision, recomputation, microbatch, policy; and arrangement, unless all are alike.
  std::map<std::array<int, 6>, std::vector<BlockTimes>> times_;
  std::map<std::array<int, 3>, std::vector<RowCost>>
      row_costs_;  // by arrangement, policy, precision
  std::map<std::tuple<int, bool, bool>, std::vector<LeastSum>> least_sums_;
  std::map<std::array<int, 3>, LeastMessages> least_messages_;
  std::map<std::array<int, 4>, double> grid_bytes_;
  std::map<std::array<int, 3>, double> tied_bounds_;
  std::map<int, std::vector<BlockRange>> splits_;
  std::map<std::array<int, 6>, double> least_held_;
  std::optional<std::pair<Candidate, PipelineDecisions>> decided_;  // the last one
};

}  // namespace laconic
