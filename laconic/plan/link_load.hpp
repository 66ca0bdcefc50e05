// plan/link_load.hpp — which link of the hosts is the slowest for a pattern of messages, and how
// slow: bytes over it by its rate.
//
// Everything of a pattern is under way at once, and every link carries what crosses it, so nothing
// can take less than the most loaded link needs. That is exact for large messages that go on all
// the time, and what max-min fair sharing comes to where all flows share one bottleneck.
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "laconic/hosts/hosts.hpp"

namespace laconic {

// What carries a pattern, for each byte of its unit.
struct PatternCost {
  double seconds_per_byte = 0;
  double latency = 0;      // of its farthest message
  std::string bottleneck;  // "uplink of north (100mbit)"; empty: no link has a limit
};

class LinkLoad {
 public:
  // `seats` by rank: who takes part.
  LinkLoad(const Hosts& hosts, std::vector<Seat> seats);

  // So many bytes from one rank to another.
  void add_flow(int from, int to, double bytes);
  // So many bytes from each of these ranks to each other one.
  void add_exchange(const std::vector<int>& ranks, double bytes);
  // So many bytes from each to the next, and from the last to the first.
  void add_ring(const std::vector<int>& ranks, double bytes);

  PatternCost cost() const;

 private:
  struct Duplex {
    double out = 0, in = 0;
    double seconds(const Link& link) const;
  };
  const HostGroup& group(int number) const;

  const Hosts& hosts_;
  std::vector<Seat> seats_;
  std::vector<int> group_of_host_;
  std::vector<Duplex> cards_, uplinks_;
  std::vector<double> inside_;
  double latency_ = 0;
};

}  // namespace laconic
