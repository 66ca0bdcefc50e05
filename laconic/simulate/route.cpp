#include "laconic/base/index.hpp"
#include "laconic/simulate/run_program.hpp"

namespace laconic {

Route route_between(const NetworkMap& network, int from, int to) {
  const int sender = network.host_of_rank[index(from)], receiver = network.host_of_rank[index(to)];
  Route route;
  const auto add = [&](int link) {
    if (link != NetworkMap::kNoLink) route.path.add(link);
  };
  if (sender == receiver && from != to) {
    add(network.inside[index(sender)].out);
    route.latency = network.inside[index(sender)].latency;
    return route;
  }
  const NetworkMap::Port &out = network.hosts[index(sender)], &in = network.hosts[index(receiver)];
  const int out_group = network.group_of_host[index(sender)],
            in_group = network.group_of_host[index(receiver)];
  add(out.out);
  route.latency = out.latency + in.latency;
  if (out_group != in_group) {
    add(network.groups[index(out_group)].out);
    add(network.groups[index(in_group)].in);
    route.latency +=
        network.groups[index(out_group)].latency + network.groups[index(in_group)].latency;
  }
  add(in.in);
  return route;
}

}  // namespace laconic
