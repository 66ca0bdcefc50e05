#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "laconic/base/text.hpp"
#include "laconic/lab/lab.hpp"

namespace laconic {

namespace {

nlohmann::json parse(std::string_view text, const char* tool) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty())
    throw std::runtime_error(
        fmt::format("{} says what we do not understand: {}", tool, printable(text)));
  return json;
}

}  // namespace

void read_counters(std::string_view ip_json, HostStatus& host) {
  // An older ip leaves empty objects beside the one that was asked for.
  for (const nlohmann::json& interface : parse(ip_json, "ip")) {
    if (interface.value("ifname", "") != "eth0") continue;
    const nlohmann::json& counters = interface.at("stats64");
    host.sent_bytes = counters.at("tx").at("bytes");
    host.sent_packets = counters.at("tx").at("packets");
    host.received_bytes = counters.at("rx").at("bytes");
    host.received_packets = counters.at("rx").at("packets");
  }
}

std::uint64_t read_rate(std::string_view tc_json) {
  for (const nlohmann::json& discipline : parse(tc_json, "tc"))
    if (discipline.value("kind", "") == "tbf")
      return 8 * discipline.at("options").at("rate").get<std::uint64_t>();
  return 0;
}

LabStatus counted_since(const LabStatus& before, LabStatus now) {
  for (std::size_t i = 0; i < now.hosts.size(); ++i) {
    HostStatus& host = now.hosts[i];
    const HostStatus& then = before.hosts.at(i);
    host.sent_bytes -= then.sent_bytes;
    host.received_bytes -= then.received_bytes;
    host.sent_packets -= then.sent_packets;
    host.received_packets -= then.received_packets;
  }
  return now;
}

std::string to_text(const LabStatus& status) {
  std::string text = fmt::format("{}: {} host{}\n", status.name, status.hosts.size(),
                                 status.hosts.size() == 1 ? "" : "s");
  for (const HostStatus& host : status.hosts)
    text += fmt::format("  {:<20} {:<12} {:>9}  sent {:>9}  received {:>9}\n", host.name,
                        host.address, rate_to_text(host.bits_per_second),
                        human_bytes(static_cast<double>(host.sent_bytes)),
                        human_bytes(static_cast<double>(host.received_bytes)));
  return text;
}

std::string to_json(const std::vector<LabStatus>& labs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const LabStatus& lab : labs) {
    nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
    for (const HostStatus& host : lab.hosts)
      hosts.push_back({{"namespace", host.name},
                       {"address", host.address},
                       {"bits_per_second", host.bits_per_second},
                       {"sent_bytes", host.sent_bytes},
                       {"received_bytes", host.received_bytes},
                       {"sent_packets", host.sent_packets},
                       {"received_packets", host.received_packets}});
    all.push_back({{"name", lab.name}, {"hosts", hosts}});
  }
  return nlohmann::ordered_json({{"labs", all}}).dump(2) + "\n";
}

}  // namespace laconic
