#include "laconic/plan/link_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/quantity.hpp"

namespace laconic {

LinkLoad::LinkLoad(const Hosts& hosts, std::vector<Seat> seats)
    : hosts_(hosts),
      seats_(std::move(seats)),
      cards_(static_cast<std::size_t>(host_count(hosts))),
      uplinks_(hosts.groups.size()),
      inside_(cards_.size()) {
  for (std::size_t g = 0; g < hosts.groups.size(); ++g)
    group_of_host_.insert(group_of_host_.end(), static_cast<std::size_t>(hosts.groups[g].hosts),
                          static_cast<int>(g));
}

const HostGroup& LinkLoad::group(int number) const {
  return hosts_.groups[static_cast<std::size_t>(number)];
}

double LinkLoad::Duplex::seconds(const Link& link) const {
  if (link.bits_per_second <= 0) return 0;
  const double bytes = link.full_duplex ? std::max(out, in) : out + in;
  return bytes * 8 / (link.bits_per_second * kTcpShare);
}

void LinkLoad::add_flow(int from, int to, double bytes) {
  const Seat& a = seats_[static_cast<std::size_t>(from)];
  const Seat& b = seats_[static_cast<std::size_t>(to)];
  if (a.host == b.host) {
    inside_[static_cast<std::size_t>(a.host)] += bytes;
    latency_ = std::max(latency_, group(a.group).inside.latency_seconds);
    return;
  }
  cards_[static_cast<std::size_t>(a.host)].out += bytes;
  cards_[static_cast<std::size_t>(b.host)].in += bytes;
  double latency = group(a.group).card.latency_seconds;
  if (a.group != b.group) {
    uplinks_[static_cast<std::size_t>(a.group)].out += bytes;
    uplinks_[static_cast<std::size_t>(b.group)].in += bytes;
    for (const int g : {a.group, b.group})
      if (group(g).uplink) latency += group(g).uplink->latency_seconds;
  }
  latency_ = std::max(latency_, latency);
}

// By host and by group instead of by pair: there may be a million pairs.
void LinkLoad::add_exchange(const std::vector<int>& ranks, double bytes) {
  std::map<int, double> of_host, of_group;
  std::map<int, std::pair<int, int>>
      ends;  // of each group, two ranks on different hosts if there are
  const auto all = static_cast<double>(ranks.size());
  for (const int rank : ranks) {
    const Seat& seat = seats_[static_cast<std::size_t>(rank)];
    of_host[seat.host] += 1;
    of_group[seat.group] += 1;
    const auto [place, is_new] = ends.try_emplace(seat.group, rank, rank);
    if (!is_new && seats_[static_cast<std::size_t>(place->second.first)].host != seat.host)
      place->second.second = rank;
  }
  for (const auto& [host, count] : of_host) {
    cards_[static_cast<std::size_t>(host)].out += count * (all - count) * bytes;
    cards_[static_cast<std::size_t>(host)].in += count * (all - count) * bytes;
    inside_[static_cast<std::size_t>(host)] += count * (count - 1) * bytes;
  }
  for (const auto& [group, count] : of_group) {
    uplinks_[static_cast<std::size_t>(group)].out += count * (all - count) * bytes;
    uplinks_[static_cast<std::size_t>(group)].in += count * (all - count) * bytes;
  }
  for (const auto& [one, pair] : ends)
    for (const auto& [other, far] : ends)
      if (ranks.size() > 1 && (one != other || pair.first != far.second))
        add_flow(pair.first, one == other ? far.second : far.first, 0);
}

void LinkLoad::add_ring(const std::vector<int>& ranks, double bytes) {
  for (std::size_t i = 0; i < ranks.size() && ranks.size() > 1; ++i)
    add_flow(ranks[i], ranks[(i + 1) % ranks.size()], bytes);
}

PatternCost LinkLoad::cost() const {
  PatternCost cost{.latency = latency_};
  const auto consider = [&](double seconds, const char* what, const std::string& name,
                            const Link& link) {
    if (seconds <= cost.seconds_per_byte) return;
    cost.seconds_per_byte = seconds;
    cost.bottleneck =
        fmt::format("{} of {} ({})", what, name, quantity_text(link.bits_per_second, kBitUnits));
  };
  for (std::size_t h = 0; h < cards_.size(); ++h) {
    const HostGroup& g = group(group_of_host_[h]);
    consider(cards_[h].seconds(g.card), "card", g.name, g.card);
    if (g.inside.bits_per_second > 0)
      consider(inside_[h] * 8 / g.inside.bits_per_second, "inside of a host", g.name, g.inside);
  }
  for (std::size_t g = 0; g < uplinks_.size(); ++g)
    if (hosts_.groups[g].uplink)
      consider(uplinks_[g].seconds(*hosts_.groups[g].uplink), "uplink", hosts_.groups[g].name,
               *hosts_.groups[g].uplink);
  return cost;
}

}  // namespace laconic
