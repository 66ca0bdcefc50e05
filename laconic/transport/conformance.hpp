// transport/conformance.hpp — for tests: what every transport must do, whoever starts its ranks.
//
// A world knows how to start ranks and hands a transport to each. Ranks may be
// threads or processes: a check shares nothing between them but messages, and
// what fails on a rank is a failure of the test in the process of that rank.
// A world whose ranks live as long as the test program (MPI) may hand the same
// transport to one check after the other, in the order of conformance_checks();
// each has tags of its own, and all ranks meet before a check ends.
//
//   class Conformance : public testing::TestWithParam<ConformanceCheck> {};
//   TEST_P(Conformance, Holds) { GetParam().run(world()); }
//   INSTANTIATE_TEST_SUITE_P(Gloo, Conformance, testing::ValuesIn(conformance_checks()),
//   name_of_check);
//
// Add conformance.cpp to the sources of the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

struct ConformanceWorld {
  std::string name;
  // Runs `body` once per rank, for this many ranks (kConformanceRanks, always), and returns when
  // those that this process runs are done.
  std::function<void(int size, const std::function<void(Transport&)>& body)> run;
  bool can_lose_peers = true;                       // a rank may go, and the others go on
  std::uint64_t largest = std::uint64_t{16} << 20;  // bytes of the largest message to try
};

inline constexpr int kConformanceRanks = 3;

void check_order_per_tag(const ConformanceWorld& world);
void check_sizes(const ConformanceWorld& world);
void check_send_all(const ConformanceWorld& world);
void check_thousands_in_flight(const ConformanceWorld& world);
void check_both_directions_saturated(const ConformanceWorld& world);
void check_many_threads(const ConformanceWorld& world);
void check_tags_do_not_mix(const ConformanceWorld& world);
void check_self_send(const ConformanceWorld& world);
void check_late_peer(const ConformanceWorld& world);
void check_try_recv_and_on_arrival(const ConformanceWorld& world);
void check_sum(const ConformanceWorld& world);  // nothing, where there is none
// These two end the transports they are given.
void check_dead_peer(const ConformanceWorld& world);  // nothing, where !can_lose_peers
void check_close_releases_waiters(const ConformanceWorld& world);

struct ConformanceCheck {
  std::string name;
  void (*run)(const ConformanceWorld& world);
};

// All of the above, in this order.
std::vector<ConformanceCheck> conformance_checks();

inline std::string name_of_check(const testing::TestParamInfo<ConformanceCheck>& info) {
  return info.param.name;
}
inline void PrintTo(const ConformanceCheck& check, std::ostream* out) {
  *out << check.name;
}

}  // namespace laconic
