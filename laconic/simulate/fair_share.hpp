// simulate/fair_share.hpp — flows that share links max-min fairly, in time.
//
// A flow takes bytes through up to four links at once: it has the same rate in all of them. Links
// are shared max-min fairly, as connections of a transport protocol come close to: no flow can be
// made faster without making one slower that has no more. A flow may stand for several alike; its
// weight says how many, and it gets so many shares.
//
// What one could get wrong: a change touches those alone that share a link with what changed, or
// with somebody who does (its component). Rates of all others, and the times at which they end,
// stay as they are, bit by bit. So changes that come at one time should come before one settle().
//
// Pure but for itself: no clock, no randomness; equal calls give equal times.
#pragma once

#include <array>
#include <cstdint>
#include <queue>
#include <vector>

namespace laconic {

inline constexpr int kMostLinksOfAFlow = 4;

// The links of a flow, unused ones behind.
struct FlowPath {
  std::array<int, kMostLinksOfAFlow> links = {};
  int count = 0;
  void add(int link) { links.at(static_cast<std::size_t>(count++)) = link; }
};

class FairShare {
 public:
  // `burst_bytes` pass at once after a pause, as a token bucket lets them: it fills at the link's
  // rate while nothing is under way there.
  int add_link(double bytes_per_second, double burst_bytes = 0);
  int add_flow(const FlowPath& path);

  // Requires: the flow is idle. Without links, or without bytes, it ends at once.
  void start(int flow, double weight, double bytes, double now);
  // How much is left of it.
  double left(int flow, double now) const;
  // It shall end when so much less is left than now would be. Requires: it is under way, and has so
  // much.
  void shorten(int flow, double bytes_less, double now);
  // Computes rates anew where something changed.
  void settle(double now);

  // Requires, for both: settle() came after the last change. Never: infinity.
  double next_end();
  // A flow that ends no later than this, which is idle then; -1: there is none.
  int take_ended(double until, double now);

  // Bytes that went through a link, of all flows that have ended or were shortened.
  double carried(int link) const { return links_[static_cast<std::size_t>(link)].carried; }

 private:
  struct Flow {
    FlowPath path;
    std::array<int, kMostLinksOfAFlow> places = {};  // among the flows of each link
    double weight = 0, left = 0, bytes = 0, rate = 0, since = 0;
    std::uint32_t version = 0;  // of its end in ends_
    bool is_active = false, is_seen = false, is_fixed = false;
  };
  struct Link {
    double capacity = 0, burst = 0, carried = 0;
    double tokens = 0, idle_since = 0;  // of the bucket, when the last flow left
    double room = 0, weight = 0;        // while rates are computed
    std::vector<int> flows;             // under way
    bool is_changed = false, is_seen = false;
  };
  struct End {
    double time = 0;
    int flow = 0;
    std::uint32_t version = 0;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : flow > other.flow;
    }
  };

  Flow& flow_at(int flow) { return flows_[static_cast<std::size_t>(flow)]; }
  Link& link_at(int link) { return links_[static_cast<std::size_t>(link)]; }
  void touch(const Flow& flow);
  void leave(int flow, double now);
  double take_tokens(const Flow& flow, double now);
  void find_component(int link);
  void share_component(double now);
  void set_rate(int flow, double rate, double now);
  void plan_end(int flow, double now);

  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::vector<int> changed_;                            // links
  std::vector<int> component_flows_, component_links_;  // of settle()
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace laconic
