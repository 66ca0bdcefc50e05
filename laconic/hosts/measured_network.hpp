// hosts/measured_network.hpp — which machines are near each other, from what every pair of ranks
// measured.
//
// A pair of machines has the rate of the slower of their two cards, or of what lies between them.
// So a machine's card is as fast as its best pair. A pair that is slower than both cards goes over
// something else, and one that waits longer than either does elsewhere goes far: these two are not
// at one place. Between places there are uplinks.
//
// Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "laconic/hosts/hosts.hpp"

namespace laconic {

// By rank, [from][to]; NaN: nothing was measured.
struct MeasuredLinks {
  std::vector<std::vector<double>> latency_seconds;
  std::vector<std::vector<double>> bits_per_second;
};

double lesser(double a, double b);  // of two rates, of which one that is 0 is not known

// The slowest of the pairs from some ranks to some others, each way, and the median latency; 0
// where nothing was measured.
Link link_between(const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
                  const MeasuredLinks& links);

class MeasuredNetwork {
 public:
  // Of each machine its ranks.
  MeasuredNetwork(const std::vector<std::vector<std::size_t>>& machines,
                  const MeasuredLinks& links);

  int place_of(std::size_t machine) const { return place_[machine]; }
  int places() const { return places_; }
  // Whether one has a faster card than the other.
  bool has_like_card(std::size_t a, std::size_t b) const;
  // Of machines of one place, all with cards alike; a rate of 0: there is no other machine.
  Link card_of(const std::vector<std::size_t>& machines) const;
  // What a place has towards all others, if it is slower than so many cards of `card_rate` or takes
  // time; nothing otherwise.
  std::optional<Link> uplink_of(int place, const std::vector<std::size_t>& machines,
                                double card_rate) const;

 private:
  bool are_near(std::size_t a, std::size_t b) const;
  double best_rate(std::size_t machine) const;      // of its pairs
  double least_latency(std::size_t machine) const;  // the same
  Link between_places(int a, int b) const;
  double latency_to_others(int place) const;

  std::vector<std::vector<Link>> between_;  // by machine: the slower way of each pair
  std::vector<int> place_;
  int places_ = 0;
};

}  // namespace laconic
