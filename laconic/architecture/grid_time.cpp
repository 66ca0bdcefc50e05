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

// A collective that was started: when it has the link, and when its result is there.
struct Flight {
  double begin = 0, end = 0;
  double there = 0;
  Shares shares = {};
};

// One rank: what it has done so far, and when.
class RankClock {
 public:
  RankClock(const Mesh& mesh, const GridMachine& machine, const GridBytes& bytes)
      : mesh_(mesh), machine_(machine), bytes_(bytes) {}

  void compute(double multiply_adds) {
    const double seconds = per(2 * multiply_adds, machine_.flops_per_second);
    now_ += seconds;
    spent_.compute += seconds;
  }
  Flight start(const GridTraffic& t) {
    const int rounds = t.collective == GridCollective::all_reduce ? 2 : 1;
    const double bytes = bytes_(t), messages = rounds * t.calls * (extent(mesh_, t.axes) - 1);
    const double handling =
        per(bytes, machine_.handled_bytes_per_second) + messages * machine_.message_seconds;
    now_ += handling;
    spent_.handling += handling;
    spent_.bytes += bytes;
    spent_.calls += t.calls;
    spent_.messages += messages;
    const double begin = std::max(on_link_.empty() ? 0 : on_link_.back().end, now_);
    const double end = begin + per(bytes, machine_.bytes_per_second) +
                       rounds * t.calls * loss_of(t, bytes / rounds);
    spent_.hidden += end - begin;
    on_link_.push_back(
        {begin, end, end + rounds * t.calls * machine_.latency, shares_of(t, mesh_)});
    return on_link_.back();
  }
  // The time until then is that of whatever has the link, in its turn; what is left is latency.
  void wait(const Flight& flight) {
    double left = std::max(0.0, flight.there - now_);
    const double until = now_ + left;
    for (const Flight& other : on_link_) {
      const double both = std::min(until, other.end) - std::max(now_, other.begin);
      if (both <= 0) continue;
      expose(both, other.shares);
      spent_.hidden -= both;
      left -= both;
    }
    expose(std::max(0.0, left), flight.shares);
    now_ = std::max(now_, until);
    while (on_link_.size() > 1 && on_link_.front().end <= now_) on_link_.pop_front();
  }
  void wait(const std::optional<Flight>& flight) {
    if (flight) wait(*flight);
  }
  void exchange(const GridTraffic& t) { wait(start(t)); }

  // What was spent since the last of these.
  GridTime take() { return std::exchange(spent_, {}); }

 private:
  // Of one round, in which so many bytes come.
  double loss_of(const GridTraffic& t, double bytes) const {
    const bool is_from_several = extent(mesh_, t.axes) > 2;
    return is_from_several && bytes / t.calls > machine_.queue_bytes ? machine_.loss_seconds : 0;
  }
  void expose(double seconds, const Shares& shares) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      spent_.exposed.at(axis) += seconds * shares.at(axis);
  }

  const Mesh& mesh_;
  const GridMachine& machine_;
  const GridBytes& bytes_;
  double now_ = 0;
  std::deque<Flight> on_link_;  // one after the other; the last may be over
  GridTime spent_;
};

// What one map moves in one pass; the input is gathered again in backward, where its gradient
// moves, too.
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
  BlockWalk(RankClock& clock, std::span<const GridTraffic> traffic,
            const std::vector<GridMapWork>& maps, double multiply_adds)
      : clock_(clock), traffic_(traffic), maps_(maps) {
    for (const GridMapWork& map : maps) multiply_adds -= map.multiply_adds;
    rest_ = std::max(0.0, multiply_adds);  // attention
  }

  void forward() {
    exchange_others(false);
    for (std::size_t m = 0; m < maps_.size(); ++m) {
      const MapMoves moves = moves_of(traffic_, static_cast<int>(m), false);
      const auto weight = start(moves.weight);
      exchange(moves.input);
      clock_.wait(weight);
      clock_.compute(maps_[m].multiply_adds);
      exchange(moves.output);
    }
    clock_.compute(rest_);
  }

  void backward() {
    clock_.compute(2 * rest_);
    for (std::size_t m = maps_.size(); m-- > 0;) {
      const MapMoves moves = moves_of(traffic_, static_cast<int>(m), true);
      const double work = maps_[m].multiply_adds;
      const auto weight = start(moves.weight);
      exchange(moves.output);
      exchange(moves.input);
      clock_.compute(work);
      const bool gathers = moves.weight_gradient != nullptr;
      const auto leaving = start(gathers ? moves.weight_gradient : moves.input_gradient);
      clock_.wait(weight);
      clock_.compute(work);
      if (gathers) exchange(moves.input_gradient);
      clock_.wait(leaving);
    }
    exchange_others(true);
  }

 private:
  std::optional<Flight> start(const GridTraffic* t) {
    return t != nullptr ? std::optional(clock_.start(*t)) : std::nullopt;
  }
  void exchange(const GridTraffic* t) {
    if (t != nullptr) clock_.exchange(*t);
  }
  void exchange_others(bool is_backward) {
    for (const GridTraffic& t : traffic_)
      if (t.map == kNoMap && t.is_backward == is_backward) clock_.exchange(t);
  }

  RankClock& clock_;
  const std::span<const GridTraffic> traffic_;
  const std::vector<GridMapWork>& maps_;
  double rest_ = 0;
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

std::vector<GridBlockTime> grid_times(const ModelSpec& spec, const GridPlan& plan,
                                      const GridLoad& load, const GridMachine& machine,
                                      const GridBytes& bytes, bool recomputes) {
  const std::vector<GridTraffic> traffic = grid_traffic(spec, plan, load);
  RankClock clock(plan.mesh, machine, bytes);
  std::vector<GridBlockTime> times(spec.blocks.size());
  const auto walk = [&](std::size_t b, auto pass) {
    const BlockSpec& block = spec.blocks[b];
    const auto maps = grid_map_work(spec, plan, b, load.samples);
    const double share = static_cast<double>(load.samples) / tp_size(plan.mesh);
    BlockWalk walk_of_block(clock, of_block(traffic, b), maps, block.multiply_adds * share);
    pass(walk_of_block);
    return clock.take();
  };
  for (std::size_t b = 0; b < times.size(); ++b)
    times[b].forward = walk(b, [](BlockWalk& w) { w.forward(); });
  for (std::size_t b = times.size(); b-- > 0;)
    times[b].backward = walk(b, [&](BlockWalk& w) {
      if (recomputes && !spec.blocks[b].out.empty()) w.forward();
      w.backward();
    });
  return times;
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
