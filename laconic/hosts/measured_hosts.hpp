// hosts/measured_hosts.hpp — hosts from what ranks have measured of themselves and of their links.
//
// Ranks of one machine that compute on its processor are taken for hosts of a lab, which share its
// cores: the network between them may be a shaped one. Ranks with a GPU each are ranks of one host.
// Machines of one place (hosts/measured_network.hpp) that are alike, with rates within a tenth of
// each other and cards within twice, are one group.
//
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "laconic/hosts/hosts.hpp"
#include "laconic/hosts/measured_network.hpp"

namespace laconic {

// What a rank tells of itself; travels as bytes. Ranks measure in turns (turns_of).
struct MeasuredRank {
  std::array<char, 64> host = {};
  bool is_gpu = false;
  std::int32_t cores = 1;    // of its machine, that ranks may use
  std::int32_t threads = 1;  // with which it computes
  // The best of a few, so what a core does that it has for itself; 0: not measured. Of the
  // configuration's model, and of small ones of other families, by model.kind.
  PassRates passes;
  std::array<PassRates, kModelKindNames.size()> families = {};
  double memory_bytes = 0;  // of its machine
  double gpu_memory_bytes = 0;
  double copy_bytes_per_second = 0;
  double updates_per_second = 0;
  FactorRate factors;  // 0: not measured
  static constexpr std::array<const char*, 9> kCodecs = {
      "half",    "quantise",  "sign",
      "top_k",   "random_k",  "low_rank",
      "huffman", "transform", "quantise:rotate=true"};
  // CodecRate, in bytes per second; 0: not measured.
  std::array<double, kCodecs.size()> encode = {}, decode = {}, feedback = {};
};

// By rank: in which turn it measures. All at once, but for ranks of a lab that are more than its
// cores: what one of them did meanwhile would be a share of a core, and hosts have whole ones.
// Requires: the first four of each rank are known.
std::vector<int> turns_of(const std::vector<MeasuredRank>& ranks);

// `like` has what is not measured: handling of messages.
// Requires: as many rows and columns as ranks, or no links at all.
Hosts hosts_from(const std::vector<MeasuredRank>& ranks, const MeasuredLinks& links,
                 const HostDevice& like);

}  // namespace laconic
