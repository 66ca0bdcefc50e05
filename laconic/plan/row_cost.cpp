#include "laconic/plan/row_cost.hpp"

#include <cmath>

#include "laconic/config/row_choice.hpp"

namespace laconic {

namespace {

double seconds_at(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

// What one member has for another.
TensorSpec chunk_of(RowsMethod method, Dtype dtype, std::int64_t rows, std::int64_t width,
                    std::int64_t members) {
  switch (method) {
    case RowsMethod::alltoall:
      if (width % members == 0) return {dtype, {rows, width / members}};
      return {dtype, {rows * width / members}};
    case RowsMethod::server:
      return {dtype,
              {std::llround(static_cast<double>(rows) / static_cast<double>(members)), width}};
    case RowsMethod::allgather:
    case RowsMethod::allreduce:
    case RowsMethod::automatic: break;
  }
  return {dtype, {rows, width}};
}

// Everybody encodes what it has for each other member, and decodes what comes.
SumCost exchange_cost(const CodecSpec& codec, const TensorSpec& chunk, std::int64_t members,
                      const HostDevice& device) {
  SumCost cost;
  const auto n = static_cast<double>(members), others = n - 1;
  const double payload = static_cast<double>(max_payload_bytes(codec, chunk)),
               bytes = 4 * others * static_cast<double>(elements_of(chunk));
  const CodecRate rate = codec_rate(device, codec);
  cost.up_bytes = n * payload;
  cost.handled_bytes = others * payload;
  cost.messages = others;
  cost.calls = 1;
  cost.codec_seconds =
      seconds_at(bytes, rate.encode) + (is_lossy(codec) ? seconds_at(bytes, rate.decode) : 0);
  return cost;
}

RowCost row_cost(const RunConfig& config, const ModelSpec& spec, const RowLoad& load,
                 const Hosts& hosts, const HostDevice& device) {
  const ParameterSpec& table = spec.parameters[load.parameter];
  const std::int64_t members = config.mesh.dp, width = table.sizes[1];
  const bool is_cut = load.method != RowsMethod::allgather;
  const bool is_split = splits_on(config, spec, load, hosts);
  const std::int64_t read = std::llround(load.read),
                     prior = is_split ? std::llround(load.prior) : read;
  const auto exchange = [&](const std::string& codec, Dtype dtype, std::int64_t rows) {
    return exchange_cost(parse_codec(codec), chunk_of(load.method, dtype, rows, width, members),
                         members, device);
  };
  const Dtype master = config.run.master_type();
  RowCost cost{.parameter = load.parameter,
               .block = static_cast<std::size_t>(first_user(spec, load.parameter)),
               .copied_bytes =
                   load.read * static_cast<double>(bytes_of(master)) * static_cast<double>(width),
               .updated = load.all_read / (is_cut ? static_cast<double>(members) : 1) *
                          static_cast<double>(width),
               .asks_for_norm = config.embedding_rows.clip == RowsClip::all &&
                                !splits_rows(config) && config.train.update == UpdateBy::step};
  if (is_cut) cost.rows = exchange(config.embedding_rows.codec, config.run.compute_type(), read);
  cost.prior = exchange(config.embedding_rows.gradient, master, prior);
  if (is_split) cost.delayed = exchange(config.embedding_rows.gradient, master, read - prior);
  return cost;
}

}  // namespace

std::vector<RowCost> row_costs(const RunConfig& config, const ModelSpec& spec,
                               const std::vector<RowLoad>& loads, const Hosts& hosts,
                               const HostDevice& device) {
  std::vector<RowCost> costs;
  for (RowLoad load : loads) {
    load.method = config.embedding_rows.method;
    costs.push_back(row_cost(config, spec, load, hosts, device));
  }
  return costs;
}

}  // namespace laconic
