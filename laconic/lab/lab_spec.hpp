// lab/lab_spec.hpp — a slow network on one machine, as a value.
//
// A lab is N hosts, each a network namespace, joined by a bridge in a
// namespace of its own:
//
//   laconic-lab-0             laconic-lab-bridge
//     eth0 10.77.0.1  -------  host0 -- br0
//   laconic-lab-1                        |
//     eth0 10.77.0.2  -------  host1 ----+
//
// Nothing of it appears in the network of the machine, and no packet of it can
// leave: there is no route out of the namespaces. Both ends of each pair are
// shaped, so that a host's link is full duplex: what it sends is held back at
// eth0, what it receives at hostN, each at the rate of the link.
//
// Everything here is pure; lab/lab.hpp acts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

inline constexpr int kMostHosts = 64;

struct LabSpec {
  std::string name = "lab";
  int hosts = 4;
  std::string rate =
      "100mbit";         // of each host's link and direction; "unshaped": what the machine can
  double queue_ms = 40;  // of data that may wait at the slow end before packets are dropped
  bool operator==(const LabSpec&) const = default;
};

// Everything that is wrong with it.
Problems check(const LabSpec& spec);

// "20mbit", "1.5gbit", "640kbit" in bits per second, 0 for "unshaped"; none when it is no such
// text, or outside 100 kbit/s to 100 Gbit/s.
std::optional<std::uint64_t> parse_rate(std::string_view text);
std::string rate_to_text(std::uint64_t bits_per_second);  // "20mbit", "unshaped"

// The token bucket of one direction of a link.
struct Bucket {
  std::uint64_t bits_per_second = 0;
  std::uint64_t burst_bytes = 0;  // what may pass at once after a pause
  std::uint64_t limit_bytes = 0;  // what may wait
  bool operator==(const Bucket&) const = default;
};

// The burst is 4 ms of the rate: less, and a timer that fires late on a busy machine loses rate for
// good; more, and short messages travel for nothing. (Segments that offloading has glued together
// may be larger than the burst: the kernel cuts them.) Requires: bits_per_second > 0.
Bucket port_bucket(std::uint64_t bits_per_second,
                   double queue_ms);  // at the bridge, as in a switch
// A host queues at least 1 MiB: TCP holds back by itself there, and a real card never drops what
// its own host sends.
Bucket host_bucket(std::uint64_t bits_per_second, double queue_ms);

std::string host_namespace(const std::string& lab, int host);  // "laconic-lab-0"
std::string bridge_namespace(const std::string& lab);          // "laconic-lab-bridge"
std::string host_address(int host);                            // "10.77.0.1"

// The lab a namespace belongs to and which host it is, -1 for the bridge. None: it is not ours.
struct LabPart {
  std::string lab;
  int host = -1;
  bool operator==(const LabPart&) const = default;
};
std::optional<LabPart> parse_namespace(std::string_view name);

// A lab that lives as long as one `laconic lab run` carries that process in its name, so that
// others can tell whether it is a leftover: "run-4711".
std::string name_of_run(int process);
std::optional<int> process_of_run(std::string_view lab);

}  // namespace laconic
