// Progressive filling: of all links of a component the one whose fair share is least fixes the rate
// of its flows; what they use is taken off everywhere, and so on with the rest. Each turn fixes all
// links of that share, so that symmetric networks take one turn.
#include "laconic/simulate/fair_share.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "laconic/base/index.hpp"

namespace laconic {

namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
constexpr double kEqualShares = 1 + 1e-12;  // that differ by rounding alone

}  // namespace

int FairShare::add_link(double bytes_per_second, double burst_bytes) {
  links_.push_back(
      {.capacity = bytes_per_second, .burst = burst_bytes, .tokens = burst_bytes, .flows = {}});
  return static_cast<int>(links_.size()) - 1;
}

int FairShare::add_flow(const FlowPath& path) {
  flows_.push_back({.path = path});
  return static_cast<int>(flows_.size()) - 1;
}

void FairShare::touch(const Flow& flow) {
  for (int i = 0; i < flow.path.count; ++i) {
    const int number = flow.path.links.at(index(i));
    Link& link = link_at(number);
    if (!std::exchange(link.is_changed, true)) changed_.push_back(number);
  }
}

// Returns the bytes that all links of a flow let pass at once. Buckets do not fill while something
// is under way.
double FairShare::take_tokens(const Flow& flow, double now) {
  double taken = flow.bytes;
  for (int i = 0; i < flow.path.count; ++i) {
    Link& link = link_at(flow.path.links.at(index(i)));
    if (link.flows.empty())
      link.tokens = std::min(link.burst, link.tokens + (now - link.idle_since) * link.capacity);
    link.idle_since = now;
    taken = std::min(taken, link.tokens);
  }
  for (int i = 0; i < flow.path.count; ++i) link_at(flow.path.links.at(index(i))).tokens -= taken;
  return taken;
}

void FairShare::start(int number, double weight, double bytes, double now) {
  Flow& flow = flow_at(number);
  flow.weight = weight;
  flow.left = flow.bytes = bytes;
  flow.since = now;
  flow.rate = 0;
  flow.is_active = true;
  if (flow.path.count == 0 || bytes <= 0) {
    flow.left = 0;
    ends_.push({now, number, ++flow.version});
    return;
  }
  flow.left -= take_tokens(flow, now);
  for (int i = 0; i < flow.path.count; ++i) {
    Link& link = link_at(flow.path.links.at(index(i)));
    flow.places.at(index(i)) = static_cast<int>(link.flows.size());
    link.flows.push_back(number);
  }
  touch(flow);
}

double FairShare::left(int number, double now) const {
  const Flow& flow = flows_[index(number)];
  return std::max(0.0, flow.left - (now - flow.since) * flow.rate);
}

void FairShare::shorten(int number, double bytes_less, double now) {
  Flow& flow = flow_at(number);
  flow.left = left(number, now) - bytes_less;
  flow.bytes -= bytes_less;
  flow.since = now;
  plan_end(number, now);
}

// The last flow of each link takes the place of the one that leaves.
void FairShare::leave(int number, double now) {
  Flow& flow = flow_at(number);
  flow.is_active = false;
  for (int i = 0; i < flow.path.count && flow.bytes > 0; ++i) {
    const int link_number = flow.path.links.at(index(i));
    Link& link = link_at(link_number);
    link.carried += flow.bytes;
    const int place = flow.places.at(index(i));
    const int last = link.flows.back();
    link.flows[index(place)] = last;
    link.flows.pop_back();
    link.idle_since = now;
    Flow& moved = flow_at(last);
    for (int j = 0; j < moved.path.count; ++j)
      if (moved.path.links.at(index(j)) == link_number) moved.places.at(index(j)) = place;
  }
  if (flow.bytes > 0) touch(flow);
}

void FairShare::settle(double now) {
  for (const int link : changed_) {
    if (!link_at(link).is_changed) continue;  // in the component of one before
    find_component(link);
    share_component(now);
  }
  changed_.clear();
}

void FairShare::find_component(int first) {
  component_flows_.clear();
  component_links_ = {first};
  link_at(first).is_seen = true;
  for (std::size_t at = 0; at < component_links_.size(); ++at)
    for (const int number : link_at(component_links_[at]).flows) {
      Flow& flow = flow_at(number);
      if (std::exchange(flow.is_seen, true)) continue;
      component_flows_.push_back(number);
      for (int i = 0; i < flow.path.count; ++i) {
        const int link = flow.path.links.at(index(i));
        if (!std::exchange(link_at(link).is_seen, true)) component_links_.push_back(link);
      }
    }
}

void FairShare::share_component(double now) {
  for (const int number : component_links_) {
    Link& link = link_at(number);
    link.is_seen = link.is_changed = false;
    link.room = link.capacity;
    link.weight = 0;
    for (const int flow : link.flows) link.weight += flow_at(flow).weight;
  }
  for (const int number : component_flows_)
    flow_at(number).is_seen = flow_at(number).is_fixed = false;
  for (std::size_t unfixed = component_flows_.size(); unfixed > 0;) {
    double least = kNoEnd;
    for (const int number : component_links_) {
      const Link& link = link_at(number);
      if (link.weight > 0) least = std::min(least, std::max(0.0, link.room) / link.weight);
    }
    std::vector<int> narrow;  // found before anything is fixed, which changes shares
    for (const int number : component_links_) {
      const Link& link = link_at(number);
      if (link.weight > 0 && std::max(0.0, link.room) / link.weight <= least * kEqualShares)
        narrow.push_back(number);
    }
    for (const int number : narrow)
      for (const int f : link_at(number).flows) {
        if (std::exchange(flow_at(f).is_fixed, true)) continue;
        set_rate(f, least * flow_at(f).weight, now);
        --unfixed;
        for (int i = 0; i < flow_at(f).path.count; ++i) {
          Link& link = link_at(flow_at(f).path.links.at(index(i)));
          link.room -= flow_at(f).rate;
          link.weight -= flow_at(f).weight;
        }
      }
    for (const int number : narrow) link_at(number).weight = 0;  // what rounding leaves
  }
}

void FairShare::set_rate(int number, double rate, double now) {
  Flow& flow = flow_at(number);
  if (flow.rate == rate) return;  // its end stays, too
  flow.left = left(number, now);
  flow.since = now;
  flow.rate = rate;
  plan_end(number, now);
}

void FairShare::plan_end(int number, double now) {
  Flow& flow = flow_at(number);
  ++flow.version;
  if (flow.left <= 0)
    ends_.push({now, number, flow.version});
  else if (flow.rate > 0)
    ends_.push({now + flow.left / flow.rate, number, flow.version});
}

double FairShare::next_end() {
  while (!ends_.empty()) {
    const End& end = ends_.top();
    const Flow& flow = flow_at(end.flow);
    if (flow.is_active && flow.version == end.version) return end.time;
    ends_.pop();
  }
  return kNoEnd;
}

int FairShare::take_ended(double until, double now) {
  if (next_end() > until) return -1;
  const int number = ends_.top().flow;
  ends_.pop();
  Flow& flow = flow_at(number);
  flow.left = 0;
  flow.since = now;
  leave(number, now);
  return number;
}

}  // namespace laconic
