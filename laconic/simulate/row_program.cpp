#include "laconic/simulate/row_program.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/rows/row_plan.hpp"

namespace laconic {

RowProgram::RowProgram(ProgramBuilder& builder, const SimulationRequest& request)
    : builder_(builder),
      request_(request),
      place_of_block_(
          ranks_of_blocks(request.decisions.schedule, ranges_of_split(request.decisions.split))) {
  if (request.mesh.dp == 1) return;
  for (const RowLoad& load : row_loads(request.config, request.spec, request.rows_read)) {
    const ParameterSpec& table = request.spec.parameters[load.parameter];
    tables_.push_back(
        {.load = load,
         .is_split = splits_on(request.config, request.spec, load, request.hosts),
         .block = static_cast<std::size_t>(first_user(request.spec, load.parameter)),
         .width = table.sizes[1],
         .row_bytes = static_cast<double>(bytes_of(request.config.run.master_type())) *
                      static_cast<double>(table.sizes[1])});
  }
}

bool RowProgram::holds(const Table& table, int rank) const {
  const Coord coord = coord_of(request_.mesh, builder_.classes().first[index(rank)]);
  return place_of_block_[table.block] == coord.pp;
}

std::uint64_t RowProgram::elements_to(const Table& table, double rows, int member) const {
  const int members = request_.mesh.dp;
  switch (table.load.method) {
    case RowsMethod::alltoall:
      return static_cast<std::uint64_t>(std::llround(rows)) *
             static_cast<std::uint64_t>(table_columns(table.width, members, member).size());
    case RowsMethod::server:
      return static_cast<std::uint64_t>(std::llround(rows / members)) *
             static_cast<std::uint64_t>(table.width);
    case RowsMethod::allgather:
    case RowsMethod::allreduce:
    case RowsMethod::automatic: break;
  }
  return static_cast<std::uint64_t>(std::llround(rows)) * static_cast<std::uint64_t>(table.width);
}

// One for each group of replicas that holds the table.
ExchangeStrands RowProgram::exchange(const Table& table, double rows, const Travelling& as,
                                     std::uint64_t key) {
  ExchangeStrands all;
  for (int rank = 0; rank < builder_.classes().count(); ++rank) {
    if (!holds(table, rank) || all.contains(rank)) continue;
    CollectiveSpec spec{
        .traffic = Traffic::embedding_rows,
        .kind = CollectiveKind::reduce_scatter,
        .group = group_of(request_.mesh, builder_.classes().first[index(rank)], Axis::dp),
        .dtype = as.dtype,
        .offsets = {0},
        .up = as.codec};
    const int members = static_cast<int>(spec.group.size());
    const bool is_even = table.load.method != RowsMethod::alltoall || table.width % members == 0;
    if (is_even)
      spec.columns = static_cast<std::uint64_t>(
          table.load.method == RowsMethod::alltoall ? table.width / members : table.width);
    for (int member = 0; member < members; ++member)
      spec.offsets.push_back(spec.offsets.back() + elements_to(table, rows, member));
    spec.lane_elements = std::max<std::uint64_t>(1, spec.offsets.back());  // one lane
    all.merge(add_collective(builder_, spec, key));
  }
  return all;
}

void RowProgram::begin(std::uint64_t step) {
  older_ = std::move(before_);
  before_ = std::exchange(now_, std::vector<Exchanges>(tables_.size()));
  const RunConfig& config = request_.config;
  const Travelling rows{config.run.compute_type(), parse_codec(config.embedding_rows.codec)},
      gradient{config.run.master_type(), parse_codec(config.embedding_rows.gradient)};
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const Table& table = tables_[t];
    const RowLoad& load = table.load;
    const bool is_early = config.embedding_rows.early && is_cut(table);
    const double early = is_early ? std::round(load.early) : 0;
    if (is_cut(table))
      now_[t].rows = exchange(table, load.read - early, rows, deadline_key(step, table.block, 1));
    if (is_early)
      now_[t].early = exchange(table, early, rows, deadline_key(step + 1, table.block, 1));
    const double prior = table.is_split ? load.prior : load.read;
    now_[t].prior = exchange(table, prior, gradient, deadline_key(step + 1, table.block, 0));
    if (table.is_split)
      now_[t].delayed = exchange(table, std::llround(load.read) - std::llround(prior), gradient,
                                 deadline_key(step + 2, table.block, 0));
  }
}

void RowProgram::copy_rows(int rank, int strand, const Table& table, double rows) {
  builder_.compute(strand, WorkKind::handling, builder_.copy_seconds(rank, rows * table.row_bytes));
}

// Block by block nobody waits for the update before: when its gradients are there, rows leave.
void RowProgram::request(int rank, int strand) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const auto rows = now_[t].rows.find(rank);
    if (rows == now_[t].rows.end()) continue;
    copy_rows(rank, strand, tables_[t], tables_[t].load.read);
    int starter = strand;
    if (updates_by_block() && !before_.empty()) {
      starter = builder_.add_background(rank, 0, Traffic::embedding_rows);
      builder_.join(starter, before_[t].prior.at(rank));
      builder_.start(strand, starter);
    }
    builder_.start(starter, rows->second);
  }
}

void RowProgram::look_up(int rank, int strand, std::size_t block) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].block != block || !holds(tables_[t], rank)) continue;
    if (updates_by_block() && !before_.empty()) {
      builder_.join(strand, before_[t].prior.at(rank));
      update_table(rank, strand, t, older_);
    }
    if (!before_.empty() && before_[t].early.contains(rank))
      builder_.join(strand, before_[t].early.at(rank));
    if (now_[t].rows.contains(rank)) builder_.join(strand, now_[t].rows.at(rank));
    copy_rows(rank, strand, tables_[t], tables_[t].load.read);
  }
}

void RowProgram::begin_backward(int rank, int strand) {
  for (const Exchanges& exchanges : now_)
    if (exchanges.early.contains(rank)) builder_.start(strand, exchanges.early.at(rank));
}

void RowProgram::give(int rank, int strand, std::size_t block) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].block != block || !holds(tables_[t], rank)) continue;
    copy_rows(rank, strand, tables_[t], tables_[t].load.read);
    builder_.start(strand, now_[t].prior.at(rank));
    if (tables_[t].is_split) builder_.start(strand, now_[t].delayed.at(rank));
  }
}

void RowProgram::wait(int rank, int strand) {
  for (const Exchanges& exchanges : now_)
    if (exchanges.prior.contains(rank)) builder_.join(strand, exchanges.prior.at(rank));
}

void RowProgram::update(int rank, int strand) {
  for (std::size_t t = 0; t < tables_.size(); ++t)
    if (holds(tables_[t], rank)) update_table(rank, strand, t, before_);
}

// What all ranks have read changes, where it lies; but first what was put off in another step.
void RowProgram::update_table(int rank, int strand, std::size_t t,
                              const std::vector<Exchanges>& put_off) {
  const Table& table = tables_[t];
  if (!put_off.empty() && put_off[t].delayed.contains(rank))
    builder_.join(strand, put_off[t].delayed.at(rank));
  const double holders = is_cut(table) ? request_.mesh.dp : 1;
  builder_.compute(strand, WorkKind::update,
                   builder_.update_seconds(
                       rank, table.load.all_read / holders * static_cast<double>(table.width)));
}

}  // namespace laconic
