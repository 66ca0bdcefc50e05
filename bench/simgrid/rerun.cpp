#include "bench/simgrid/rerun.hpp"

#include <fmt/format.h>

#include <xbt/log.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <simgrid/s4u.hpp>
#include <utility>

#include "laconic/base/index.hpp"

namespace laconic {

namespace {

namespace sg4 = simgrid::s4u;

constexpr double kFlops = 1e9;  // of a core: a second of work is so many operations

struct Order {
  std::uint64_t key = 0, sequence = 0;
  auto operator<=>(const Order&) const = default;
};

struct Task {
  double seconds = 0;
  std::function<void()> then;
};

// Does one thing at a time, the smallest key first.
struct WorkerQueue {
  std::map<Order, Task> waiting;
  sg4::SemaphorePtr filled = sg4::Semaphore::create(0);
};

struct OutboxQueue {
  std::map<Order, std::pair<int, double>> waiting;  // message, bytes of it that are left
  bool is_busy = false;
};

class Rerun {
 public:
  Rerun(const RunProgram& program, const SimgridWire& wire, double payload_share)
      : program_(program), wire_(wire), payload_share_(payload_share) {
    make_platform();
    for (std::size_t m = 0; m < program.messages.size(); ++m)
      arrived_.push_back(sg4::Semaphore::create(0));
    for (std::size_t s = 0; s < program.strands.size(); ++s)
      ended_.push_back(sg4::Semaphore::create(0));
    workers_.resize(program.workers.size());
    for (std::size_t w = 0; w < program.workers.size(); ++w)
      sg4::Actor::create("worker", place_of(program.workers[w]), [this, w] {
        work(w);
      })->daemonize();
  }

  double seconds() {
    for (std::size_t s = 0; s < program_.strands.size(); ++s)
      if (program_.strands[s].starts_alone) start(static_cast<int>(s));
    sg4::Engine::get_instance()->run();
    return last_;
  }

 private:
  // --- hosts, cores and links

  void make_platform() {
    const NetworkMap& network = program_.network;
    zone_ = sg4::create_full_zone("all");
    for (std::size_t h = 0; h < network.hosts.size(); ++h)
      hosts_.push_back(zone_->create_host(fmt::format("host {}", h), kFlops)->seal());
    for (std::size_t p = 0; p < program_.cores.size(); ++p)
      processors_.push_back(zone_->create_host(fmt::format("processor {}", p), kFlops)
                                ->set_core_count(static_cast<int>(program_.cores[p]))
                                ->seal());
    for (std::size_t l = 0; l < network.bytes_per_second.size(); ++l)
      links_.push_back(
          zone_
              ->create_link(fmt::format("link {}", l), network.bytes_per_second[l] / payload_share_)
              ->set_latency(wire_.is_stream ? 0 : latency_of_link(static_cast<int>(l)))
              ->seal());
    std::set<std::pair<int, int>> known;  // pairs of hosts
    for (const ProgramMessage& m : program_.messages) {
      add_route(m.from, m.to, known);
      add_route(m.to, m.from, known);  // of acknowledgements
    }
    zone_->seal();
  }

  // Of the port that it belongs to, so that those of a route add up to its latency.
  double latency_of_link(int link) const {
    for (const auto& ports : {program_.network.hosts, program_.network.groups})
      for (const NetworkMap::Port& port : ports)
        if (port.out == link || port.in == link) return port.latency;
    for (const NetworkMap::Port& port : program_.network.inside)
      if (port.out == link) return port.latency;
    return 0;
  }

  void add_route(int from, int to, std::set<std::pair<int, int>>& known) {
    const int source = program_.network.host_of_rank[index(from)],
              target = program_.network.host_of_rank[index(to)];
    const FlowPath path = route_between(program_.network, from, to).path;
    if (path.count == 0 || !known.emplace(source, target).second) return;
    std::vector<sg4::LinkInRoute> route;
    for (int i = 0; i < path.count; ++i) route.emplace_back(links_[index(path.links.at(index(i)))]);
    zone_->add_route(hosts_[index(source)]->get_netpoint(), hosts_[index(target)]->get_netpoint(),
                     nullptr, nullptr, route, false);
  }

  sg4::Host* host_of(int rank) const {
    return hosts_[index(program_.network.host_of_rank[index(rank)])];
  }

  sg4::Host* place_of(const Worker& worker) const {
    return worker.processor < 0 ? host_of(worker.rank) : processors_[index(worker.processor)];
  }

  // --- strands

  void start(int strand) {
    const Worker& worker = program_.workers[index(program_.strands[index(strand)].worker)];
    sg4::Actor::create("strand", host_of(worker.rank), [this, strand] { walk(strand); });
  }

  void walk(int number) {
    const Strand& strand = program_.strands[index(number)];
    for (const StrandAct& act : strand.acts) switch (act.op) {
        case StrandOp::compute: compute(strand, act.seconds); break;
        case StrandOp::send: send(act.index); break;
        case StrandOp::wait: arrived_[index(act.index)]->acquire(); break;
        case StrandOp::start: start(act.index); break;
        case StrandOp::join:
          ended_[index(act.index)]->acquire();
          ended_[index(act.index)]->release();  // for others who join it
          break;
        case StrandOp::begin:
        case StrandOp::end: break;
      }
    ended_[index(number)]->release();
    last_ = std::max(last_, sg4::Engine::get_clock());
  }

  // --- workers

  void give(int worker, std::uint64_t key, Task task) {
    workers_[index(worker)].waiting.emplace(Order{key, sequence_++}, std::move(task));
    workers_[index(worker)].filled->release();
  }

  void compute(const Strand& strand, double seconds) {
    if (seconds <= 0) return;
    const auto done = sg4::Semaphore::create(0);
    give(strand.worker, strand.key, {seconds, [&done] { done->release(); }});
    done->acquire();
  }

  void work(std::size_t number) {
    const int processor = program_.workers[number].processor;
    WorkerQueue& queue = workers_[number];
    while (true) {
      queue.filled->acquire();
      const Task task = std::move(queue.waiting.begin()->second);
      queue.waiting.erase(queue.waiting.begin());
      if (processor < 0)
        sg4::this_actor::sleep_for(task.seconds);
      else
        sg4::this_actor::execute(task.seconds * kFlops);
      task.then();
    }
  }

  // --- messages

  void send(int number) {
    const ProgramMessage& m = program_.messages[index(number)];
    if (m.send_seconds > 0)
      give(program_.handlers[index(m.from)], m.key,
           {m.send_seconds, [this, number] { enqueue(number); }});
    else
      enqueue(number);
  }

  void enqueue(int number) {
    const ProgramMessage& m = program_.messages[index(number)];
    OutboxQueue& outbox = outboxes_[{m.from, m.to}];
    outbox.waiting.emplace(Order{m.key, sequence_++}, std::pair{number, m.bytes});
    if (std::exchange(outbox.is_busy, true)) return;
    sg4::Actor::create("outbox", host_of(m.from), [this, &outbox] { empty(outbox); });
  }

  void empty(OutboxQueue& outbox) {
    while (!outbox.waiting.empty()) {
      const auto [order, left] = *outbox.waiting.begin();
      outbox.waiting.erase(outbox.waiting.begin());
      const double segment = wire_.is_stream ? program_.segment_bytes : left.second;
      const double bytes = std::min(left.second, segment);
      flow(program_.messages[index(left.first)], bytes);
      if (bytes < left.second)
        outbox.waiting.emplace(order, std::pair{left.first, left.second - bytes});
      else
        travel(left.first);
    }
    outbox.is_busy = false;
  }

  void flow(const ProgramMessage& m, double bytes) {
    if (route_between(program_.network, m.from, m.to).path.count > 0)
      sg4::Comm::sendto(host_of(m.from), host_of(m.to),
                        static_cast<std::uint64_t>(std::llround(bytes)));
  }

  void travel(int number) {
    const ProgramMessage& m = program_.messages[index(number)];
    const double latency = route_between(program_.network, m.from, m.to).latency;
    if (!wire_.is_stream || latency == 0) return receive(number);
    sg4::Actor::create("wire", host_of(m.to), [this, number, latency] {
      sg4::this_actor::sleep_for(latency);
      receive(number);
    });
  }

  void receive(int number) {
    const ProgramMessage& m = program_.messages[index(number)];
    const auto arrive = [this, number] { arrived_[index(number)]->release(); };
    if (m.receive_seconds > 0)
      give(program_.handlers[index(m.to)], m.key, {m.receive_seconds, arrive});
    else
      arrive();
  }

  const RunProgram& program_;
  const SimgridWire& wire_;
  const double payload_share_;
  sg4::NetZone* zone_ = nullptr;
  std::vector<sg4::Host*> hosts_, processors_;
  std::vector<sg4::Link*> links_;
  std::vector<sg4::SemaphorePtr> arrived_, ended_;
  std::vector<WorkerQueue> workers_;
  std::map<std::pair<int, int>, OutboxQueue> outboxes_;
  std::uint64_t sequence_ = 0;
  double last_ = 0;
};

}  // namespace

double seconds_by_simgrid(const RunProgram& program, const SimgridWire& wire,
                          double payload_share) {
  int argc = 1;
  char name[] = "simgrid";
  char* argv[] = {name, nullptr};
  xbt_log_control_set("root.thres:warning");  // which settings there are stands below
  sg4::Engine engine(&argc, argv);
  // CM02: flows share links max-min fairly from their first byte. No limit by a window (gamma), no
  // bias towards flows of wide links (weight-S).
  for (const char* setting : {"network/model:CM02", "network/TCP-gamma:0", "network/weight-S:0",
                              "contexts/stack-size:64", "network/loopback-lat:0"})
    sg4::Engine::set_config(setting);
  sg4::Engine::set_config("network/bandwidth-factor", wire.bandwidth_factor);
  sg4::Engine::set_config("network/latency-factor", wire.latency_factor);
  sg4::Engine::set_config("network/crosstraffic", wire.has_crosstraffic);
  return Rerun(program, wire, payload_share).seconds();
}

}  // namespace laconic
