#include "laconic/hosts/measured_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace laconic {

namespace {

constexpr double kAlike = 1.1;  // rates of machines of one group differ by less
constexpr double kUnknownRate = 1e9;
constexpr int kDigits = 4;  // more would be noise

// One machine: its ranks, and the slowest of each of their rates.
struct Machine {
  std::string name;
  std::vector<std::size_t> ranks;
  HostDevice device;
  double memory = 0;
  int cores = 0;
};

// By whole numbers, so that a file has these digits and no more.
double rounded(double value) {
  if (!(value > 0)) return value;
  const double digits = kDigits - 1 - std::floor(std::log10(value));
  const double unit = std::pow(10, std::abs(digits));
  return digits > 0 ? std::round(value * unit) / unit : std::round(value / unit) * unit;
}

Link rounded(const Link& link) {
  return {rounded(link.bits_per_second), rounded(link.latency_seconds), link.full_duplex};
}

void round_passes(ByPrecision& multiply_adds, ByPrecision& pass_samples) {
  for (double& rate : multiply_adds) rate = rounded(rate);
  for (double& samples : pass_samples) samples = rounded(samples);
}

void round_rates(HostGroup& group) {
  HostDevice& device = group.device;
  round_passes(device.multiply_adds_per_second, device.pass_samples);
  for (PassRates& own : device.families)
    round_passes(own.multiply_adds_per_second, own.pass_samples);
  device.copy_bytes_per_second = rounded(device.copy_bytes_per_second);
  device.updates_per_second = rounded(device.updates_per_second);
  device.factors = {rounded(device.factors.product), rounded(device.factors.orthonormal)};
  for (CodecRate& rate : device.codecs)
    rate = {rate.codec, rounded(rate.encode), rounded(rate.decode), rounded(rate.feedback)};
  group.card = rounded(group.card);
  group.inside = rounded(group.inside);
  if (group.uplink) group.uplink = rounded(*group.uplink);
}

// The rank that takes longest for a sample counts, rate and cost of a pass together: they were
// found together.
void add_passes(const PassRates& of_rank, ByPrecision& multiply_adds, ByPrecision& pass_samples) {
  const auto seconds = [](double rate, double samples) {
    return rate > 0 ? (1 + samples) / rate : 0;
  };
  for (std::size_t p = 0; p < multiply_adds.size(); ++p) {
    const double rate = of_rank.multiply_adds_per_second[p], samples = of_rank.pass_samples[p];
    if (seconds(rate, samples) <= seconds(multiply_adds[p], pass_samples[p])) continue;
    multiply_adds[p] = rate;
    pass_samples[p] = samples;
  }
}

void add_codecs(const MeasuredRank& rank, std::vector<CodecRate>& codecs) {
  for (std::size_t i = 0; i < rank.encode.size(); ++i) {
    if (rank.encode[i] == 0) continue;
    auto known = std::ranges::find(codecs, MeasuredRank::kCodecs[i], &CodecRate::codec);
    if (known == codecs.end())
      known = codecs.insert(codecs.end(), {.codec = MeasuredRank::kCodecs[i]});
    known->encode = lesser(known->encode, rank.encode[i]);
    known->decode = lesser(known->decode, rank.decode[i]);
    known->feedback = lesser(known->feedback, rank.feedback[i]);
  }
}

void add_rank(const MeasuredRank& rank, const HostDevice& like, Machine& machine) {
  HostDevice& device = machine.device;
  const bool is_first = machine.ranks.size() == 1;
  if (is_first) {
    device = like;
    device.is_gpu = rank.is_gpu;
    device.memory_bytes = 0;
    device.multiply_adds_per_second = device.pass_samples = {};
    device.families = {};
    device.copy_bytes_per_second = 0;
    device.updates_per_second = 0;
    device.factors = {};
    device.codecs.clear();
  }
  add_codecs(rank, device.codecs);
  add_passes(rank.passes, device.multiply_adds_per_second, device.pass_samples);
  for (std::size_t kind = 0; kind < device.families.size(); ++kind) {
    PassRates& own = device.families[kind];
    add_passes(rank.families[kind], own.multiply_adds_per_second, own.pass_samples);
  }
  device.copy_bytes_per_second = lesser(device.copy_bytes_per_second, rank.copy_bytes_per_second);
  device.updates_per_second = lesser(device.updates_per_second, rank.updates_per_second);
  device.factors = {lesser(device.factors.product, rank.factors.product),
                    lesser(device.factors.orthonormal, rank.factors.orthonormal)};
  device.memory_bytes = lesser(device.memory_bytes, rank.is_gpu ? rank.gpu_memory_bytes : 0);
  machine.memory = rank.memory_bytes;
  machine.cores = rank.cores;
}

std::vector<Machine> machines_of(const std::vector<MeasuredRank>& ranks, const HostDevice& like) {
  std::vector<Machine> machines;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::string name = ranks[r].host.data();
    auto found = std::ranges::find(machines, name, &Machine::name);
    if (found == machines.end()) found = machines.insert(machines.end(), {.name = name});
    found->ranks.push_back(r);
    add_rank(ranks[r], like, *found);
  }
  return machines;
}

bool are_alike(const Machine& a, const Machine& b) {
  const auto near = [](double x, double y) {
    return x == y || (x > 0 && y > 0 && std::max(x, y) <= kAlike * std::min(x, y));
  };
  return a.ranks.size() == b.ranks.size() && a.device.is_gpu == b.device.is_gpu &&
         a.cores == b.cores &&
         std::ranges::equal(a.device.multiply_adds_per_second, b.device.multiply_adds_per_second,
                            near) &&
         near(a.device.memory_bytes, b.device.memory_bytes);
}

// Machines of one group.
struct Site {
  int place = 0;
  std::vector<std::size_t> machines;
};

std::vector<Site> sites_of(const std::vector<Machine>& machines, const MeasuredNetwork& network) {
  std::vector<Site> sites;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    auto found = std::ranges::find_if(sites, [&](const Site& site) {
      const std::size_t first = site.machines.front();
      return site.place == network.place_of(m) && are_alike(machines[first], machines[m]) &&
             network.has_like_card(first, m);
    });
    if (found == sites.end()) found = sites.insert(sites.end(), Site{.place = network.place_of(m)});
    found->machines.push_back(m);
  }
  return sites;
}

// Where there is one machine only, pairs of its ranks are all that was measured.
Link card_of(const Site& site, const Machine& first, const MeasuredNetwork& network,
             const MeasuredLinks& links) {
  Link card = network.card_of(site.machines);
  if (card.bits_per_second == 0) card = link_between(first.ranks, first.ranks, links);
  if (card.bits_per_second == 0) card.bits_per_second = kUnknownRate;  // one rank: nobody to ask
  return card;
}

HostGroup group_of_site(const Site& site, const std::vector<Machine>& machines,
                        const MeasuredNetwork& network, const MeasuredLinks& links,
                        std::size_t number) {
  const Machine& first = machines[site.machines.front()];
  HostGroup group{.name = site.machines.size() == 1 ? first.name : fmt::format("site {}", number),
                  .hosts = static_cast<int>(site.machines.size()),
                  .ranks_per_host = static_cast<int>(first.ranks.size()),
                  .memory_bytes = first.memory,
                  .device = first.device,
                  .card = card_of(site, first, network, links)};
  group.device.name = fmt::format("measured {}", number);
  group.uplink = network.uplink_of(site.place, site.machines, group.card.bits_per_second);
  const bool is_lab = machines.size() == 1 && !first.device.is_gpu && first.ranks.size() > 1;
  if (is_lab) {
    group.hosts = group.ranks_per_host;
    group.ranks_per_host = 1;
    group.cores = first.cores;
  } else if (group.ranks_per_host > 1) {
    group.inside = link_between(first.ranks, first.ranks, links);
  }
  return group;
}

bool is_lab(const std::vector<MeasuredRank>& ranks) {
  return ranks.size() > 1 && std::ranges::all_of(ranks, [&](const MeasuredRank& rank) {
           return !rank.is_gpu && rank.host == ranks.front().host;
         });
}

}  // namespace

std::vector<int> turns_of(const std::vector<MeasuredRank>& ranks) {
  std::vector<int> turns(ranks.size(), 0);
  if (!is_lab(ranks)) return turns;
  const int at_once = std::max(1, ranks.front().cores / std::max(1, ranks.front().threads));
  for (std::size_t r = 0; r < ranks.size(); ++r) turns[r] = static_cast<int>(r) / at_once;
  return turns;
}

Hosts hosts_from(const std::vector<MeasuredRank>& ranks, const MeasuredLinks& links,
                 const HostDevice& like) {
  const std::vector<Machine> machines = machines_of(ranks, like);
  std::vector<std::vector<std::size_t>> ranks_of;
  for (const Machine& machine : machines) ranks_of.push_back(machine.ranks);
  const MeasuredNetwork network(ranks_of, links);
  const std::vector<Site> sites = sites_of(machines, network);
  Hosts hosts;
  for (std::size_t s = 0; s < sites.size(); ++s)
    hosts.groups.push_back(group_of_site(sites[s], machines, network, links, s + 1));
  for (HostGroup& group : hosts.groups) round_rates(group);
  return hosts;
}

}  // namespace laconic
