// rendezvous/route.hpp — which of this machine's addresses the other ranks should be given.
//
// The one from which packets leave towards the rendezvous host: that network is
// known to be shared, whatever this machine is called and whatever other
// interfaces (containers, bridges, a management net) it has.
//
// The wish of a user comes first. It is a list with commas of interfaces or
// addresses, of which the first that is there is taken: "eth0", "eth" (any that
// begins so), "=eth0" (that one only), "10.0.0.3". After "^" it is a list of
// those that must not be taken.
//
// choose_interface is pure; choose_route asks the system and calls it.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct Interface {
  std::string name;
  std::string address;  // numeric; an interface with several is listed several times
  bool is_up = true;
  bool is_loopback = false;
  bool operator==(const Interface&) const = default;
};

struct RouteWish {
  std::string origin;  // "network.interface", "GLOO_SOCKET_IFNAME": for messages
  std::string text;    // empty: no wish
};

struct RouteFacts {
  std::vector<Interface> interfaces;
  std::string towards_host;       // the address that the route to the rendezvous leaves from
  bool host_is_loopback = false;  // it was written as one: "localhost", "127.0.0.1"
};

// Throws ConfigError when nothing fits; it names what there is.
Interface choose_interface(const RouteFacts& facts, const RouteWish& wish);

std::vector<Interface> list_interfaces();  // of this machine
Interface choose_route(const std::string& host, int port, const RouteWish& wish);

}  // namespace laconic
