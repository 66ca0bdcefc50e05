// policy/link_facts.hpp — what the pre-flight found out about the network.
#pragma once

namespace laconic {

// A rate of 0 is not known, as if there were no limit.
struct LinkFacts {
  double bytes_per_second = 0;          // between neighbours in the pipeline, the slowest
  double latency = 0;                   // there, in seconds
  double slowest_bytes_per_second = 0;  // between any two ranks
  double dp_latency = 0;                // between replicas, in seconds: the median
};

}  // namespace laconic
