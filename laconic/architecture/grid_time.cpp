#include "laconic/architecture/grid_time.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <utility>

namespace laconic {

namespace {

double per(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

using Shares = std::array<double, 3>;  // of the axes, in one

Shares shares_of(const GridTraffic& t, const Mesh& mesh) {
  Shares shares = carried({t}, mesh);
  const double all = shares[0] + shares[1] + shares[2];
  for (double& share : shares) share = all > 0 ? share / all : 0;
  return shares;
}

// How soon somebody waits for a collective, as model/grid_products.cpp and grid/overlap.cpp say it:
// of what is under way the most urgent has the link.
enum class Urgency : std::uint8_t { now, next, last };

// A collective that was started. Its bytes are handled while others are on the wire, so that it
// takes whichever is longer. `link` and `work` are the parts of that time in which it needs the
// link and the processor.
struct Flight {
  Urgency urgency = Urgency::now;
  double left = 0;  // seconds that it has to go on for
  double link = 0, work = 0;
  double latency = 0;  // from then on until its result is there
  Shares shares = {};
  std::optional<double> end;  // when it had no more to do
};
using FlightNumber = std::size_t;

// One rank: what it has done so far, and when.
class RankClock {
 public:
  RankClock(const Mesh& mesh, const GridMachine& machine, const GridBytes& bytes)
      : mesh_(mesh), machine_(machine), bytes_(bytes) {}

  void multiply(double multiply_adds) {
    events_.push_back({.kind = GridEvent::Kind::product, .multiply_adds = multiply_adds});
    be_busy_with(multiply_adds);
  }
  void compute(double multiply_adds, double elements) {
    events_.push_back(
        {.kind = GridEvent::Kind::other, .multiply_adds = multiply_adds, .elements = elements});
    be_busy_with(multiply_adds, elements);
  }
  void be_busy_with(double multiply_adds, double elements = 0) {
    const double seconds = per(2 * multiply_adds, machine_.flops_per_second) +
                           per(elements, machine_.elements_per_second);
    spent_.compute += seconds;
    be_busy(seconds);
  }
  FlightNumber start(const GridTraffic& t, Urgency urgency) {
    const int members = extent(mesh_, t.axes);
    const GridWire wire = bytes_(t);
    const int rounds = t.collective == GridCollective::all_reduce && !wire.is_gathered ? 2 : 1;
    const double messages = rounds * t.calls * (members - 1);
    spent_.bytes += wire.bytes;
    spent_.calls += t.calls;
    spent_.messages += messages;
    const double begin =
        messages * machine_.message_seconds + rounds * t.calls * machine_.call_seconds;
    spent_.handling += begin;
    be_busy(begin);
    const bool is_sum = t.collective != GridCollective::all_gather;
    const bool is_ring =
        goes_round_a_ring(wire.bytes / messages, members, is_sum && wire.is_encoded);
    // Every message of a ring waits for the one before it; only there no two come at once.
    const double loss = is_ring ? 0 : loss_of(members, wire.bytes / rounds / t.calls);
    const double link = per(wire.bytes, machine_.bytes_per_second) + rounds * t.calls * loss,
                 work = per(wire.bytes, machine_.handled_bytes_per_second),
                 both = std::max(link, work);
    flights_.push_back({.urgency = urgency,
                        .left = both,
                        .link = both > 0 ? link / both : 0,
                        .work = both > 0 ? work / both : 0,
                        .latency = (is_ring ? messages : rounds * t.calls) * machine_.latency,
                        .shares = shares_of(t, mesh_)});
    under_way_.push_back(flights_.size() - 1);
    events_.push_back({.kind = GridEvent::Kind::start,
                       .traffic = t,
                       .collective = flights_.size() - 1,
                       .urgency = static_cast<int>(urgency)});
    started_.push_back(t);
    return flights_.size() - 1;
  }
  // The time until then is that of whatever has the link, in its turn; what is left is latency.
  void wait(FlightNumber number) {
    events_.push_back(
        {.kind = GridEvent::Kind::wait, .traffic = started_[number], .collective = number});
    while (!flights_[number].end) wait_for(flights_[most_urgent()].left);
    const Flight flight = flights_[number];
    const double latency = *flight.end + flight.latency - now_;
    if (latency > 0) expose(latency - wait_for(latency), flight.shares);
  }
  void wait(const std::optional<FlightNumber>& flight) {
    if (flight) wait(*flight);
  }
  void exchange(const GridTraffic& t) { wait(start(t, Urgency::now)); }

  // What was spent since the last of these.
  GridTime take() { return std::exchange(spent_, {}); }
  // What happened since the last of these, in order.
  std::vector<GridEvent> take_events() { return std::exchange(events_, {}); }

 private:
  double loss_of(int members, double bytes_of_a_round) const {
    return members > 2 && bytes_of_a_round > machine_.queue_bytes ? machine_.loss_seconds : 0;
  }
  void expose(double seconds, const Shares& shares) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      spent_.exposed.at(axis) += seconds * shares.at(axis);
  }
  FlightNumber most_urgent() const {
    return *std::ranges::min_element(
        under_way_, {}, [&](FlightNumber n) { return std::pair(flights_[n].urgency, n); });
  }
  // The most urgent of what is under way goes on for so long.
  void go_on(FlightNumber number, double seconds) {
    Flight& flight = flights_[number];
    flight.left -= seconds;
    spent_.handling += flight.work * seconds;
    now_ += seconds;
    if (flight.left > 0) return;
    flight.end = now_;
    std::erase(under_way_, number);
  }
  // The processor has so many seconds of work. What handling takes of them comes on top.
  void be_busy(double seconds) {
    while (!under_way_.empty()) {
      const FlightNumber number = most_urgent();
      const Flight flight = flights_[number];
      const double free = 1 - flight.work;  // of a second
      const bool ends = flight.left * free <= seconds;
      const double time = ends ? flight.left : seconds / free;
      spent_.hidden += flight.link * time;
      go_on(number, time);
      seconds -= free * time;
      if (!ends) return;
    }
    now_ += seconds;
  }
  // The rank waits for so long; how much of it something was under way.
  double wait_for(double seconds) {
    double used = 0;
    while (!under_way_.empty()) {
      const FlightNumber number = most_urgent();
      const Flight flight = flights_[number];
      const bool ends = flight.left <= seconds - used;
      const double time = ends ? flight.left : seconds - used;
      const double idle = (1 - flight.work) * time;
      expose(idle, flight.shares);
      spent_.hidden += flight.link * time - idle;
      go_on(number, time);
      used += time;
      if (!ends) break;
    }
    now_ += seconds - used;
    return used;
  }

  const Mesh& mesh_;
  const GridMachine& machine_;
  const GridBytes& bytes_;
  double now_ = 0;
  std::vector<Flight> flights_;
  std::vector<FlightNumber> under_way_;
  std::vector<GridEvent> events_;
  std::vector<GridTraffic> started_;  // by flight
  GridTime spent_;
};

// Weights of a pass's maps, in the order in which they are asked for; with prefetch one ahead, and
// gradients of them one behind (grid/overlap.hpp).
class WeightClock {
 public:
  WeightClock(RankClock& clock, bool prefetches) : clock_(clock), prefetches_(prefetches) {}

  void expect(const GridTraffic* gather) {
    if (gather != nullptr) order_.push_back(gather);
  }
  // Requires: the next of what is expected.
  std::optional<FlightNumber> ask(const GridTraffic* gather) {
    if (gather == nullptr) return std::nullopt;
    const FlightNumber asked = ahead_ ? *ahead_ : clock_.start(*gather, Urgency::now);
    ahead_.reset();
    order_.pop_front();
    if (prefetches_ && !order_.empty()) ahead_ = clock_.start(*order_.front(), Urgency::next);
    return asked;
  }
  void leave(FlightNumber gradient) {
    settle();
    leaving_ = gradient;
    if (!prefetches_) settle();
  }
  void settle() { clock_.wait(std::exchange(leaving_, std::nullopt)); }

 private:
  RankClock& clock_;
  const bool prefetches_;
  std::deque<const GridTraffic*> order_;
  std::optional<FlightNumber> ahead_, leaving_;
};

// What one map moves in one pass. In backward the gradient of the input moves, and where it is not
// kept the input once more.
struct MapMoves {
  const GridTraffic *weight = nullptr, *input = nullptr, *output = nullptr,
                    *input_gradient = nullptr, *weight_gradient = nullptr;
};

MapMoves moves_of(std::span<const GridTraffic> traffic, int map, bool is_backward) {
  MapMoves moves;
  for (const GridTraffic& t : traffic) {
    if (t.map != map || t.is_backward != is_backward) continue;
    const bool is_gather = t.collective == GridCollective::all_gather;
    if (t.use == CollectiveUse::output) moves.output = &t;
    if (t.use == CollectiveUse::weight) (is_gather ? moves.weight : moves.weight_gradient) = &t;
    if (t.use == CollectiveUse::input)
      (is_gather || !is_backward ? moves.input : moves.input_gradient) = &t;
  }
  return moves;
}

// Walks a block as the head of the header says.
class BlockWalk {
 public:
  BlockWalk(RankClock& clock, WeightClock& weights, std::span<const GridTraffic> traffic,
            const std::vector<GridMapWork>& maps, double multiply_adds, double normed)
      : clock_(clock), weights_(weights), traffic_(traffic), maps_(maps), normed_(normed) {
    for (const GridMapWork& map : maps) multiply_adds -= map.multiply_adds;
    rest_ = std::max(0.0, multiply_adds);  // attention
  }

  void expect_forward() {
    for (std::size_t m = 0; m < maps_.size(); ++m) weights_.expect(moves(m, false).weight);
  }
  void expect_backward() {
    for (std::size_t m = maps_.size(); m-- > 0;) weights_.expect(moves(m, true).weight);
  }

  void forward() {
    exchange_others(false);
    for (std::size_t m = 0; m < maps_.size(); ++m) {
      const MapMoves map = moves(m, false);
      const auto weight = weights_.ask(map.weight);
      exchange(map.input);
      clock_.wait(weight);
      clock_.multiply(maps_[m].multiply_adds);
      exchange(map.output);
    }
    clock_.compute(rest_, normed_ / 3);
  }

  void backward() {
    clock_.compute(2 * rest_, 2 * normed_ / 3);
    for (std::size_t m = maps_.size(); m-- > 0;) {
      const MapMoves map = moves(m, true);
      const double work = maps_[m].multiply_adds;
      const auto weight = weights_.ask(map.weight);
      exchange(map.output);
      exchange(map.input);
      clock_.multiply(work);
      if (map.weight_gradient != nullptr) {
        const FlightNumber leaving = clock_.start(*map.weight_gradient, Urgency::last);
        clock_.wait(weight);
        clock_.multiply(work);
        exchange(map.input_gradient);
        weights_.leave(leaving);
      } else {
        std::optional<FlightNumber> leaving;
        if (map.input_gradient != nullptr)
          leaving = clock_.start(*map.input_gradient, Urgency::now);
        clock_.multiply(work);
        clock_.wait(leaving);
      }
    }
    exchange_others(true);
    weights_.settle();
  }

 private:
  MapMoves moves(std::size_t map, bool is_backward) const {
    return moves_of(traffic_, static_cast<int>(map), is_backward);
  }
  void exchange(const GridTraffic* t) {
    if (t != nullptr) clock_.exchange(*t);
  }
  void exchange_others(bool is_backward) {
    for (const GridTraffic& t : traffic_)
      if (t.map == kNoMap && t.is_backward == is_backward) clock_.exchange(t);
  }

  RankClock& clock_;
  WeightClock& weights_;
  const std::span<const GridTraffic> traffic_;
  const std::vector<GridMapWork>& maps_;
  double rest_ = 0;
  const double normed_;
};

// Of all traffic, which is in the order of blocks, that of one.
std::span<const GridTraffic> of_block(const std::vector<GridTraffic>& traffic, std::size_t block) {
  const auto [first, last] = std::ranges::equal_range(traffic, block, {}, &GridTraffic::block);
  return {first, last};
}

}  // namespace

GridTime& GridTime::operator+=(const GridTime& more) {
  compute += more.compute;
  handling += more.handling;
  for (std::size_t axis = 0; axis < 3; ++axis) exposed.at(axis) += more.exposed.at(axis);
  hidden += more.hidden;
  bytes += more.bytes;
  calls += more.calls;
  messages += more.messages;
  return *this;
}

namespace {

// A microbatch, by block.
struct GridWalk {
  std::vector<GridBlockTime> times;
  std::vector<GridBlockEvents> events;
};

GridWalk walked(RankClock& clock, const ModelSpec& spec, const GridPlan& plan, const GridLoad& load,
                const GridPasses& passes, std::size_t first, std::size_t end) {
  const std::vector<GridTraffic> traffic = grid_traffic(spec, plan, load);
  const std::size_t blocks = spec.blocks.size();
  WeightClock weights(clock, passes.prefetches);
  std::vector<std::vector<GridMapWork>> maps;
  std::vector<BlockWalk> walks;
  for (std::size_t b = 0; b < blocks; ++b)
    maps.push_back(grid_map_work(spec, plan, b, load.samples));
  for (std::size_t b = 0; b < blocks; ++b)
    walks.emplace_back(
        clock, weights, of_block(traffic, b), maps[b],
        spec.blocks[b].multiply_adds * static_cast<double>(load.samples) / tp_size(plan.mesh),
        grid_normed_elements(spec, plan, b, load.samples));
  const auto recomputes = [&](std::size_t b) {
    return passes.recomputes && !spec.blocks[b].out.empty();
  };
  std::vector<GridBlockTime> times(blocks);
  std::vector<GridBlockEvents> events(blocks);
  for (std::size_t b = first; b < end; ++b) walks[b].expect_forward();
  for (std::size_t b = first; b < end; ++b) {
    walks[b].forward();
    times[b].forward = clock.take();
    events[b].forward = clock.take_events();
  }
  for (std::size_t b = end; b-- > first;) {
    if (recomputes(b)) walks[b].expect_forward();
    walks[b].expect_backward();
  }
  for (std::size_t b = end; b-- > first;) {
    if (recomputes(b)) walks[b].forward();
    walks[b].backward();
    times[b].backward = clock.take();
    events[b].backward = clock.take_events();
  }
  return {std::move(times), std::move(events)};
}

}  // namespace

std::vector<GridBlockTime> grid_times(const ModelSpec& spec, const GridPlan& plan,
                                      const GridLoad& load, const GridMachine& machine,
                                      const GridBytes& bytes, const GridPasses& passes) {
  RankClock clock(plan.mesh, machine, bytes);
  return walked(clock, spec, plan, load, passes, 0, spec.blocks.size()).times;
}

std::vector<GridBlockEvents> grid_block_events(const ModelSpec& spec, const GridPlan& plan,
                                               const GridLoad& load, const GridPasses& passes,
                                               std::size_t first, std::size_t end) {
  const GridMachine machine;
  const GridBytes no_bytes = [](const GridTraffic&) { return GridWire(); };
  RankClock clock(plan.mesh, machine, no_bytes);
  return walked(clock, spec, plan, load, passes, first, end).events;
}

std::vector<GridEvent> grid_events(const ModelSpec& spec, const GridPlan& plan,
                                   const GridLoad& load, const GridPasses& passes) {
  const std::vector<GridBlockEvents> blocks =
      grid_block_events(spec, plan, load, passes, 0, spec.blocks.size());
  std::vector<GridEvent> all;
  for (const GridBlockEvents& block : blocks)
    all.insert(all.end(), block.forward.begin(), block.forward.end());
  for (std::size_t b = blocks.size(); b-- > 0;)
    all.insert(all.end(), blocks[b].backward.begin(), blocks[b].backward.end());
  std::erase_if(all, [](const GridEvent& e) { return e.kind == GridEvent::Kind::other; });
  return all;
}

GridTime grid_step_time(const std::vector<GridBlockTime>& blocks, std::int64_t microbatches,
                        double parameters, const GridMachine& machine) {
  GridTime step;
  for (std::int64_t m = 0; m < microbatches; ++m)
    for (const GridBlockTime& block : blocks) {
      step += block.forward;
      step += block.backward;
    }
  step.compute += per(parameters, machine.updates_per_second);
  return step;
}

}  // namespace laconic
