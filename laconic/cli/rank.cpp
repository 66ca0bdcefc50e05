#include "laconic/cli/rank.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/config/read.hpp"
#include "laconic/engine/preflight.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/train/update_rule.hpp"
#include "laconic/transport/faulty.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/mpi.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kFlightPatience{3};  // for the records of other ranks

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::chrono::milliseconds deadline_of(const NetworkSection& network) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(network.deadline * 1000));
}

EngineOptions engine_options(const NetworkSection& network) {
  return {.segment_bytes = static_cast<std::size_t>(network.segment),
          .deadline = deadline_of(network)};
}

Mesh mesh_of(const RunConfig& config) {
  return {.dp = static_cast<int>(config.mesh.dp)};
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

std::string transport_name(const NetworkSection& network) {
  if (network.transport != "auto") return network.transport;
  return has_gloo() || !has_mpi() ? "gloo" : "mpi";
}

// Everything that is known to be impossible before anybody is met. All ranks find the same.
void require_possible(const RunConfig& config, int ranks) {
  Problems problems = check(mesh_of(config), ranks);
  if (problems.empty()) problems = check_parallel(config);
  const auto add = [&](const char* key, const auto& find) {
    try {
      for (Problem& p : find()) problems.push_back({key, std::move(p.what)});
    } catch (const ConfigError& error) {
      for (const Problem& p : error.problems()) problems.push_back({key, p.what});
    }
  };
  add("network.shape", [&] { return check(parse_shape(config.network.shape), ranks); });
  add("network.faults", [&] { return check(parse_faults(config.network.faults), ranks); });
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

std::unique_ptr<Transport> decorated(std::unique_ptr<Transport> transport,
                                     const NetworkSection& network) {
  if (!network.shape.empty())
    transport = make_shaped(std::move(transport), parse_shape(network.shape));
  if (!network.faults.empty())
    transport = make_faulty(std::move(transport), parse_faults(network.faults));
  return transport;
}

// What has to be the same everywhere: not how a machine is equipped, or where its files are.
std::string common_text(RunConfig config) {
  config.run.threads = 0;
  config.run.folder = "";
  config.network.interface.clear();
  config.data.train = config.data.valid = "";
  return to_toml(config, false);
}

std::string digest_of(const std::string& text) {
  Checksum sum;
  sum.update(as_bytes(std::span(text.data(), text.size())));
  return sum.hex();
}

void look_at_network(Transport& transport, const RunConfig& config, const Place& place) {
  const std::string text = common_text(config);
  const PreflightReport report =
      preflight(transport,
                {.rank = transport.rank(),
                 .host = host_name(),
                 .pid = ::getpid(),
                 .version = version_text(),
                 .config_digest = digest_of(text),
                 .config_text = text},
                {.deadline = deadline_of(config.network), .measure = config.network.preflight});
  if (!report.problems.empty()) throw ConfigError(report.problems);
  if (transport.rank() != 0) return;
  fmt::print("{}\n{}", to_text(place), to_text(report));
  std::fflush(stdout);
}

// --- after a failure

std::string flight_folder(const RunConfig& config) {
  return config.run.folder + "/flight";
}

std::string flight_file(const RunConfig& config, Rank rank) {
  return fmt::format("{}/rank-{}.json", flight_folder(config), rank);
}

std::string flight_key(Rank rank) {
  return fmt::format("flight/{}", rank);
}

// Through the store as well as the folder: either may be out of reach.
void leave_flight(const RunConfig& config, const Flight& flight, Store* store) {
  const std::string json = to_json(flight);
  try {
    fs::create_directories(flight_folder(config));
    write_atomically(flight_file(config, flight.rank), json);
  } catch (const std::exception&) {  // not worth hiding the failure that brought us here
  }
  try {
    if (store != nullptr)
      store->set(flight_key(flight.rank), as_bytes(std::span(json.data(), json.size())));
  } catch (const std::exception&) {
  }
}

std::optional<Flight> find_flight(Rank rank, const RunConfig& config, Store* store,
                                  fs::file_time_type since) {
  try {
    const std::string path = flight_file(config, rank);
    if (fs::exists(path) && fs::last_write_time(path) >= since)
      return parse_flight(MappedFile(path).text());
  } catch (const std::exception&) {
  }
  try {
    if (store == nullptr || !store->exists(flight_key(rank))) return std::nullopt;
    const Bytes json = store->get(flight_key(rank), in(std::chrono::seconds(1)));
    return parse_flight({reinterpret_cast<const char*>(json.data()), json.size()});
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// All that can be had within some seconds: the others fail within moments of each other, too.
std::vector<Flight> collect_flights(const Flight& mine, int size, const RunConfig& config,
                                    Store* store, fs::file_time_type since) {
  std::map<Rank, Flight> found = {{mine.rank, mine}};
  const Stopwatch watch;
  while (static_cast<int>(found.size()) < size &&
         watch.seconds() < static_cast<double>(kFlightPatience.count())) {
    for (Rank r = 0; r < size; ++r)
      if (!found.contains(r))
        if (std::optional<Flight> flight = find_flight(r, config, store, since))
          found.emplace(r, std::move(*flight));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::vector<Flight> flights;
  for (auto& [rank, flight] : found) flights.push_back(std::move(flight));
  return flights;
}

Flight flight_of(const std::string& error, World& world) {
  return {.rank = world.rank(),
          .host = host_name(),
          .doing = world.doing(),
          .error = error,
          .records = world.engine().recorder().records(),
          .taken_ns = world.engine().recorder().now_ns()};
}

// The failure in the words of all ranks. The lowest that has lost another writes them down.
std::string explain(const std::string& error, World& world, const RunConfig& config, Store* store,
                    fs::file_time_type since) {
  const Flight mine = flight_of(error, world);
  leave_flight(config, mine, store);
  const std::vector<Flight> flights = collect_flights(mine, world.size(), config, store, since);
  const std::string text = verdict(flights, world.size());
  const auto writer = std::find_if(flights.begin(), flights.end(),
                                   [](const Flight& flight) { return !flight.is_cause; });
  if (writer->rank != mine.rank) return error;
  try {
    write_atomically(flight_folder(config) + "/verdict.txt", text);
  } catch (const std::exception&) {
  }
  return fmt::format("{}\n{}\n(the records of {} ranks are in {})", error,
                     text.substr(0, text.find('\n')), flights.size(), flight_folder(config));
}

// This rank fails by itself. The others lose it, and will want to know why.
void leave_cause(const std::string& error, World& world, const RunConfig& config, Store* store) {
  Flight mine = flight_of(error, world);
  mine.is_cause = true;
  leave_flight(config, mine, store);
}

TrainSummary train_over(Transport& transport, TrainOptions options, Store* store) {
  const fs::file_time_type since = fs::file_time_type::clock::now();
  const RunConfig& config = options.config;
  Engine engine(transport, engine_options(config.network));
  Courier courier(engine);
  World world(mesh_of(config), courier);
  options.world = &world;
  try {
    TrainSummary summary = train(options);
    engine.flush();
    world.gather({});  // nobody leaves while another may still need him
    engine.flush();
    return summary;
  } catch (const PeerLost& error) {
    throw PeerLost(error.peer(), explain(error.what(), world, config, store, since));
  } catch (const Timeout& error) {
    throw Timeout(error.peer(), explain(error.what(), world, config, store, since));
  } catch (const WireError& error) {  // damaged on the way: no refusal, it may go well next time
    leave_cause(error.what(), world, config, store);
    throw std::runtime_error(error.what());
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception& error) {
    leave_cause(error.what(), world, config, store);
    throw;
  }
}

}  // namespace

namespace {

// Who has started us need not be MPI, which then knows of one rank only.
std::unique_ptr<Transport> mpi_at(const Place& place) {
  std::unique_ptr<Transport> transport = make_mpi();
  if (transport->size() != place.size || transport->rank() != place.rank)
    throw ConfigError({{"network.transport",
                        fmt::format("to MPI this is rank {} of {}, to {} rank {} of {}: start the "
                                    "ranks with mpirun",
                                    transport->rank(), transport->size(), place.source, place.rank,
                                    place.size)}});
  return transport;
}

}  // namespace

TrainSummary train_as_rank(TrainOptions options, const Place& place) {
  const RunConfig& config = options.config;
  require_possible(config, place.size);
  const bool is_mpi = transport_name(config.network) == "mpi";
  const Meeting meeting = meeting_of(place, config.network);
  const std::unique_ptr<Store> store = is_mpi ? nullptr : meet(meeting);
  const std::unique_ptr<Transport> transport =
      decorated(is_mpi ? mpi_at(place) : make_gloo(meeting, *store), config.network);
  look_at_network(*transport, config, place);
  return train_over(*transport, std::move(options), store.get());
}

TrainSummary train_in_threads(const TrainOptions& options) {
  require_possible(options.config, size(mesh_of(options.config)));
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process(size(mesh_of(options.config)));
  for (std::unique_ptr<Transport>& transport : transports)
    transport = decorated(std::move(transport), options.config.network);
  TrainSummary first;
  run_ranks(transports, [&](Transport& transport) {
    TrainSummary summary = train_over(transport, options, nullptr);
    if (transport.rank() == 0) first = std::move(summary);
  });
  return first;
}

}  // namespace laconic
