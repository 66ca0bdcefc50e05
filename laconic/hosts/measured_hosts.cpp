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
// What is measured of a link is payload that goes one way; a hosts file has the link's own rate.
constexpr double kPayloadShare = 1448.0 / 1514;

// One machine: its ranks, and the slowest of each of their rates.
struct Machine {
  std::string name;
  std::vector<std::size_t> ranks;
  HostDevice device;
  double memory = 0;
  int cores = 0;
};

double rounded(double value) {
  if (!(value > 0)) return value;
  const double unit = std::pow(10, std::floor(std::log10(value)) + 1 - kDigits);
  return std::round(value / unit) * unit;
}

Link rounded(const Link& link) {
  return {rounded(link.bits_per_second), rounded(link.latency_seconds), link.full_duplex};
}

void round_rates(HostGroup& group) {
  HostDevice& device = group.device;
  for (double& rate : device.multiply_adds_per_second) rate = rounded(rate);
  device.pass_samples = rounded(device.pass_samples);
  device.copy_bytes_per_second = rounded(device.copy_bytes_per_second);
  device.updates_per_second = rounded(device.updates_per_second);
  device.factors = {rounded(device.factors.product), rounded(device.factors.orthonormal)};
  for (CodecRate& rate : device.codecs)
    rate = {rate.codec, rounded(rate.encode), rounded(rate.decode), rounded(rate.feedback)};
  group.card = rounded(group.card);
  group.inside = rounded(group.inside);
  if (group.uplink) group.uplink = rounded(*group.uplink);
}

double lesser(double a, double b) {
  return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
}

void add_rank(const MeasuredRank& rank, const HostDevice& like, Machine& machine) {
  HostDevice& device = machine.device;
  const bool is_first = machine.ranks.size() == 1;
  if (is_first) {
    device = like;
    device.is_gpu = rank.is_gpu;
    device.memory_bytes = 0;
    device.multiply_adds_per_second = {};
    device.pass_samples = 0;
    device.copy_bytes_per_second = 0;
    device.updates_per_second = 0;
    device.factors = {};
    device.codecs.clear();
    for (std::size_t i = 0; i < rank.encode.size(); ++i)
      if (rank.encode[i] > 0)
        device.codecs.push_back({MeasuredRank::kCodecs[i], rank.encode[i], rank.decode[i]});
  }
  double& rate = device.multiply_adds_per_second[static_cast<std::size_t>(rank.precision)];
  rate = lesser(rate, rank.multiply_adds_per_second);
  device.pass_samples = std::max(device.pass_samples, rank.pass_samples);
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

// The slowest of the pairs from some ranks to some others, each way, and the median latency.
Link link_between(const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
                  const MeasuredLinks& links) {
  std::vector<double> latencies;
  double slowest = 0;
  for (const std::size_t a : from)
    for (const std::size_t b : to) {
      if (a == b || links.bits_per_second.empty()) continue;
      const double rate = links.bits_per_second[a][b], latency = links.latency_seconds[a][b];
      if (std::isfinite(rate)) slowest = lesser(slowest, rate / kPayloadShare);
      if (std::isfinite(latency)) latencies.push_back(latency);
    }
  std::ranges::sort(latencies);
  return {.bits_per_second = slowest,
          .latency_seconds = latencies.empty() ? 0 : latencies[latencies.size() / 2]};
}

// Machines of one group, and all their ranks.
struct Site {
  std::vector<const Machine*> machines;
  std::vector<std::size_t> ranks;
};

// Pairs on different machines; where there are none, those of one machine.
Link card_of(const Site& site, const MeasuredLinks& links) {
  Link card;
  std::vector<double> latencies;
  for (const Machine* a : site.machines)
    for (const Machine* b : site.machines) {
      if (a == b) continue;
      const Link link = link_between(a->ranks, b->ranks, links);
      card.bits_per_second = lesser(card.bits_per_second, link.bits_per_second);
      card.latency_seconds = std::max(card.latency_seconds, link.latency_seconds);
    }
  if (card.bits_per_second == 0) card = link_between(site.ranks, site.ranks, links);
  if (card.bits_per_second == 0) card.bits_per_second = kUnknownRate;  // one rank: nobody to ask
  return card;
}

HostGroup group_of_site(const Site& site, const MeasuredLinks& links, std::size_t number) {
  const Machine& first = *site.machines.front();
  HostGroup group{.name = site.machines.size() == 1 ? first.name : fmt::format("site {}", number),
                  .hosts = static_cast<int>(site.machines.size()),
                  .ranks_per_host = static_cast<int>(first.ranks.size()),
                  .memory_bytes = first.memory,
                  .device = first.device,
                  .card = card_of(site, links)};
  group.device.name = fmt::format("measured {}", number);
  const bool is_lab = site.machines.size() == 1 && !first.device.is_gpu && first.ranks.size() > 1;
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
  std::vector<Site> sites;
  for (const Machine& machine : machines) {
    auto found = std::ranges::find_if(
        sites, [&](const Site& site) { return are_alike(*site.machines.front(), machine); });
    if (found == sites.end()) found = sites.insert(sites.end(), Site());
    found->machines.push_back(&machine);
    found->ranks.insert(found->ranks.end(), machine.ranks.begin(), machine.ranks.end());
  }
  Hosts hosts;
  for (std::size_t s = 0; s < sites.size(); ++s)
    hosts.groups.push_back(group_of_site(sites[s], links, s + 1));
  for (std::size_t s = 0; s < sites.size() && sites.size() > 1; ++s) {
    Link out;
    for (std::size_t o = 0; o < sites.size(); ++o) {
      if (o == s) continue;
      const Link link = link_between(sites[s].ranks, sites[o].ranks, links);
      out.bits_per_second = lesser(out.bits_per_second, link.bits_per_second);
      out.latency_seconds = std::max(out.latency_seconds, link.latency_seconds / 2);
    }
    if (out.bits_per_second > 0 && out.bits_per_second < hosts.groups[s].card.bits_per_second)
      hosts.groups[s].uplink = out;
  }
  for (HostGroup& group : hosts.groups) round_rates(group);
  return hosts;
}

}  // namespace laconic
