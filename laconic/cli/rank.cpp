#include "laconic/cli/rank.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/early_signals.hpp"
#include "laconic/cli/flights.hpp"
#include "laconic/cli/transport_table.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/engine/preflight.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/socket.hpp"
#include "laconic/train/common_start.hpp"
#include "laconic/transport/faulty.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {

namespace {

std::chrono::milliseconds deadline_of(const NetworkSection& network) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(network.deadline * 1000));
}

EngineOptions engine_options(const NetworkSection& network) {
  return {.segment_bytes = static_cast<std::size_t>(network.segment),
          .deadline = deadline_of(network)};
}

Meeting meeting_of(const Place& place, const NetworkSection& network) {
  return {.rank = place.rank,
          .size = place.size,
          .host = place.host,
          .port = place.port,
          .run_id = place.run_id,
          .attempt = place.attempt,
          .agent_store = place.agent_store,
          .interface = network.interface,
          .deadline = deadline_of(network)};
}

// Everything that is known to be impossible before anybody is met. All ranks find the same, unless
// they were told different things.
Problems find_impossible(const RunConfig& config, int ranks) {
  Problems problems = check_mesh(config, ranks);
  const auto add = [&](const char* key, const auto& find) {
    try {
      append(problems, all_at(key, find()));
    } catch (const ConfigError& error) {
      append(problems, all_at(key, error.problems()));
    }
  };
  add("network.shape", [&] { return check(parse_shape(config.network.shape), ranks); });
  add("network.faults", [&] { return check(parse_faults(config.network.faults), ranks); });
  return problems;
}

std::unique_ptr<Transport> decorated(std::unique_ptr<Transport> transport,
                                     const NetworkSection& network) {
  if (!network.shape.empty())
    transport = make_shaped(std::move(transport), parse_shape(network.shape));
  if (!network.faults.empty())
    transport = make_faulty(std::move(transport), parse_faults(network.faults));
  return transport;
}

// What a dataset holds, wherever it lies and whether or not a sidecar is beside it: two ranks must
// not take their samples from different ones. Its size, and its first and last megabyte.
std::string content_of(const std::string& prefix) {
  if (prefix.empty()) return "";
  constexpr std::size_t kRead = 1 << 20;
  try {
    const MappedFile tokens(prefix + ".bin");
    const ByteView bytes = tokens.bytes();
    Checksum sum;
    sum.update(bytes.first(std::min(kRead, bytes.size())));
    sum.update(bytes.last(std::min(kRead, bytes.size())));
    const std::optional<Sidecar> sidecar = read_sidecar(prefix);
    return fmt::format("{} bytes, xxh3 of both ends {}{}", bytes.size(), sum.hex(),
                       sidecar && sidecar->prompts > 0
                           ? fmt::format(", {} prompts, xxh3 of the index {}", sidecar->prompts,
                                         checksum_of_file(prefix + ".idx"))
                           : "");
  } catch (const std::exception&) {
    return "cannot be read";
  }
}

// What has to be the same everywhere, with what the data holds for where it lies.
std::string common_text(const RunConfig& mine) {
  RunConfig config = common_part(mine);
  config.data.train = content_of(config.data.train);
  config.data.valid = content_of(config.data.valid);
  return to_toml(config, false);
}

std::string digest_of(const std::string& text) {
  Checksum sum;
  sum.update(as_bytes(std::span(text.data(), text.size())));
  return sum.hex();
}

double slowest_of(const PreflightReport& report) {
  double slowest = 0;
  for (const std::vector<double>& row : report.mbit_per_s)
    for (const double mbit : row)
      if (std::isfinite(mbit) && mbit > 0 && (slowest == 0 || mbit < slowest)) slowest = mbit;
  return slowest * 1e6 / 8;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double latency_of_replicas(const PreflightReport& report, const Mesh& mesh) {
  std::vector<double> latencies;
  for (Rank from = 0; from < size(mesh) && !report.latency_ms.empty(); ++from)
    for (const Rank to : group_of(mesh, from, Axis::dp)) {
      const double ms =
          report.latency_ms[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
      if (to != from && std::isfinite(ms)) latencies.push_back(ms / 1e3);
    }
  return median_of(std::move(latencies));
}

// Between neighbours in the pipeline: the slowest rate and the median latency count.
LinkFacts facts_of(const PreflightReport& report, const Mesh& mesh) {
  LinkFacts facts{.slowest_bytes_per_second = slowest_of(report),
                  .dp_latency = latency_of_replicas(report, mesh)};
  std::vector<double> latencies;
  for (Rank from = 0; from < size(mesh); ++from)
    for (const int offset : {-1, 1}) {
      const std::optional<Rank> to = neighbour(mesh, from, Axis::pp, offset);
      if (!to || report.mbit_per_s.empty()) continue;
      const auto f = static_cast<std::size_t>(from), t = static_cast<std::size_t>(*to);
      const double rate = report.mbit_per_s[f][t] * 1e6 / 8;
      if (!std::isfinite(rate)) continue;
      if (facts.bytes_per_second == 0 || rate < facts.bytes_per_second)
        facts.bytes_per_second = rate;
      latencies.push_back(report.latency_ms[f][t] / 1e3);
    }
  facts.latency = median_of(std::move(latencies));
  return facts;
}

// Throws ConfigError where ranks were told different things, and PeerLost where they do not hear of
// each other. What the pre-flight sends is counted like all else.
PreflightReport look_at_network(Transport& transport, const RunConfig& config, Meter& meter,
                                bool measures) {
  const std::string text = common_text(config);
  const PreflightReport report = preflight(transport,
                                           {.rank = transport.rank(),
                                            .host = host_name(),
                                            .pid = ::getpid(),
                                            .version = version_text(),
                                            .config_digest = digest_of(text),
                                            .config_text = text},
                                           {.deadline = deadline_of(config.network),
                                            .measure = measures && config.network.preflight,
                                            .meter = &meter});
  // A rank that died or was late is no fault of the request.
  if (!report.problems.empty() && are_of_links(report.problems))
    throw PeerLost(
        -1, fmt::format("not all ranks can talk to each other:\n{}", to_text(report.problems)));
  refuse(report.problems);
  return report;
}

void introduce(const Place& place, const PreflightReport& report) {
  fmt::print("{}\n{}", to_text(place), to_text(report));
  std::fflush(stdout);
}

TrainSummary train_over(Transport& transport, TrainOptions options, Store* store,
                        const MeterReading& so_far, const PreflightReport& network,
                        const RankWork& work) {
  const RunConfig& config = options.config;
  Engine engine(transport, engine_options(config.network));
  engine.meter().include(so_far);
  ProgressThread progress_thread(engine);
  World world(mesh_of(config), progress_thread);
  Flights flights(world, config.run.folder, store);
  options.world = &world;
  try {
    TrainSummary summary = work ? work(options, network) : train(options);
    engine.flush();
    world.gather({});  // nobody leaves while another may still need him
    engine.flush();
    return summary;
  } catch (const PeerLost& error) {
    throw PeerLost(error.peer(), flights.explain(error.what()));
  } catch (const Timeout& error) {
    throw Timeout(error.peer(), flights.explain(error.what()));
  } catch (const WireError& error) {  // damaged on the way: no refusal, it may go well next time
    flights.leave_cause(error.what());
    throw std::runtime_error(error.what());
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    flights.leave_cause(error.what());
    throw;
  }
}

}  // namespace

// What cannot be is said last, when it is known that all ranks were told the same: a rank that went
// at once would leave the others to wait for it, and nobody would learn what the difference was.
TrainSummary train_as_rank(TrainOptions options, const Place& place, const RankWork& work,
                           bool introduces) {
  const RunConfig& config = options.config;
  const Problems impossible = find_impossible(config, place.size);
  options.start.local_rank = place.local_rank;
  const Meeting meeting = meeting_of(place, config.network);
  std::unique_ptr<Store> store;
  std::unique_ptr<Transport> transport;
  Meter before;
  PreflightReport report;
  std::optional<EarlySignals> early(options.stop_signal);
  try {
    const TransportRow& row = choose_transport(config.network.transport);
    if (row.traits.meets_at_store) store = meet(meeting);
    transport = row.connect(place, meeting, store.get());
    if (impossible.empty()) transport = decorated(std::move(transport), config.network);
    report = look_at_network(*transport, config, before, impossible.empty());
    if (introduces && place.rank == 0) introduce(place, report);
    if (impossible.empty()) options.link = facts_of(report, mesh_of(config));
  } catch (const ConfigError& error) {
    Problems problems = error.problems();
    append(problems, impossible);
    throw ConfigError(std::move(problems));
  } catch (const std::exception&) {  // not all have come
    if (impossible.empty()) throw;
  }
  if (!impossible.empty()) throw ConfigError(impossible);
  early.reset();
  return train_over(*transport, std::move(options), store.get(), before.read(), report, work);
}

TrainSummary train_in_threads(const TrainOptions& options) {
  const Problems impossible = find_impossible(options.config, size(mesh_of(options.config)));
  if (!impossible.empty()) throw ConfigError(impossible);
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process(size(mesh_of(options.config)));
  for (std::unique_ptr<Transport>& transport : transports)
    transport = decorated(std::move(transport), options.config.network);
  TrainSummary first;
  run_ranks(transports, [&](Transport& transport) {
    TrainOptions mine = options;
    mine.start.local_rank = transport.rank();  // all are on this machine
    TrainSummary summary = train_over(transport, mine, nullptr, {}, {}, {});
    if (transport.rank() == 0) first = std::move(summary);
  });
  return first;
}

}  // namespace laconic
