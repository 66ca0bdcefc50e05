#include "laconic/lab/lab_plan.hpp"

#include <fmt/format.h>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

LabStep step(std::string_view line, Words undo = {}) {
  return {split(line, ' '), std::move(undo)};
}

LabStep add_namespace(const std::string& name) {
  return step("ip netns add " + name, {"ip", "netns", "delete", name});
}

// With an address of its own IPv6 would look for routers and neighbours, and
// the counters of the interfaces would hold more than the traffic of the ranks.
void add_bridge(std::vector<LabStep>& plan, const std::string& bridge) {
  plan.push_back(add_namespace(bridge));
  plan.push_back(step(fmt::format(
      "ip -n {} link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0", bridge)));
  plan.push_back(step(fmt::format("ip -n {} link set br0 addrgenmode none up", bridge)));
}

// Cubic is what Linux uses unless told otherwise; a machine that was told must not measure another
// network.
void add_host(std::vector<LabStep>& plan, const LabSpec& spec, int host) {
  const std::string bridge = bridge_namespace(spec.name), name = host_namespace(spec.name, host);
  plan.push_back(add_namespace(name));
  for (const std::string& line : {
           fmt::format("ip -n {} link set lo up", name),
           fmt::format("ip -n {} link add host{} type veth peer name eth0 netns {}", bridge, host,
                       name),
           fmt::format("ip -n {} link set host{} addrgenmode none master br0 up", bridge, host),
           fmt::format("ip -n {} address add {}/24 dev eth0", name, host_address(host)),
           fmt::format("ip -n {} link set eth0 addrgenmode none up", name),
           fmt::format("ip -n {} route replace 10.77.0.0/24 dev eth0 congctl cubic", name),
       })
    plan.push_back(step(line));
}

LabStep shape(const std::string& name, const std::string& interface, const Bucket& bucket) {
  return step(fmt::format("tc -n {} qdisc replace dev {} root tbf rate {}bit burst {} limit {}",
                          name, interface, bucket.bits_per_second, bucket.burst_bytes,
                          bucket.limit_bytes));
}

// "noqueue" is what an interface of this kind has from the start.
LabStep unshape(const std::string& name, const std::string& interface) {
  return step(fmt::format("tc -n {} qdisc replace dev {} root noqueue", name, interface));
}

}  // namespace

std::vector<LabStep> up_plan(const LabSpec& spec) {
  std::vector<LabStep> plan;
  add_bridge(plan, bridge_namespace(spec.name));
  for (int i = 0; i < spec.hosts; ++i) add_host(plan, spec, i);
  if (*parse_rate(spec.rate) == 0) return plan;
  const std::vector<LabStep> rates = rate_plan(spec);
  plan.insert(plan.end(), rates.begin(), rates.end());
  return plan;
}

std::vector<LabStep> rate_plan(const LabSpec& spec) {
  const std::uint64_t rate = *parse_rate(spec.rate);
  const std::string bridge = bridge_namespace(spec.name);
  std::vector<LabStep> plan;
  for (int i = 0; i < spec.hosts; ++i) {
    const std::string host = host_namespace(spec.name, i), port = fmt::format("host{}", i);
    if (rate == 0) {
      plan.push_back(unshape(host, "eth0"));
      plan.push_back(unshape(bridge, port));
    } else {
      plan.push_back(shape(host, "eth0", host_bucket(rate, spec.queue_ms)));
      plan.push_back(shape(bridge, port, port_bucket(rate, spec.queue_ms)));
    }
  }
  return plan;
}

std::vector<LabStep> down_plan(const std::vector<std::string>& namespaces) {
  std::vector<LabStep> plan;
  for (auto name = namespaces.rbegin(); name != namespaces.rend(); ++name)
    plan.push_back(step("ip netns delete " + *name));
  return plan;
}

std::string to_text(const std::vector<LabStep>& plan) {
  std::string text;
  for (const LabStep& s : plan) text += join(s.words, " ") + "\n";
  return text;
}

}  // namespace laconic
