#include "laconic/train/row_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/run_facts.hpp"

namespace laconic {

RowIds RowReader::rows(std::int64_t position, int member, const std::string& field) const {
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
  return unique_rows(ids);
}

namespace {

// Ranks of a dp group that share a machine, and so its card, at most.
int ranks_per_card(World& world) {
  const std::string host = host_name();
  const std::vector<Bytes> hosts =
      world.gather(as_bytes(std::span<const char>(host.data(), host.size())));
  std::map<Bytes, int> counts;
  int most = 1;
  for (const Rank rank : group_of(world.mesh(), 0, Axis::dp))
    most = std::max(most, ++counts[hosts[static_cast<std::size_t>(rank)]]);
  return most;
}

RowsMethod method_of(RowMethod method) {
  switch (method) {
    case RowMethod::alltoall: return RowsMethod::alltoall;
    case RowMethod::allgather: return RowsMethod::allgather;
    case RowMethod::allreduce:
    case RowMethod::server: break;
  }
  return RowsMethod::allreduce;
}

TableFacts facts_of(const ParameterSpec& table, const RowReader& reader) {
  std::vector<RowIds> by_member;
  double looked_up = 0;
  for (int m = 0; m < static_cast<int>(reader.config.mesh.dp); ++m) {
    std::vector<RowIds> by_field;
    for (const std::string& field : table.looked_up_by)
      by_field.push_back(reader.rows(0, m, field));
    by_member.push_back(union_of(by_field));
    looked_up += static_cast<double>(by_member.back().size());
  }
  const auto item = static_cast<double>(bytes_of(reader.config.run.master_type()));
  return {.rows = static_cast<double>(table.sizes[0]),
          .width = static_cast<double>(table.sizes[1]),
          .row_bytes = item * static_cast<double>(table.sizes[1]),
          .looked_up = looked_up / static_cast<double>(reader.config.mesh.dp),
          .all_read = static_cast<double>(union_of(by_member).size())};
}

std::vector<RowMethod> allowed_methods(const RunConfig& config,
                                       const std::vector<ParameterSpec>& tables) {
  const bool can_be_cut = std::ranges::all_of(
      tables, [&](const ParameterSpec& table) { return table.sizes[1] >= config.mesh.dp; });
  std::vector<RowMethod> allowed;
  if (can_be_cut) allowed.push_back(RowMethod::alltoall);
  allowed.push_back(RowMethod::allgather);
  if (config.embedding_rows.optimiser == RowsOptimiser::same)
    allowed.push_back(RowMethod::allreduce);
  return allowed;
}

}  // namespace

RowDecision decide_rows(const RunConfig& config, World& world) {
  const int per_card = ranks_per_card(world);
  const DataFacts facts = read_data_facts(config.data.train);
  const Family family =
      config.model.start.empty()
          ? family_of(config, {.vocabulary = facts.vocabulary, .labels = facts.labels})
          : read_family(config.model.start);
  std::vector<ParameterSpec> tables;
  for (const ParameterSpec& p : model_spec(family, config.model.context).parameters)
    if (!p.looked_up_by.empty()) tables.push_back(p);
  if (tables.empty())
    return {RowsMethod::allreduce, {fmt::format("{} has no table of rows", to_text(family))}};
  const Dataset data = open_dataset(config.data.train, config.model.context, vocabulary_of(family),
                                    0, sample_kind_of(config));
  const SampleOrder order = sample_order(config, samples_in(data), 0);
  const Task task = task_of(config, data);
  const RowReader reader{config, data, order, task};
  const RowNetwork network{.ranks = static_cast<int>(config.mesh.dp), .per_card = per_card};
  const std::vector<RowMethod> allowed = allowed_methods(config, tables);
  // One way for all tables: the one that costs least for all of them together.
  std::vector<TableFacts> of_tables;
  for (const ParameterSpec& table : tables) of_tables.push_back(facts_of(table, reader));
  const RowMethod best = *std::ranges::min_element(allowed, {}, [&](RowMethod method) {
    double sum = 0;
    for (const TableFacts& table : of_tables) sum += cost_of(method, table, network);
    return sum;
  });
  RowDecision decision{method_of(best), {}};
  for (std::size_t i = 0; i < tables.size(); ++i)
    decision.reasons.push_back(fmt::format("{}: {}", tables[i].name,
                                           choose_method(of_tables[i], network, allowed).reason));
  return decision;
}

}  // namespace laconic
