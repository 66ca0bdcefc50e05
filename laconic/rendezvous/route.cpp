#include "laconic/rendezvous/route.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/text.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {
namespace {

bool is_ipv6(std::string_view address) {
  return address.find(':') != std::string_view::npos;
}

// Good for one cable only, and it needs the name of the interface beside it.
bool is_link_local(std::string_view address) {
  return address.rfind("fe80:", 0) == 0;
}

bool fits(const Interface& interface, std::string_view word) {
  if (interface.address == word) return true;
  if (!word.empty() && word.front() == '=') return interface.name == word.substr(1);
  return interface.name.rfind(word, 0) == 0;
}

bool fits_any(const Interface& interface, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return fits(interface, trim(word)); });
}

// Ranks of one run must all speak IPv4 or all IPv6: the family of the route decides. Then what the
// route takes, then an exact name before one that only begins so, then the order of the system.
int rank_of_choice(const RouteFacts& facts, const Interface& interface, std::string_view word) {
  int cost = 0;
  if (!facts.towards_host.empty() && is_ipv6(interface.address) != is_ipv6(facts.towards_host))
    cost += 8;
  if (is_link_local(interface.address)) cost += 4;
  if (interface.address != facts.towards_host) cost += 2;
  if (!word.empty() && interface.name != word && interface.address != word) cost += 1;
  return cost;
}

template <class Allowed>
std::optional<Interface> best(const RouteFacts& facts, std::string_view word, Allowed allowed) {
  std::optional<Interface> chosen;
  for (const Interface& interface : facts.interfaces)
    if (interface.is_up && allowed(interface) &&
        (!chosen || rank_of_choice(facts, interface, word) < rank_of_choice(facts, *chosen, word)))
      chosen = interface;
  return chosen;
}

std::string names_of(const std::vector<Interface>& interfaces) {
  std::vector<std::string> names;
  for (const Interface& interface : interfaces) {
    const std::string name = interface.name + (interface.is_up ? "" : " (down)");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "none" : join(names, ", ");
}

[[noreturn]] void refuse(const RouteFacts& facts, const RouteWish& wish, const std::string& why) {
  throw ConfigError(fmt::format("{} = {}: {}; there are: {}", wish.origin, wish.text, why,
                                names_of(facts.interfaces)));
}

Interface choose_wished(const RouteFacts& facts, const RouteWish& wish) {
  for (const std::string& part : split(wish.text, ',')) {
    const std::string_view word = trim(part);
    if (word.empty()) continue;
    if (auto chosen = best(facts, word, [&](const Interface& i) { return fits(i, word); }))
      return *chosen;
  }
  refuse(facts, wish, "no such interface");
}

// A name of one's own machine often resolves to 127.0.1.1 there and to a real address elsewhere:
// loopback is offered to others only when the host was written as loopback.
Interface choose_by_route(const RouteFacts& facts, const RouteWish& wish,
                          const std::vector<std::string>& excluded) {
  const auto may = [&](const Interface& i) { return excluded.empty() || !fits_any(i, excluded); };
  const auto outward = [&](const Interface& i) { return may(i) && !i.is_loopback; };
  if (!facts.host_is_loopback)
    if (auto chosen = best(facts, "", outward)) return *chosen;
  if (auto chosen = best(facts, "", may)) return *chosen;
  if (excluded.empty()) throw ConfigError("this machine has no network interface that is up");
  refuse(facts, wish, "nothing is left");
}

}  // namespace

Interface choose_interface(const RouteFacts& facts, const RouteWish& wish) {
  const std::string_view text = trim(wish.text);
  if (text.empty()) return choose_by_route(facts, wish, {});
  if (text.front() == '^') return choose_by_route(facts, wish, split(text.substr(1), ','));
  return choose_wished(facts, wish);
}

std::vector<Interface> list_interfaces() {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) throw SystemError("network interfaces", "list", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(head, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* i = head; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(i->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
        0)
      continue;
    interfaces.push_back({i->ifa_name, text.data(), (i->ifa_flags & IFF_UP) != 0,
                          (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

Interface choose_route(const std::string& host, int port, const RouteWish& wish) {
  RouteFacts facts{list_interfaces(), "", is_loopback(host)};
  for (const std::string& address : resolve(host, port)) {
    facts.towards_host = local_address_towards(address, port);
    if (!facts.towards_host.empty()) break;
  }
  return choose_interface(facts, wish);
}

}  // namespace laconic
