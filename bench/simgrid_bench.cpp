// Runs programs of simulated steps once more by SimGrid, somebody else's simulator, and compares.
//
//   build/bin/simgrid_bench
//
// Every strand is an actor, every outbox another; messages are SimGrid's own communications between
// hosts, over links of the same rates and latencies. Its model of TCP is the fluid one (CM02)
// without a window (TCP-gamma 0), so that both share links max-min fairly; how they get there is
// each one's own. Differences that stay: here a message that follows another on its way leaves when
// the first has left, there when it has arrived, a latency later; and nobody overtakes in an
// outbox.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <simgrid/s4u.hpp>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/index.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {
namespace {

namespace sg4 = simgrid::s4u;

// A program on its way through SimGrid.
class Rerun {
 public:
  explicit Rerun(const RunProgram& program) : program_(program) {
    make_platform();
    for (std::size_t m = 0; m < program.messages.size(); ++m)
      arrived_.push_back(sg4::Semaphore::create(0));
    for (std::size_t s = 0; s < program.strands.size(); ++s)
      begun_.push_back(sg4::Semaphore::create(0)), ended_.push_back(sg4::Semaphore::create(0));
    for (std::size_t w = 0; w < program.workers.size(); ++w)
      workers_.push_back(sg4::Mutex::create());
  }

  double seconds() {
    for (std::size_t s = 0; s < program_.strands.size(); ++s)
      sg4::Actor::create(fmt::format("strand {}", s), host_of(rank_of_strand(s)),
                         [this, s] { walk(s); });
    sg4::Engine::get_instance()->run();
    return last_;
  }

 private:
  struct Outbox {
    std::multimap<std::uint64_t, int> waiting;
    bool is_busy = false;
  };

  void make_platform() {
    const NetworkMap& network = program_.network;
    auto* zone = sg4::create_star_zone("hosts");
    for (std::size_t h = 0; h < network.hosts.size(); ++h) {
      const NetworkMap::Port& port = network.hosts[h];
      auto* host = zone->create_host(fmt::format("host {}", h), 1e9)->seal();
      const auto link = [&](int number, const char* way) {
        return zone
            ->create_link(fmt::format("{} {}", way, h), network.bytes_per_second[index(number)])
            ->set_latency(port.latency)
            ->seal();
      };
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {{link(port.out, "out")}},
                      false);
      zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {{link(port.in, "in")}},
                      false);
      hosts_.push_back(host);
    }
    zone->seal();
  }

  int rank_of_strand(std::size_t strand) const {
    return program_.workers[index(program_.strands[strand].worker)].rank;
  }
  sg4::Host* host_of(int rank) const {
    return hosts_[index(program_.network.host_of_rank[index(rank)])];
  }

  void walk(std::size_t number) {
    const Strand& strand = program_.strands[number];
    if (!strand.starts_alone) begun_[number]->acquire();
    for (const StrandAct& act : strand.acts) switch (act.op) {
        case StrandOp::compute:
          workers_[index(strand.worker)]->lock();
          sg4::this_actor::sleep_for(act.seconds);
          workers_[index(strand.worker)]->unlock();
          break;
        case StrandOp::send: send(act.index); break;
        case StrandOp::wait: arrived_[index(act.index)]->acquire(); break;
        case StrandOp::start: begun_[index(act.index)]->release(); break;
        case StrandOp::join:
          ended_[index(act.index)]->acquire();
          ended_[index(act.index)]->release();
          break;
        case StrandOp::begin:
        case StrandOp::end: break;
      }
    ended_[number]->release();
    last_ = std::max(last_, sg4::Engine::get_clock());
  }

  void send(int message) {
    const ProgramMessage& m = program_.messages[index(message)];
    Outbox& outbox = outboxes_[{m.from, m.to}];
    outbox.waiting.emplace(m.key, message);
    if (std::exchange(outbox.is_busy, true)) return;
    sg4::Actor::create(fmt::format("outbox {} {}", m.from, m.to), host_of(m.from),
                       [this, &outbox] { empty(outbox); });
  }

  void empty(Outbox& outbox) {
    while (!outbox.waiting.empty()) {
      const int message = outbox.waiting.begin()->second;
      outbox.waiting.erase(outbox.waiting.begin());
      const ProgramMessage& m = program_.messages[index(message)];
      sg4::Comm::sendto(host_of(m.from), host_of(m.to),
                        static_cast<std::uint64_t>(std::llround(m.bytes)));
      arrived_[index(message)]->release();
    }
    outbox.is_busy = false;
  }

  const RunProgram& program_;
  std::vector<sg4::Host*> hosts_;
  std::vector<sg4::SemaphorePtr> arrived_, begun_, ended_;
  std::vector<sg4::MutexPtr> workers_;
  std::map<std::pair<int, int>, Outbox> outboxes_;
  double last_ = 0;
};

Hosts bare_hosts(int count, double flops) {
  HostGroup group{.name = "bare", .hosts = count};
  group.device.is_gpu = true;
  group.device.multiply_adds_per_second[0] = flops;
  group.card = {100e6, 50e-6, true};
  return {{group}};
}

RunProgram exchange_program(Algorithm algorithm, int members, std::uint64_t elements) {
  const Hosts hosts = bare_hosts(members, 0);
  const std::vector<Seat> seats = seats_of(hosts);
  ProgramBuilder builder(hosts, seats, classes_of({.dp = members}, hosts, seats, Folding::never),
                         RunPrecision::float32);
  CollectiveSpec spec{.traffic = Traffic::dp_gradient, .algorithm = algorithm};
  spec.group.resize(index(members));
  std::iota(spec.group.begin(), spec.group.end(), 0);
  spec.offsets = cut(elements, chunks_of(spec.kind, algorithm, members), 256);
  for (const auto& [rank, strand] : add_collective(builder, spec, 0)) {
    const int main = builder.add_main(rank);
    builder.start(main, strand);
    builder.join(main, strand);
  }
  return builder.program();
}

RunProgram run_program(int pp, int dp, const char* tp, const char* schedule) {
  RunConfig config;
  config.model.layers = 8;
  config.model.width = 256;
  config.model.heads = 8;
  config.model.vocabulary = 2048;
  config.mesh.pp = pp;
  config.mesh.dp = dp;
  config.mesh.tp = tp;
  config.train.batch = 32 * dp;
  config.train.microbatch = 8;
  config.pipeline.schedule = schedule;
  const Mesh mesh = mesh_of(config);
  const Hosts hosts = bare_hosts(size(mesh), 1e12);
  const Family family = family_of(config, {});
  const GridPlan grid = grid_plan_of(config, family);
  const ModelSpec spec = model_spec(family, context_of(family));
  const PipelineDecisions decisions = decide_for(config, spec, hosts);
  const SimulationRequest request{.config = config,
                                  .spec = spec,
                                  .grid = grid,
                                  .decisions = decisions,
                                  .hosts = hosts,
                                  .folding = Folding::never};
  return program_of(request, classes_of(mesh, hosts, seats_of(hosts), Folding::never), 1);
}

struct Case {
  std::string name;
  std::function<RunProgram()> program;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [algorithm, members] : {std::pair{Algorithm::direct, 4},
                                           {Algorithm::direct, 32},
                                           {Algorithm::ring, 8},
                                           {Algorithm::ring, 64},
                                           {Algorithm::doubling, 64},
                                           {Algorithm::doubling, 256}})
    all.push_back({fmt::format("{} all-reduce of {}", name_of(algorithm), members),
                   [a = algorithm, m = members] { return exchange_program(a, m, 1 << 20); }});
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"})
    all.push_back(
        {fmt::format("{} of 8", schedule), [=] { return run_program(8, 1, "1", schedule); }});
  for (const auto& [pp, dp, tp] :
       {std::tuple{1, 16, "1"}, {4, 4, "1"}, {1, 1, "2,2,2"}, {2, 4, "1,2,1"}, {8, 32, "1"}})
    all.push_back({fmt::format("pp {} x dp {} x tp {}", pp, dp, tp),
                   [pp = pp, dp = dp, tp = tp] { return run_program(pp, dp, tp, "1f1b"); }});
  return all;
}

// SimGrid has one engine for a process: each case is a run of its own, asked for by its number.
int compare(int argc, char** argv) {
  const std::vector<Case> all = cases();
  if (argc < 2) {
    fmt::print("| program | messages | here s | SimGrid s | apart |\n|---|--:|--:|--:|--:|\n");
    int failures = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::fflush(stdout);
      failures += std::system(fmt::format("{} {}", argv[0], i).c_str()) != 0 ? 1 : 0;
    }
    fmt::print("{} of {} are within 5 %\n", all.size() - index(failures), all.size());
    return failures;
  }
  const std::size_t number = std::stoul(argv[1]);
  sg4::Engine engine(&argc, argv);
  for (const char* setting : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0",
                              "network/weight-S:0", "contexts/stack-size:64"})
    sg4::Engine::set_config(setting);
  const RunProgram program = all[number].program();
  const double here = simulate(program).seconds, there = Rerun(program).seconds();
  fmt::print("| {} | {} | {:.5f} | {:.5f} | {:+.2f} % |\n", all[number].name,
             program.messages.size(), here, there, 100 * (here / there - 1));
  return std::abs(here / there - 1) <= 0.05 ? 0 : 1;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  return laconic::compare(argc, argv);
}
