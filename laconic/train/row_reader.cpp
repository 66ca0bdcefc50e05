#include "laconic/train/row_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/run_facts.hpp"

namespace laconic {

std::vector<std::int64_t> RowReader::tokens(std::int64_t position, int member,
                                            const std::string& field) const {
  const std::vector<FieldSpec> fields = fields_of(task, tokens_per_sample(task, data));
  std::vector<std::vector<std::int64_t>> sample;
  std::vector<std::span<std::int64_t>> spans;
  std::size_t wanted = fields.size();
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].name == field) wanted = f;
    std::int64_t size = 1;
    for (const std::int64_t n : fields[f].per_sample) size *= n;
    sample.emplace_back(static_cast<std::size_t>(size));
  }
  LACONIC_ASSERT(wanted < fields.size(), "samples have no field " + field);
  for (std::vector<std::int64_t>& row : sample) spans.emplace_back(row);
  std::vector<std::int64_t> ids;
  const std::int64_t begin = position + member * config.local_batch();
  for (std::int64_t s = begin; s < begin + config.local_batch(); ++s) {
    const auto at = static_cast<std::uint64_t>(s);
    read_sample(task, data, {sample_at(order, at), epoch_of(order, at)}, spans);
    const std::int64_t used = used_elements(task, wanted, spans);
    ids.insert(ids.end(), sample[wanted].begin(), sample[wanted].begin() + used);
  }
  std::erase(ids, kNoTarget);
  return ids;
}

RowIds RowReader::rows(std::int64_t position, int member, const std::string& field) const {
  return unique_rows(tokens(position, member, field));
}

namespace {

// Ranks of a dp group that share a card, at most.
int ranks_per_card(World& world, const std::string& network) {
  const std::vector<Bytes> networks =
      world.gather(as_bytes(std::span<const char>(network.data(), network.size())));
  std::map<Bytes, int> counts;
  int most = 1;
  for (const Rank rank : group_of(world.mesh(), 0, Axis::dp))
    most = std::max(most, ++counts[networks[static_cast<std::size_t>(rank)]]);
  return most;
}

// What members look up of a table in a step, by all fields.
struct TableReading {
  std::vector<RowIds> by_member;
  double tokens = 0;  // of a member, on average
};

TableReading reading_of(const ParameterSpec& table, const RowReader& reader, std::int64_t step,
                        std::int64_t position) {
  const RunConfig& config = reader.config;
  TableReading reading;
  for (int m = 0; m < static_cast<int>(config.mesh.dp); ++m) {
    std::vector<std::int64_t> ids;
    for (const std::string& field : table.looked_up_by) {
      const std::vector<std::int64_t> more = field == kDrawnField
                                                 ? drawn_rows(config, table, step, m)
                                                 : reader.tokens(position, m, field);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    reading.tokens += static_cast<double>(ids.size()) / static_cast<double>(config.mesh.dp);
    reading.by_member.push_back(unique_rows(ids));
  }
  return reading;
}

RowsMethod method_of(RowMethod method) {
  switch (method) {
    case RowMethod::alltoall: return RowsMethod::alltoall;
    case RowMethod::allgather: return RowsMethod::allgather;
    case RowMethod::server: return RowsMethod::server;
    case RowMethod::allreduce: break;
  }
  return RowsMethod::allreduce;
}

// Of the first step.
TableFacts facts_of(const ParameterSpec& table, const RowReader& reader) {
  const RunConfig& config = reader.config;
  const std::vector<RowIds> by_member = reading_of(table, reader, 0, 0).by_member;
  double looked_up = 0;
  for (const RowIds& rows : by_member) looked_up += static_cast<double>(rows.size());
  const TableShares dealt{ReplicaCut::rows, static_cast<int>(config.mesh.dp), table.sizes[1]};
  std::uint64_t served = 0;
  for (int m = 0; m < dealt.members; ++m) {
    const RowBytes sent = bytes_sent(dealt, by_member, 1, m);
    served = std::max(served, sent.forward + sent.backward);
  }
  const auto item = static_cast<double>(bytes_of(config.run.master_type()));
  const auto width = static_cast<double>(table.sizes[1]);
  return {.rows = static_cast<double>(table.sizes[0]),
          .width = width,
          .row_bytes = item * width,
          .read_bytes = static_cast<double>(bytes_of(config.run.compute_type())) * width,
          .looked_up = looked_up / static_cast<double>(config.mesh.dp),
          .all_read = static_cast<double>(union_of(by_member).size()),
          .served = static_cast<double>(served) / width};
}

// How long it takes to tell apart what the next step reads, of every other row of 4096.
double measure_seconds_per_row() {
  RowIds rows, next;
  for (std::int64_t row = 0; row < 4096; ++row) rows.push_back(3 * row);
  for (std::int64_t row = 0; row < 4096; ++row) next.push_back(6 * row);
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 5; ++round) {
    const Stopwatch watch;
    const RowSplit split = split_rows(rows, next);
    const std::size_t found =
        rows_at(rows, split.prior).size() + rows_at(rows, split.delayed).size();
    LACONIC_ASSERT(found == rows.size(), "rows were lost");
    least = std::min(least, watch.seconds());
  }
  return least / static_cast<double>(rows.size());
}

}  // namespace

ReadShares read_shares(const ParameterSpec& table, const RowReader& reader, std::int64_t step,
                       std::int64_t position) {
  const RunConfig& config = reader.config;
  const TableReading now = reading_of(table, reader, step, position);
  RowIds next;
  if (step + 1 < config.train.steps)
    next = union_of(reading_of(table, reader, step + 1, position + config.train.batch).by_member);
  double rows = 0, prior = 0;
  for (const RowIds& ids : now.by_member) {
    rows += static_cast<double>(ids.size());
    prior += static_cast<double>(split_rows(ids, next).prior.size());
  }
  const double tokens = now.tokens * static_cast<double>(config.mesh.dp);
  return {.unique = tokens > 0 ? rows / tokens : 0, .prior = rows > 0 ? prior / rows : 0};
}

RowRates measure_row_rates(const LinkFacts& link, World& world) {
  const std::vector<RowRates> all =
      world.gather_values(RowRates{.bytes_per_second = link.slowest_bytes_per_second,
                                   .latency = link.dp_latency,
                                   .seconds_per_row = measure_seconds_per_row()});
  RowRates rates = all.front();
  for (const RowRates& of_rank : all)
    rates.seconds_per_row = std::max(rates.seconds_per_row, of_rank.seconds_per_row);
  return rates;
}

RowDecision decide_rows(const RunConfig& config, World& world, const std::string& network_of_rank) {
  const int per_card = ranks_per_card(world, network_of_rank);
  const DataFacts facts = read_data_facts(config.data.train);
  const Family family =
      config.model.start.empty()
          ? family_of(config, {.vocabulary = facts.vocabulary, .labels = facts.labels})
          : with_head(read_family(config.model.start), config,
                      {.vocabulary = facts.vocabulary, .labels = facts.labels});
  std::vector<ParameterSpec> tables;
  for (const ParameterSpec& p : model_spec(family, config.model.context).parameters)
    if (!p.looked_up_by.empty()) tables.push_back(p);
  if (tables.empty()) return {{}, {fmt::format("{} has no table of rows", to_text(family))}};
  const Dataset data = open_dataset(config.data.train, config.model.context, vocabulary_of(family),
                                    0, sample_kind_of(config));
  const SampleOrder order = sample_order(config, samples_in(data), 0);
  const Task task = task_of(config, data);
  const RowReader reader{config, data, order, task};
  const RowRates& rates = config.embedding_rows.rates;
  const RowNetwork network{.ranks = static_cast<int>(config.mesh.dp),
                           .per_card = per_card,
                           .bytes_per_second = rates.bytes_per_second,
                           .latency = rates.latency};
  RowDecision decision;
  for (const ParameterSpec& table : tables) {
    const TableFacts facts = facts_of(table, reader);
    const bool may_sum = config.embedding_rows.optimiser == RowsOptimiser::same;
    const RowChoice choice =
        choose_method(facts, network, methods_for(facts, network.ranks, may_sum));
    decision.methods[table.name] = method_of(choice.method);
    decision.reasons.push_back(fmt::format("{}: {}", table.name, choice.reason));
  }
  return decision;
}

}  // namespace laconic
