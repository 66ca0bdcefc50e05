// rendezvous/socket.hpp — sockets of the system: a handle, and the few questions that only they
// answer.
//
// No training data passes here: the transports and the store have connections of their own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

// Owns a descriptor, or none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(int family, int type);
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int operator*() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

// The numeric addresses of a host, IPv4 first. Throws ConfigError when the name does not resolve.
std::vector<std::string> resolve(const std::string& host, int port);

// Whether something accepts connections there, now. `address` is numeric.
bool answers(const std::string& address, int port, Deadline deadline);

// Connects, says nothing, and waits until the other side has hung up: a server accepts in order, so
// it has then accepted every connection that was made before. False when the deadline passed.
bool knock(const std::string& address, int port, Deadline deadline);

// Listens at a port that the system chooses; never blocks. `address` is numeric, and of this
// machine. Throws ConfigError.
Socket listen_at(const std::string& address, int backlog);
int local_port(const Socket& socket);
// The next connection that is there, which never blocks either; none when there is none.
Socket accept_from(const Socket& listener);

// Connects without waiting: the socket can be written to when it is done, and error_of() then says
// whether it went well. None where it fails at once, with errno.
Socket begin_connecting(const std::string& address, int port);
int error_of(const Socket& socket);

// The descriptor of this process, ours or a library's, that is the other end of `socket`; -1: none.
int find_other_end(const Socket& socket);

// Ends every connection of this process to that port of that host (numeric), whoever made it, so
// that a library which waits there for ever is let go.
void end_connections_to(const std::string& address, int port);

// "10.0.0.3:29500", "[fe80::1]:29500"
std::string host_and_port(const std::string& address, int port);

// Whether this machine can listen on the port, on all its addresses.
bool is_port_free(int port);

// A port that nobody uses, for tests and for launches on one machine. It may be taken before it is
// used.
int free_port();

// The local address that packets to `address` (numeric) leave from; empty where there is no route.
std::string local_address_towards(const std::string& address, int port);

}  // namespace laconic
