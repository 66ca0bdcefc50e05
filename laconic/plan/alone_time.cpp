// How long a step takes without a pipeline.
//
// One thread walks all blocks forward, and back again; a link carries what leaves, in order. Rows
// of tables leave first of all, and forward waits for them; gradients leave block by block in the
// last backward. Block by block (train.update) the next step begins while they are under way.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "laconic/plan/step_facts.hpp"

namespace laconic {

// A step as it goes along.
struct StepModel::AloneStep {
  // When forward of a block begins, when its gradients have been handed to the link, for how long
  // these occupy it, and how long the rows that the next step looks up there are on their way when
  // their gradients have come.
  struct Block {
    double begins = 0, posted = 0, gradients = 0, rows = 0;
  };

  AloneStep(const StepModel& of, const Step& a_step, std::vector<RowTimes> row_times)
      : model(of), step(a_step), rows(std::move(row_times)), blocks(a_step.times.size()) {
    for (const RowCost& row : step.rows) tables.insert(row.parameter);
  }

  void send_rows();
  void forward();
  void backward();
  double end() const;

  const StepModel& model;
  const Step& step;
  const std::vector<RowTimes> rows;
  std::set<std::size_t> tables;  // parameters in no sum
  const bool by_block = step.updates_by_block();
  std::vector<Block> blocks;
  double clock = 0;    // of the thread that computes
  double wire = 0;     // when all that was handed to the link is there
  double on_wire = 0;  // seconds of sums and of gradients of rows
  double busy = 0;     // of the clock: codecs, copies and handling of messages
  double waited = 0;   // of the clock: for rows
  double update = 0;   // of all parameters
  std::vector<double> rows_are_there = std::vector<double>(rows.size(), 0);  // by table

 private:
  const Facts& facts() const { return step.facts; }
  double hop() const { return facts().patterns.direct.latency; }
  void work(double seconds) { clock += seconds, busy += seconds; }
  void send(double seconds) {
    wire = std::max(wire, clock) + seconds;
    on_wire += seconds;
  }
  double update_of(std::size_t block) const;
  void send_sums(std::size_t block);
  double end_by_block() const;
};

// What the step before has put off comes behind the rows of this one.
void StepModel::AloneStep::send_rows() {
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const RowTimes& row = rows[t];
    work(row.copy + row.rows.busy + row.delayed.busy);
    if (row.rows.wire == 0) continue;
    blocks[row.block].rows += row.rows.wire + hop();
    if (by_block) continue;
    wire += row.rows.wire;
    rows_are_there[t] = wire + hop();
  }
  for (const RowTimes& row : rows)
    if (!by_block) wire += row.delayed.wire;
}

double StepModel::AloneStep::update_of(std::size_t block) const {
  double elements = 0;
  for (const std::size_t p : model.completed_by_[block])
    if (!tables.contains(p)) elements += facts().elements()[p];
  double seconds = update_seconds(facts().device, facts().core_share, elements, step.config,
                                  facts().arrangement.ranks());
  for (const RowTimes& row : rows)
    if (row.block == block) seconds += row.update;
  return seconds;
}

void StepModel::AloneStep::forward() {
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t t = 0; t < rows.size(); ++t) {
      if (rows[t].block != b) continue;
      const double wait = std::max(0.0, rows_are_there[t] - clock);
      clock += wait;
      waited += wait;
      work(rows[t].copy);
    }
    blocks[b].begins = clock;
    const double of_block = update_of(b);
    update += of_block;
    clock += step.times[b].forward + (by_block ? of_block : 0);
  }
}

void StepModel::AloneStep::send_sums(std::size_t block) {
  std::vector<SummedPart> summed;
  for (const std::size_t p : model.completed_by_[block])
    if (!tables.contains(p))
      summed.push_back({&model.space_.spec.parameters[p], facts().elements()[p]});
  const int dp = facts().arrangement.dp;
  if (dp == 1 || summed.empty()) return;
  const SumSeconds sum = sum_seconds(way_of(facts().patterns, step.sums),
                                     sum_cost(summed, step.sums, dp, facts().device),
                                     facts().device, facts().core_share);
  work(sum.busy * step.rhythm.per_step);
  send(sum.wire);
}

void StepModel::AloneStep::backward() {
  for (std::size_t b = blocks.size(); b-- > 0;) {
    clock += step.times[b].backward;
    const double before = on_wire;
    for (const RowTimes& row : rows) {
      if (row.block != b) continue;
      work(row.copy + row.prior.busy);
      send(row.prior.wire);
    }
    send_sums(b);
    blocks[b].posted = clock;
    blocks[b].gradients = on_wire - before;
  }
}

// Messages go by when they are waited for: those of the blocks up to one only wait for each other,
// and must be there when the next step comes to it.
double StepModel::AloneStep::end_by_block() const {
  double seconds = clock, all = 0;
  for (const RowTimes& row : rows) all += row.delayed.wire;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    double there = 0, of_rows = 0;
    for (std::size_t i = b + 1; i-- > 0;) {
      there = std::max(there, blocks[i].posted) + blocks[i].gradients;
      of_rows += blocks[i].rows;
    }
    seconds = std::max(seconds, there + of_rows + 2 * hop() - blocks[b].begins);
    all += blocks[b].gradients + blocks[b].rows;
  }
  return std::max(seconds, all);
}

double StepModel::AloneStep::end() const {
  if (facts().arrangement.dp == 1) return clock;
  if (by_block) return end_by_block();
  if (step.rhythm.in_backward) return std::max(clock, wire + 2 * hop());
  return with_sums(step.rhythm, clock, on_wire + 2 * hop());
}

double StepModel::alone_seconds(const Step& step, StepTime* parts) const {
  const Facts& f = step.facts;
  double pass = 0;
  for (const BlockTimes& t : step.times) pass += t.forward + t.backward;
  AloneStep alone(*this, step, row_times(step));
  alone.send_rows();
  alone.forward();
  alone.clock += pass * static_cast<double>(step.config.microbatches() - 1);
  alone.backward();
  const double end = alone.end();
  const double tail = alone.by_block
                          ? 0
                          : alone.update + agreement_seconds(f.patterns, f.device, f.core_share,
                                                             step.rows, f.arrangement.ranks());
  if (parts != nullptr) {
    const double grid = pass * grid_share(step) * static_cast<double>(step.config.microbatches());
    const double inside = alone.by_block ? alone.update : 0;
    *parts = {.compute = alone.clock - grid - alone.waited - inside,
              .codec = alone.busy,
              .grid = grid,
              .rows = alone.waited,
              .sum = end - alone.clock,
              .update = tail + inside};
  }
  return end + tail;
}

}  // namespace laconic
