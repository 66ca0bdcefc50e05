// hosts/hosts.hpp — the machines that somebody has, and the network between them, as a value.
//
// What one could get wrong: rates of links are in bits per second and each way, everything else
// counts in bytes; a message waits for the latency of its sender's card, and between groups for
// those of both uplinks, too. A number of 0 is "not known": it takes no time, or has no
// limit. Ranks are numbered group by group, host by host; who sits where otherwise is a Seating.
//
// Pure; hosts/hosts_file.hpp reads and writes them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

// A host's network card, or what a site has towards others.
struct Link {
  double bits_per_second = 0;
  double latency_seconds = 0;
  bool full_duplex = true;
  double burst_bytes = 0;  // pass at once after a pause, as through a token bucket
  bool operator==(const Link&) const = default;
};

// Bytes of a float32 tensor per second that codecs take: of a kind ("quantise"), or those of them
// that have some options ("quantise:rotate=true").
struct CodecRate {
  std::string codec;
  double encode = 0;
  double decode = 0;
  double feedback = 0;  // encoding that remembers what was lost; 0: as encoding and decoding
  bool operator==(const CodecRate&) const = default;
};

// Multiply-adds per second of what makes low-rank factors of a gradient
// (reduce/shared_low_rank.hpp): products of a matrix with a thin one, by kernels of their own, and
// what makes the columns of a thin one orthonormal, in float64.
struct FactorRate {
  double product = 0;
  double orthonormal = 0;
  bool operator==(const FactorRate&) const = default;
};

using ByPrecision = std::array<double, kRunPrecisionNames.size()>;

// How fast passes of blocks are: forward and backward, all their operations included.
struct PassRates {
  ByPrecision multiply_adds_per_second = {};
  // Small products are slower: a pass of a block takes as long as one over so many samples more.
  // 0: every sample takes as long as every other.
  ByPrecision pass_samples = {};
  bool operator==(const PassRates&) const = default;
};

// What one rank computes with, while all others of its host do the same.
struct HostDevice {
  std::string name;
  bool is_gpu = false;
  double memory_bytes = 0;  // of a GPU; ranks on processors share the memory of their host
  ByPrecision multiply_adds_per_second = {};  // PassRates, of models whose family has none below
  ByPrecision pass_samples = {};
  // By model.kind. Rates of a family count together, precision by precision: see hosts_for().
  std::array<PassRates, kModelKindNames.size()> families = {};
  // Elements of the stream in norms and what goes with them (grid_normed_elements), forward and
  // backward. 0: they are among the operations above.
  double elements_per_second = 0;
  double updates_per_second = 0;  // parameters that AdamW changes, their norm taken before
  std::vector<CodecRate> codecs;  // see codec_rate()
  FactorRate factors;             // see factor_rate()
  double copy_bytes_per_second = 0;
  // What the processor of the host does for a rank's messages: handling of bytes received (reading,
  // checking, adding), and besides of each message and of each collective.
  double handled_bytes_per_second = 0;
  double message_seconds = 0;
  double call_seconds = 0;
  bool operator==(const HostDevice&) const = default;
};

struct HostGroup {
  std::string name;
  int hosts = 1;
  int ranks_per_host = 1;
  // 0: rates of the device are there for each rank. Otherwise all ranks of the group share so many
  // cores, each as fast as the device, as the namespaces of a lab do.
  int cores = 0;
  double memory_bytes = 0;  // of each host; with `cores` of all of them together
  HostDevice device;
  Link card;
  Link inside;                 // between ranks of one host
  std::optional<Link> uplink;  // shared by all hosts of the group, towards other groups
  int ranks() const { return hosts * ranks_per_host; }
  bool operator==(const HostGroup&) const = default;
};

struct Hosts {
  std::vector<HostGroup> groups;
  bool operator==(const Hosts&) const = default;
};

int rank_count(const Hosts& hosts);
// Links give no more than their rates: whoever bounds times from below by rates needs that.
Hosts without_bursts(Hosts hosts);
int host_count(const Hosts& hosts);

// Where one rank may be.
struct Seat {
  int group = 0;
  int host = 0;  // over all groups
  bool operator==(const Seat&) const = default;
};
// In the order in which ranks are started: by group, then host.
std::vector<Seat> seats_of(const Hosts& hosts);
// By rank: a number of a seat. Empty: rank i has seat i.
using Seating = std::vector<int>;

// The hosts as a model of that kind finds them: where a device has rates of its family, these are
// its rates, and those of other families are gone. What plans and simulations are made of.
Hosts hosts_for(Hosts hosts, ModelKind kind);

// What a rank of the group computes in a second while all others do, too.
double multiply_adds_of(const HostGroup& group, RunPrecision precision);
// How much of one core a rank of the group has while all compute: 1, or less in a lab.
double core_share(const HostGroup& group);

// The codec's rates on a device: those of most of its options, those of its kind, or of a copy.
CodecRate codec_rate(const HostDevice& device, const CodecSpec& codec);

// The device's own; what is not known is derived: products of float32 as training makes them, and
// a multiply-add in orthonormal columns for every 8 bytes that a copy reads or writes.
FactorRate factor_rate(const HostDevice& device);

inline constexpr double kLargestAmount = 1e24;  // of any rate

// Every reason why there are no such hosts, by group: "group 'home': hosts = 0 is below 1".
Problems check(const Hosts& hosts);

}  // namespace laconic
