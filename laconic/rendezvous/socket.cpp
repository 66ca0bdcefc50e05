#include "laconic/rendezvous/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string& host, int port, int flags, int* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  *error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return Addresses(*error == 0 ? list : nullptr);
}

Addresses numeric(const std::string& address, int port) {
  int error = 0;
  return look_up(address, port, AI_NUMERICHOST, &error);
}

std::string text_of(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text.data();
}

bool binds(int family, int port) {
  const Socket socket(family, SOCK_STREAM);
  if (!socket) return true;  // no such family here: nobody can take its ports either
  const int on = 1;
  ::setsockopt(*socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    ::setsockopt(*socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    reinterpret_cast<sockaddr_in6&>(any).sin6_port = htons(static_cast<std::uint16_t>(port));
    length = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in&>(any).sin_port = htons(static_cast<std::uint16_t>(port));
  }
  // Not to listen even for a moment: a rank that waits for rank 0 would take it for that.
  return ::bind(*socket, reinterpret_cast<const sockaddr*>(&any), length) == 0 ||
         errno != EADDRINUSE;
}

bool ready_before(const Socket& socket, short event, Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd ready{*socket, event, 0};
  return ::poll(&ready, 1, static_cast<int>(std::clamp<long long>(left.count(), 0, 60'000))) == 1;
}

// `socket` does not block.
bool connects_before(const Socket& socket, const addrinfo& to, Deadline deadline) {
  if (!socket) return false;
  if (::connect(*socket, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !ready_before(socket, POLLOUT, deadline)) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(*socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// The address of the socket, or of whom it is connected to.
template <class Ask>
std::pair<std::string, int> name_of(int descriptor, const Ask& ask) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (ask(descriptor, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {"", 0};
  const in_port_t port =
      name.ss_family == AF_INET6  ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
      : name.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(name).sin_port
                                  : 0;
  if (port == 0) return {"", 0};
  return {text_of(reinterpret_cast<const sockaddr*>(&name), length), ntohs(port)};
}

std::vector<int> open_descriptors() {
  std::vector<int> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    all.push_back(std::atoi(entry.path().filename().c_str()));
  return all;
}

}  // namespace

Socket::Socket(int family, int type) : descriptor_(::socket(family, type | SOCK_CLOEXEC, 0)) {}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listen_at(const std::string& address, int backlog) {
  const Addresses at = numeric(address, 0);
  Socket socket(at ? at->ai_family : AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  if (at && socket && ::bind(*socket, at->ai_addr, at->ai_addrlen) == 0 &&
      ::listen(*socket, backlog) == 0)
    return socket;
  throw ConfigError(fmt::format("cannot listen at address {}: {}", address,
                                at ? std::strerror(errno) : "it is not an address"));
}

int local_port(const Socket& socket) {
  return name_of(*socket, ::getsockname).second;
}

Socket accept_from(const Socket& listener) {
  for (;;) {
    Socket socket(::accept4(*listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket || (errno != ECONNABORTED && errno != EINTR)) return socket;
  }
}

Socket begin_connecting(const std::string& address, int port) {
  const Addresses to = numeric(address, port);
  Socket socket(to ? to->ai_family : AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
  if (to && socket &&
      (::connect(*socket, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS))
    return socket;
  const int error = to ? errno : EADDRNOTAVAIL;
  socket = Socket();
  errno = error;
  return socket;
}

int error_of(const Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(*socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

int find_other_end(const Socket& socket) {
  const auto own = name_of(*socket, ::getsockname), other = name_of(*socket, ::getpeername);
  for (const int descriptor : open_descriptors())
    if (name_of(descriptor, ::getsockname) == other && name_of(descriptor, ::getpeername) == own)
      return descriptor;
  return -1;
}

void end_connections_to(const std::string& address, int port) {
  const std::string mapped = "::ffff:" + address;  // as IPv6 sockets call it
  for (const int descriptor : open_descriptors())
    if (const auto [host, there] = name_of(descriptor, ::getpeername);
        there == port && (host == address || host == mapped))
      ::shutdown(descriptor, SHUT_RDWR);
}

std::string host_and_port(const std::string& address, int port) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", address, is_ipv6 ? "]" : "", port);
}

std::vector<std::string> resolve(const std::string& host, int port) {
  int error = 0;
  const Addresses list = look_up(host, port, AI_ADDRCONFIG, &error);
  // Without any network but loopback AI_ADDRCONFIG may leave nothing.
  const Addresses all = list ? nullptr : look_up(host, port, 0, &error);
  if (!list && !all)
    throw ConfigError(
        fmt::format("cannot resolve MASTER_ADDR '{}': {}", host, ::gai_strerror(error)));
  std::vector<std::string> addresses;
  for (const addrinfo* a = (list ? list : all).get(); a != nullptr; a = a->ai_next)
    if (const std::string text = text_of(a->ai_addr, a->ai_addrlen);
        std::find(addresses.begin(), addresses.end(), text) == addresses.end())
      addresses.push_back(text);
  std::stable_partition(addresses.begin(), addresses.end(), [](const std::string& address) {
    return address.find(':') == std::string::npos;
  });
  return addresses;
}

bool answers(const std::string& address, int port, Deadline deadline) {
  const Addresses to = numeric(address, port);
  if (!to) return false;
  const Socket socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  return connects_before(socket, *to, deadline);
}

bool knock(const std::string& address, int port, Deadline deadline) {
  const Addresses to = numeric(address, port);
  if (!to) return false;
  const Socket socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  return connects_before(socket, *to, deadline) && ::shutdown(*socket, SHUT_WR) == 0 &&
         ready_before(socket, POLLIN, deadline);
}

bool is_port_free(int port) {
  return binds(AF_INET, port) && binds(AF_INET6, port);
}

int free_port() {
  const Socket socket(AF_INET, SOCK_STREAM);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!socket || ::bind(*socket, address, length) != 0 ||
      ::getsockname(*socket, address, &length) != 0)
    throw SystemError("a socket", "bind", errno);
  return ntohs(any.sin_port);
}

std::string local_address_towards(const std::string& address, int port) {
  const Addresses to = numeric(address, port);
  if (!to) return "";
  const Socket socket(to->ai_family, SOCK_DGRAM);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Connecting a datagram socket sends nothing: it only asks the routing table.
  if (!socket || ::connect(*socket, to->ai_addr, to->ai_addrlen) != 0 ||
      ::getsockname(*socket, reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return "";
  return text_of(reinterpret_cast<const sockaddr*>(&own), length);
}

}  // namespace laconic
