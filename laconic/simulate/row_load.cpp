#include "laconic/simulate/row_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/rows/row_method.hpp"

namespace laconic {

namespace {

constexpr double kBitsOfAByte = 8;

// What a rank reads a row by: tokens of samples, and words that are drawn.
struct Reading {
  double tokens = 0;  // of a rank in a step
  std::optional<Negatives> drawn;
  bool is_drawn_alike = false;  // by all ranks
  double ranks = 1;

  // That nobody of `count` ranks reads it.
  double missed(double probability, std::int64_t word, double count) const {
    double missed = std::pow(1 - probability, tokens * count);
    if (drawn) missed *= std::pow(1 - expected_count(*drawn, word), is_drawn_alike ? 1 : count);
    return missed;
  }
};

Reading reading_of(const RunConfig& config, const ParameterSpec& table) {
  Reading reading{.drawn = std::nullopt, .ranks = static_cast<double>(config.mesh.dp)};
  for (const std::string& field : table.looked_up_by) {
    if (field != kDrawnField) {
      reading.tokens +=
          static_cast<double>(config.local_batch()) * static_cast<double>(config.model.context);
    } else if (const std::optional<Key> key = negatives_key_of(config, 0, 0)) {
      reading.drawn = draw_negatives(table.sizes[0], config.task.sampled, *key);
      reading.is_drawn_alike = config.task.negatives == NegativesOf::shared;
    }
  }
  return reading;
}

struct LinkRate {
  double bytes_per_second = 0;  // of the slowest
  double latency = 0;
};

LinkRate slowest_of(const Hosts& hosts) {
  LinkRate rate;
  for (const HostGroup& group : hosts.groups) {
    const double bytes = kTcpShare * group.card.bits_per_second / kBitsOfAByte;
    if (rate.bytes_per_second == 0 || bytes < rate.bytes_per_second) rate.bytes_per_second = bytes;
    rate.latency = std::max(rate.latency, 2 * group.card.latency_seconds);
  }
  return rate;
}

std::uint64_t row_bytes(const RunConfig& config, const ParameterSpec& table) {
  return bytes_of(config.run.master_type()) * static_cast<std::uint64_t>(table.sizes[1]);
}

RowsMethod method_like(RowMethod method) {
  switch (method) {
    case RowMethod::alltoall: return RowsMethod::alltoall;
    case RowMethod::allgather: return RowsMethod::allgather;
    case RowMethod::server: return RowsMethod::server;
    case RowMethod::allreduce: break;
  }
  return RowsMethod::allreduce;
}

int most_ranks_of_a_host(const Hosts& hosts) {
  int most = 1;
  for (const HostGroup& group : hosts.groups) most = std::max(most, group.ranks_per_host);
  return most;
}

}  // namespace

RowLoad row_load(const RunConfig& config, const ModelSpec& spec, std::size_t parameter,
                 double known_read) {
  const ParameterSpec& table = spec.parameters[parameter];
  const Reading reading = reading_of(config, table);
  const bool is_split = splits_rows(config);
  RowLoad load{.parameter = parameter, .method = method_of_table(config, table.name)};
  const std::vector<double> law = probabilities_of(lm1b_law(table.sizes[0]));
  for (std::size_t word = 0; word < law.size(); ++word) {
    const auto number = static_cast<std::int64_t>(word);
    const double read = 1 - reading.missed(law[word], number, 1);
    const double untouched = reading.missed(law[word], number, reading.ranks);
    load.read += read;
    load.all_read += 1 - untouched;
    load.prior += read * (1 - untouched);
    load.early += read * untouched * (is_split ? untouched : 1);  // nor put off by the step before
  }
  if (known_read <= 0) return load;
  const double times = known_read / load.read;
  load.all_read = std::min(static_cast<double>(table.sizes[0]), times * load.all_read);
  load.prior *= times;
  load.early *= times;
  load.read = known_read;
  return load;
}

std::vector<RowLoad> row_loads(const RunConfig& config, const ModelSpec& spec, double known_read) {
  std::vector<RowLoad> loads;
  for (const std::size_t parameter : row_tables(config, spec))
    loads.push_back(row_load(config, spec, parameter, known_read));
  return loads;
}

bool splits_on(const RunConfig& config, const ModelSpec& spec, const RowLoad& load,
               const Hosts& hosts) {
  if (!splits_rows(config)) return false;
  const LinkRate link = slowest_of(hosts);
  const SplitPrice price{.is_free = config.embedding_rows.split == RowsSplit::on,
                         .bytes_per_second = link.bytes_per_second,
                         .seconds_per_message = link.latency};
  const auto ranks = static_cast<double>(config.mesh.dp);
  const std::uint64_t copies =
      load.method == RowsMethod::allgather ? static_cast<std::uint64_t>(config.mesh.dp) : 1;
  return pays_to_split(price, static_cast<std::uint64_t>(ranks * load.read),
                       static_cast<std::uint64_t>(ranks * (load.read - load.prior)),
                       copies * row_bytes(config, spec.parameters[load.parameter]),
                       static_cast<int>(config.mesh.dp));
}

void decide_rows_for(RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                     double known_read) {
  if (config.embedding_rows.method != RowsMethod::automatic) return;
  const LinkRate link = slowest_of(hosts);
  const RowNetwork network{.ranks = static_cast<int>(config.mesh.dp),
                           .per_card = most_ranks_of_a_host(hosts),
                           .bytes_per_second = link.bytes_per_second,
                           .latency = link.latency};
  std::map<std::string, RowsMethod> decided;
  for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
    const ParameterSpec& table = spec.parameters[p];
    if (table.looked_up_by.empty()) continue;
    const RowLoad load = row_load(config, spec, p, known_read);
    const TableFacts facts{
        .rows = static_cast<double>(table.sizes[0]),
        .width = static_cast<double>(table.sizes[1]),
        .row_bytes = static_cast<double>(row_bytes(config, table)),
        .read_bytes = static_cast<double>(bytes_of(config.run.compute_type())) *
                      static_cast<double>(table.sizes[1]),
        .looked_up = load.read,
        .all_read = load.all_read,
        .served = 2 * load.read * (network.ranks - 1.0) / static_cast<double>(network.ranks)};
    const bool may_sum = config.embedding_rows.optimiser == RowsOptimiser::same;
    const RowChoice choice =
        choose_method(facts, network, methods_for(facts, network.ranks, may_sum));
    decided[table.name] = method_like(choice.method);
  }
  config.embedding_rows.decided = std::move(decided);
}

std::string describe(const std::vector<RowLoad>& loads, const ModelSpec& spec, bool is_known) {
  std::string text;
  for (const RowLoad& load : loads)
    text +=
        fmt::format("rows of {} by {}: a rank is taken to read {:.0f} of {} in a step, {}\n",
                    spec.parameters[load.parameter].name, name_in(kRowsMethodNames, load.method),
                    load.read, spec.parameters[load.parameter].sizes[0],
                    is_known ? "as told" : "as words come in the One Billion Word benchmark");
  return text;
}

}  // namespace laconic
