// plan/break_even.hpp — where short messages pay: for every policy the rate of links at which it is
// as fast as exact messages.
//
// With everything else as in one plan: the fastest of those found that has such messages and can
// have the policy; where none has, the fastest of all plans that do, which is searched for. Of a
// policy that no plan on these hosts can have the reason is told.
#pragma once

#include <string>
#include <vector>

#include "laconic/plan/search.hpp"

namespace laconic {

struct BreakEven {
  PolicyClass of = PolicyClass::dp;
  std::string policy;
  std::string why_not;  // no plan here can have it, and all below says nothing
  // Of the slowest link, all others in proportion. Below it the policy is faster; 0: never,
  // infinity: always.
  double bits_per_second = 0;
  double gain = 1;  // seconds of exact messages by the policy's, on the hosts as they are
  Candidate candidate;
  double seconds = 0;  // of its step, by formulas, on the hosts as they are
  std::string plan;    // it, for people
};

// Rows of all policies of the space but exact ones, by class. `found` are plans of `model`, the
// fastest first.
std::vector<BreakEven> break_even_of(const PlanSpace& space, StepModel& model,
                                     const SearchResult& found);

// With so many ranks a search takes seconds, and so does a simulation.
bool has_many_ranks(const PlanSpace& space);

Hosts with_link_rates(Hosts hosts, double factor);  // of cards and uplinks
double slowest_link(const Hosts& hosts);            // bits per second
double seconds_with_links(const PlanSpace& space, const Candidate& candidate, double factor);

}  // namespace laconic
