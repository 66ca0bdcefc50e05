// rendezvous/socket.hpp — the few questions that only the system's sockets can answer.
//
// No data passes here: the transports and the store have connections of their own.
#pragma once

#include <string>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

// The numeric addresses of a host, IPv4 first. Throws ConfigError when the name does not resolve.
std::vector<std::string> resolve(const std::string& host, int port);

// Whether something accepts connections there, now. `address` is numeric.
bool answers(const std::string& address, int port, Deadline deadline);

// Connects, says nothing, and waits until the other side has hung up: a server accepts in order, so
// it has then accepted every connection that was made before. False when the deadline passed.
bool knock(const std::string& address, int port, Deadline deadline);

// Whether this machine can listen on the port, on all its addresses.
bool is_port_free(int port);

// A port that nobody uses, for tests and for launches on one machine. It may be taken before it is
// used.
int free_port();

// The local address that packets to `address` (numeric) leave from; empty where there is no route.
std::string local_address_towards(const std::string& address, int port);

}  // namespace laconic
